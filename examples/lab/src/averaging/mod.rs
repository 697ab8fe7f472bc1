//! Asynchronous updates and averaging: ranks that do not add their gradients after every step.
//!
//! Over a slow link the all-reduce of gradients takes longer than the step. Then it pays to send less
//! often, to send to fewer ranks, or to continue before the sum has arrived. Each of these is an
//! algorithm of its own: losses are near those of data parallelism, but not equal.
//!
//! ```text
//!                  sent each step by a rank      what ranks have
//! data parallel    2 P (n-1)/n                   the same weights
//! local SGD        2 P (n-1)/n / H               their own weights, averaged every H steps
//! DiLoCo           2 P (n-1)/n / H               as local SGD, and an outer optimizer
//! gossip           P / H                         their own weights, near those of neighbours
//! stale sums       2 P (n-1)/n, beside steps     the same weights, from gradients of earlier steps
//! average once     2 P (n-1)/n / all steps       their own weights until the end: local SGD with
//!                                                an H of all steps
//! ```
//!
//! # What is sharded
//! The rows of a batch. Every rank has all weights, gradients and optimizer state; DiLoCo keeps two
//! numbers more for each parameter.
//!
//! # Which collective runs where
//! Local SGD: an all-reduce of the weights every H steps. DiLoCo: an all-reduce of the change of
//! the weights every H steps. Gossip: each rank sends its weights to the next rank of a ring every
//! H steps. Stale sums: an all-reduce of gradients that is started in one step and waited for some
//! steps later.
//!
//! # Cost
//! The table above, with `P` parameters on `n` ranks.
//!
//! # Source
//! Douillard et al., "DiLoCo" (2023); Lian et al., "Can Decentralized Algorithms Outperform
//! Centralized Algorithms?" (2017), for gossip; Ho et al., "More Effective Distributed ML via a
//! Stale Synchronous Parallel Parameter Server" (2013), for bounded staleness; Stich, "Local SGD
//! Converges Fast and Communicates Little" (2019).
//!
//! | file | contents |
//! |---|---|
//! | [`apart`] | the store of ranks that train apart, for any rule of averaging |
//! | [`local_sgd`] | weights averaged every H steps |
//! | [`diloco`] | an outer optimizer for the mean change of H steps |
//! | [`gossip`] | averages with one neighbour |
//! | [`stale`] | sums that arrive some steps late |

pub mod apart;
pub mod diloco;
pub mod gossip;
pub mod local_sgd;
pub mod stale;

use crate::averaging::apart::AveragedStore;
use crate::averaging::diloco::{Diloco, OuterStep};
use crate::averaging::gossip::Gossip;
use crate::averaging::local_sgd::LocalSgd;
use crate::averaging::stale::StaleSum;
use maypole::Result;
use maypole_trainer::data_parallel::sharding::Sharding;
use maypole_trainer::model::layout::ParameterLayout;
use maypole_trainer::model::store::{FlatStore, Store};
use maypole_trainer::ranks::group::RankGroup;
use maypole_trainer::ranks::mesh::MeshAxis;
use maypole_trainer::tensor::half_float::HalfFloat;
use maypole_trainer::tensor::math::{FloatElement, Real};
use maypole_trainer::train::parallelism::Parallelism;
use maypole_trainer::train::stores::mixed;
use maypole_trainer::train::trainer::Trainer;
use std::rc::Rc;

/// The form of data parallelism of ranks with the same parameters.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum DataForm {
    /// An all-reduce of gradients in every step: a form of the trainer.
    Summed(Sharding),
    /// They average weights.
    Local {
        /// The steps from one average to the next.
        every: u64,
    },
    /// The mean change of their weights is the gradient of an outer optimizer.
    Diloco {
        /// The steps from one outer step to the next.
        every: u64,
    },
    /// Each averages its weights with those of one neighbour.
    Gossip {
        /// The steps from one average to the next.
        every: u64,
    },
    /// An all-reduce of gradients in the background, which updates the weights some steps later.
    Stale {
        /// The number of steps.
        late: u64,
    },
}

impl From<Sharding> for DataForm {
    fn from(sharding: Sharding) -> Self {
        Self::Summed(sharding)
    }
}

impl DataForm {
    /// The sharding that a trainer is made with: where weights are averaged nothing is sharded.
    pub fn sharding(self) -> Sharding {
        if let Self::Summed(sharding) = self { sharding } else { Sharding::default() }
    }

    /// True if, between averages, each rank has weights of its own.
    pub fn diverges(self) -> bool {
        matches!(self, Self::Local { .. } | Self::Diloco { .. } | Self::Gossip { .. })
    }

    /// True if a step updates weights by the sums of an earlier step.
    pub fn is_late(self) -> bool {
        matches!(self, Self::Stale { late } if late > 0)
    }

    /// Steps of a round: ranks exchange in the last of them.
    pub fn every(self) -> u64 {
        match self {
            Self::Local { every } | Self::Diloco { every } | Self::Gossip { every } => every,
            Self::Summed(_) | Self::Stale { .. } => 1,
        }
    }

    /// Checks that ranks of `setup` can train in this form.
    ///
    /// # Errors
    /// A sentence that names the two options that do not combine.
    pub fn check(self, setup: &Parallelism) -> std::result::Result<(), String> {
        if self.diverges() && setup.mesh.size(MeshAxis::Cp) > 1 {
            let why = "averaging lets weights differ along dp, but positions of one sequence need \
                       one model";
            return Err(why.to_owned());
        }
        Ok(())
    }

    /// Gives `trainer`, whose setup has [`sharding`](Self::sharding) and which has done no step, the
    /// store of this form, with initial weights drawn by `seed`. Collective.
    ///
    /// # Errors
    /// As [`Trainer::draw`].
    ///
    /// # Panics
    /// If the steps between averages are zero.
    pub fn plant<T: Real>(self, trainer: &mut Trainer<T>, seed: u64) -> Result<()> {
        if matches!(self, Self::Summed(_)) {
            return Ok(());
        }
        trainer.stores.make = Rc::new(move |plan, layout, weights| {
            Ok(plan.with_sums(self.store(layout, weights, plan.copies.clone())))
        });
        trainer.draw(seed)
    }

    /// The same for a trainer that computes with numbers of 16 bits.
    ///
    /// # Errors
    /// As [`Trainer::draw`].
    pub fn plant_narrow<H: HalfFloat>(self, trainer: &mut Trainer<f32>, seed: u64) -> Result<()> {
        if matches!(self, Self::Summed(_)) {
            return Ok(());
        }
        trainer.stores.make = Rc::new(move |plan, layout, weights| {
            mixed::<H>(&weights, |rounded| {
                Ok(plan.with_sums(self.store(layout, rounded, plan.copies.clone())))
            })
        });
        trainer.draw(seed)
    }

    fn store<T: FloatElement, G: FloatElement>(
        self,
        layout: ParameterLayout,
        weights: Vec<T>,
        group: RankGroup,
    ) -> Box<dyn Store<T, G>> {
        let flat = FlatStore::mixed(layout, weights);
        match self {
            Self::Summed(_) => unreachable!("the trainer makes it"),
            Self::Local { every } => Box::new(AveragedStore::new(flat, group, every, LocalSgd)),
            Self::Diloco { every } => {
                let rule = Diloco::new(&flat.weights, OuterStep::default());
                Box::new(AveragedStore::new(flat, group, every, rule))
            }
            Self::Gossip { every } => Box::new(AveragedStore::new(flat, group, every, Gossip)),
            Self::Stale { late } => Box::new(StaleSum::new(flat, group, late as usize)),
        }
    }
}
