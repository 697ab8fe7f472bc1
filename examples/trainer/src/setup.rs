//! How a model is spread over a mesh: everything a run says beside the model, the text and the optimizer.
//!
//! What it does: [`Setup`] names the choices; [`Setup::check`] says in a sentence why a choice does not go with the model
//! or with another one. What is sharded, which collective runs where, what it costs: in the file of each axis.

use crate::config::Config;
use crate::fault::Fault;
use crate::group::Order;
use crate::layout::Slice;
use crate::mesh::{Axis, Mesh};
use crate::moe::Router;
use crate::pp_plan::Schedule;
use crate::sharding::Sharding;
use crate::zigzag::Division;

/// How queries meet the keys of other ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exchange {
    /// Keys and values walk around a ring: [`crate::cp_ring`].
    Ring,
    /// Positions are exchanged for heads: [`crate::cp_ulysses`].
    Ulysses,
}

/// How a model is spread over ranks.
#[derive(Clone, Debug, PartialEq)]
pub struct Setup {
    /// How many ranks there are along each axis.
    pub mesh: Mesh,
    /// Whether tokens are divided over `tp` where layers are not: [`crate::sp`].
    pub sequence: bool,
    /// How `cp` exchanges.
    pub exchange: Exchange,
    /// Which positions of a sequence are whose on `cp`.
    pub division: Division,
    /// In which order `pp` works.
    pub schedule: Schedule,
    /// Micro-batches of a step.
    pub micros: usize,
    /// How tokens choose experts, if the model has some.
    pub router: Option<Router>,
    /// What ranks that have the same parameters divide among them: those along `dp` and `cp`.
    pub sharding: Sharding,
    /// In which order sums are added.
    pub order: Order,
    /// A mistake to make.
    pub fault: Option<Fault>,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            mesh: Mesh::ONE,
            sequence: false,
            exchange: Exchange::Ring,
            division: Division::ZigZag,
            schedule: Schedule::OneForwardOneBackward,
            micros: 1,
            router: None,
            sharding: Sharding::default(),
            order: Order::Fast,
            fault: None,
        }
    }
}

impl Setup {
    /// This mesh, and for the rest what is usual.
    pub fn of(mesh: Mesh) -> Self {
        Self { mesh, ..Self::default() }
    }

    /// Which layers are at stage `stage` of the pipeline.
    pub fn layers(&self, config: &Config, stage: usize) -> std::ops::Range<usize> {
        Slice { index: stage, of: self.mesh.size(Axis::Pp) * self.schedule.chunks() }.range(config.layers)
    }

    /// Rows of one micro-batch on one rank, of `rows` of the whole batch.
    pub fn micro_rows(&self, rows: usize) -> usize {
        rows / (self.mesh.sizes(&[Axis::Dp, Axis::Ep]) * self.micros)
    }

    /// Whether a model of `config` and batches of `rows` rows can be spread so.
    ///
    /// # Errors
    /// A sentence that says what does not go with what.
    pub fn check(&self, config: &Config, rows: usize) -> Result<(), String> {
        let size = |axis| self.mesh.size(axis);
        if matches!(self.sharding, Sharding::Local { .. }) && size(Axis::Cp) > 1 {
            let why = "local SGD lets weights differ along dp, but positions of one sequence need one model";
            return Err(why.to_owned());
        }
        let divides = |part: usize, whole: usize, what: &str| match whole.is_multiple_of(part) {
            true => Ok(()),
            false => Err(format!("{part} does not divide {whole}: {what}")),
        };
        divides(size(Axis::Tp), config.heads, "each rank of tp has whole heads")?;
        let parts = self.mesh.sizes(&[Axis::Dp, Axis::Ep]) * self.micros;
        divides(parts, rows, "rows are divided over dp, ep and micro-batches")?;
        let chunks = self.division.chunks(size(Axis::Cp));
        divides(chunks, config.context, "positions are divided over cp")?;
        if self.exchange == Exchange::Ulysses {
            let heads = config.heads / size(Axis::Tp);
            divides(size(Axis::Cp), heads, "Ulysses divides the heads that tp leaves over cp")?;
        }
        if self.sequence {
            let tokens = self.micro_rows(rows) * config.context / size(Axis::Cp);
            divides(size(Axis::Tp), tokens, "sequence parallelism divides a micro-batch's tokens over tp")?;
        }
        match self.router {
            None if config.experts > 0 => return Err("a model with experts needs a router".to_owned()),
            Some(router) if router.experts != config.experts => {
                return Err(format!("the router has {} experts, the model {}", router.experts, config.experts));
            }
            Some(router) => {
                divides(size(Axis::Ep), router.experts, "experts are divided over ep")?;
                divides(router.group, config.context / chunks, "routing groups do not cross ranks of cp")?;
            }
            None => {}
        }
        self.schedule.plan(size(Axis::Pp), self.micros).map(drop)
    }
}
