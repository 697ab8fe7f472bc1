//! The option for what the other ranks do when one has died.

use super::{TrainOptions, named};
use anyhow::{Context, ensure};
use maypole_trainer::ranks::mesh::MeshAxis;
use maypole_trainer::tensor::precision::Precision;
use maypole_trainer::train::setup::Setup;

impl TrainOptions {
    /// Whether the other ranks go on when one has died.
    pub(super) fn shrinks(&self, setup: &Setup, precision: Precision) -> anyhow::Result<bool> {
        if !named(&self.on_failure, "reaction to a failure", &[("stop", false), ("shrink", true)])
            .context("--on-failure")?
        {
            return Ok(false);
        }
        setup.can_lose_ranks().map_err(anyhow::Error::msg)?;
        ensure!(
            setup.mesh.size(MeshAxis::Dp) > 1,
            "--on-failure shrink is of a run of several ranks, and the mesh has one: see --mesh"
        );
        ensure!(
            precision == Precision::F32,
            "--on-failure shrink needs every number twice, and the 32-bit weights behind 16-bit ones \
             are on one rank each: leave out --precision"
        );
        ensure!(
            self.against.is_none(),
            "--against one compares rank by rank, and --on-failure shrink renumbers them: leave out \
             one of them"
        );
        Ok(true)
    }
}
