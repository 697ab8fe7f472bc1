//! The form of data parallelism, as command lines and configurations name it.

use crate::data_parallel::fsdp::Fsdp;
use crate::data_parallel::replicated::Replicated;
use crate::data_parallel::zero::Zero;
use crate::model::layout::ParameterLayout;
use crate::model::store::{FlatStore, Store};
use crate::ranks::group::RankGroup;
use crate::tensor::math::FloatElement;
use maypole::Result;
use serde::{Deserialize, Serialize};

/// The form of data parallelism: what its ranks shard.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
pub enum Sharding {
    /// Nothing is sharded: gradients are all-reduced.
    Replicated {
        /// The most bytes of a bucket; `None` for [`bucket`](crate::data_parallel::replicated::bucket)'s default.
        bucket: Option<usize>,
        /// True if all-reduces overlap with the backward pass.
        overlap: bool,
    },
    /// The optimizer's state is sharded.
    Zero1,
    /// The optimizer's state and gradients are sharded.
    Zero2,
    /// The optimizer's state, gradients and weights are sharded.
    Fsdp {
        /// True if the all-gather of the next unit overlaps with the pass of a unit.
        prefetch: bool,
    },
}

impl Default for Sharding {
    fn default() -> Self {
        Self::Replicated { bucket: None, overlap: true }
    }
}

impl Sharding {
    /// Makes the store of this form. `weights` must be equal on all ranks of `group`, and all of
    /// them call it.
    ///
    /// # Errors
    /// If the ranks cannot make memory that they share.
    ///
    /// # Panics
    /// If the number of weights is not that of the layout.
    pub fn store<T: FloatElement, G: FloatElement>(
        self,
        layout: ParameterLayout,
        weights: Vec<T>,
        group: RankGroup,
    ) -> Result<Box<dyn Store<T, G>>> {
        Ok(match self {
            Self::Replicated { .. } if group.world() == 1 => {
                Box::new(FlatStore::mixed(layout, weights))
            }
            Self::Replicated { bucket, overlap } => {
                Box::new(Replicated::new(layout, weights, group, bucket, overlap)?)
            }
            Self::Zero1 => Box::new(Zero::new(layout, &weights, group, false)?),
            Self::Zero2 => Box::new(Zero::new(layout, &weights, group, true)?),
            Self::Fsdp { prefetch } => Box::new(Fsdp::new(layout, &weights, group, prefetch)),
        })
    }
}
