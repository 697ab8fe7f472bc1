//! Which rows and positions of a batch are those of a rank.

use crate::model::batch::TokenBatch;
use crate::model::config::Config;
use crate::ranks::group::RankGroup;
use crate::ranks::mesh::MeshGroups;
use crate::ranks::shard::Shard;
use crate::train::parallelism::Parallelism;
use crate::train::text::{Text, TextError};
use maypole::{Error, Result};
use std::ops::Range;

/// Gives a rank its part of each batch.
pub trait Rows {
    /// This rank's rows and positions of the batch of `count` rows of step `step`, by micro-batch.
    /// Their losses count `scale` times.
    ///
    /// # Errors
    /// If the ranks cannot divide so many rows, or if the text cannot be read.
    fn microbatches(
        &mut self,
        text: &Text,
        step: (u64, usize),
        scale: f64,
    ) -> Result<Vec<TokenBatch>>;

    /// Called after `steps` steps. `work`: seconds of this rank's work in the last one. All ranks call
    /// it.
    ///
    /// # Errors
    /// As the collectives in it, if there are any.
    fn after(&mut self, steps: u64, work: f64) -> Result<()> {
        let _ = (steps, work);
        Ok(())
    }

    /// The rows of each replica in the next step, where replicas may have unequally many.
    fn each(&self) -> Option<&[usize]> {
        None
    }
}

/// The rows of a rank of a mesh: equally many over `dp` and `ep`; positions over `cp`.
#[derive(Clone, Debug)]
pub struct RankRows {
    /// The number of this rank's replica, among the ranks of `dp` and `ep`.
    pub replica: Shard,
    /// Micro-batches of a step.
    pub micros: usize,
    /// The positions of this rank.
    columns: Vec<usize>,
    world: RankGroup,
    config: Config,
    setup: Parallelism,
}

impl RankRows {
    /// Those of a rank with these groups.
    pub fn new(config: &Config, setup: &Parallelism, groups: &MeshGroups) -> Self {
        let cp = &groups.cp;
        Self {
            replica: groups.rows(),
            micros: setup.micros,
            columns: setup.division.positions(cp.rank(), cp.world(), config.context),
            world: groups.world.clone(),
            config: config.clone(),
            setup: setup.clone(),
        }
    }

    /// The positions of this rank.
    pub(super) fn columns(&self) -> &[usize] {
        &self.columns
    }

    /// Reads the rows `mine` of the batch, by micro-batch, and of each row this rank's positions.
    ///
    /// # Errors
    /// If the ranks cannot divide `count` rows ([`Parallelism::check_batch`]), on all of them alike, or
    /// if the text cannot be read.
    pub fn read(
        &self,
        text: &Text,
        (step, count): (u64, usize),
        mine: Range<usize>,
        scale: f64,
    ) -> Result<Vec<TokenBatch>> {
        let rank = self.world.rank();
        let invalid = |why| Error::Invalid { rank, operation: "a training step", why };
        self.setup.check_batch(&self.config, count).map_err(invalid)?;
        let mine = text.part(step, count, mine, self.micros);
        let mine = mine.map_err(|why| unreadable(&self.world, why))?;
        let scaled = |batch: TokenBatch| TokenBatch { weight: batch.weight * scale, ..batch };
        Ok(mine.iter().map(|batch| scaled(batch.cut(&self.columns))).collect())
    }
}

/// The error of a rank that cannot read its rows of a text.
pub(super) fn unreadable(world: &RankGroup, why: TextError) -> Error {
    Error::Invalid { rank: world.rank(), operation: "reading its rows", why: why.to_string() }
}

impl Rows for RankRows {
    fn microbatches(
        &mut self,
        text: &Text,
        step: (u64, usize),
        scale: f64,
    ) -> Result<Vec<TokenBatch>> {
        let mine = self.replica.range(step.1 / self.micros);
        self.read(text, step, mine.start * self.micros..mine.end * self.micros, scale)
    }
}
