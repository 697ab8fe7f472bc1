//! Which rows and positions of a batch are those of a rank.

use crate::model::batch::TokenBatch;
use crate::model::config::Config;
use crate::ranks::group::RankGroup;
use crate::ranks::mesh::MeshGroups;
use crate::train::setup::Setup;
use crate::train::text::Text;
use crate::unequal_ranks::rows::RowBalance;
use maypole::{Error, Result};

/// Gives a rank its part of each batch.
pub trait Rows {
    /// This rank's rows and positions of the batch of `count` rows of step `step`, by micro-batch.
    /// Their losses count `scale` times.
    ///
    /// # Errors
    /// If the text cannot be read.
    fn of_step(&mut self, text: &Text, step: (u64, usize), scale: f64) -> Result<Vec<TokenBatch>>;

    /// Is told that `steps` steps are done, and that this rank worked for `work` seconds in the
    /// last one. All ranks call it.
    ///
    /// # Errors
    /// As the collectives in it, if there are any.
    fn after(&mut self, steps: u64, work: f64) -> Result<()>;

    /// The rows of each replica in the next step, if it has as many as the last one; empty before
    /// the first step.
    fn each(&self) -> &[usize];

    /// The rows of a batch in which every replica has as many as this rank's had in the last step:
    /// the input of this rank's theory. 0 before the first step.
    fn all_like_own(&self) -> usize;
}

/// The rows of a rank of a mesh: over `dp` and `ep` as the setup divides them, positions over `cp`.
#[derive(Clone, Debug)]
pub struct RankRows {
    /// The rows of each replica.
    pub balance: RowBalance,
    micros: usize,
    /// The positions of this rank.
    columns: Vec<usize>,
    world: RankGroup,
}

impl RankRows {
    /// Those of a rank with these groups.
    pub fn new(config: &Config, setup: &Setup, groups: &MeshGroups) -> Self {
        let mesh = groups.mesh;
        let replicas = (0..mesh.world()).map(|rank| mesh.rows(mesh.place(rank)).index).collect();
        let own = mesh.rank(groups.place);
        let cp = &groups.cp;
        Self {
            balance: RowBalance::new(setup.rows.clone(), replicas, own, setup.micros),
            micros: setup.micros,
            columns: setup.division.positions(cp.rank(), cp.world(), config.context),
            world: groups.world.clone(),
        }
    }
}

impl Rows for RankRows {
    fn of_step(
        &mut self,
        text: &Text,
        (step, count): (u64, usize),
        scale: f64,
    ) -> Result<Vec<TokenBatch>> {
        let mine = text.part(step, count, self.balance.range(count), self.micros);
        let rank = self.world.rank();
        let mine = mine.map_err(|why| Error::Invalid {
            rank,
            operation: "reading its rows",
            why: why.to_string(),
        })?;
        let scaled = |batch: TokenBatch| TokenBatch { weight: batch.weight * scale, ..batch };
        Ok(mine.iter().map(|batch| scaled(batch.cut(&self.columns))).collect())
    }

    fn after(&mut self, steps: u64, work: f64) -> Result<()> {
        if let Some(rows) = self.balance.observe(&self.world, steps, work)? {
            self.balance.adopt(rows);
        }
        Ok(())
    }

    fn each(&self) -> &[usize] {
        self.balance.each()
    }

    fn all_like_own(&self) -> usize {
        self.balance.all_like_own()
    }
}
