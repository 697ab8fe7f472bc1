//! The form of data parallelism: a choice by name, for command lines and configurations.

use crate::averaging::apart::ApartStore;
use crate::averaging::diloco::{Diloco, OuterStep};
use crate::averaging::gossip::Gossip;
use crate::averaging::local_sgd::LocalSgd;
use crate::averaging::stale::StaleSum;
use crate::data_parallel::fsdp::Fsdp;
use crate::data_parallel::replicated::{BUCKET, Replicated};
use crate::data_parallel::zero1::Zero1;
use crate::data_parallel::zero2::Zero2;
use crate::model::layout::ParameterLayout;
use crate::model::store::{FlatStore, Store};
use crate::ranks::group::RankGroup;
use crate::tensor::math::FloatElement;
use maypole::Result;
use serde::{Deserialize, Serialize};

/// The state that is sharded over the ranks of a data-parallel group.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
pub enum Sharding {
    /// Nothing: gradients are all-reduced.
    Replicated {
        /// The most bytes of a bucket.
        bucket: usize,
        /// True if sums run while the backward pass does.
        overlap: bool,
    },
    /// The optimizer.
    Zero1,
    /// The optimizer and gradients.
    Zero2,
    /// Everything.
    Fsdp {
        /// True if the next unit's weights are gathered while one is at work.
        prefetch: bool,
    },
    /// Nothing, and weights are averaged instead of gradients.
    Local {
        /// Every so many steps.
        every: u64,
    },
    /// Nothing, and the change of the weights is the gradient of an outer optimizer.
    Diloco {
        /// Every so many steps.
        every: u64,
    },
    /// Nothing, and weights are averaged with those of one neighbour.
    Gossip {
        /// Every so many steps.
        every: u64,
    },
    /// Nothing, and gradients update the weights some steps later.
    Stale {
        /// So many steps later.
        late: u64,
    },
}

impl Default for Sharding {
    fn default() -> Self {
        Self::Replicated { bucket: BUCKET, overlap: true }
    }
}

impl Sharding {
    /// True if each rank has an optimizer and, between averages, weights of its own.
    pub fn diverges(self) -> bool {
        matches!(self, Self::Local { .. } | Self::Diloco { .. } | Self::Gossip { .. })
    }

    /// True if a step takes sums of an earlier step.
    pub fn is_late(self) -> bool {
        matches!(self, Self::Stale { late } if late > 0)
    }

    /// Weights and gradients in this form. `weights` are alike on all ranks of `group`, and all of
    /// them call it.
    ///
    /// # Errors
    /// If the ranks cannot make memory that they share.
    pub fn store<T: FloatElement>(
        self,
        layout: ParameterLayout,
        weights: Vec<T>,
        group: RankGroup,
    ) -> Result<Box<dyn Store<T>>> {
        Ok(match self {
            Self::Replicated { .. } if group.world() == 1 => {
                Box::new(FlatStore::new(layout, weights))
            }
            Self::Replicated { bucket, overlap } => {
                Box::new(Replicated::new(layout, weights, group, bucket, overlap)?)
            }
            Self::Zero1 => Box::new(Zero1::new(layout, &weights, group)?),
            Self::Zero2 => Box::new(Zero2::new(layout, &weights, group)?),
            Self::Fsdp { prefetch } => Box::new(Fsdp::new(layout, &weights, group, prefetch)),
            Self::Local { every } => {
                Box::new(ApartStore::new(FlatStore::new(layout, weights), group, every, LocalSgd))
            }
            Self::Diloco { every } => {
                let rule = Diloco::new(&weights, OuterStep::default());
                Box::new(ApartStore::new(FlatStore::new(layout, weights), group, every, rule))
            }
            Self::Gossip { every } => {
                Box::new(ApartStore::new(FlatStore::new(layout, weights), group, every, Gossip))
            }
            Self::Stale { late } => {
                Box::new(StaleSum::new(FlatStore::new(layout, weights), group, late as usize))
            }
        })
    }
}
