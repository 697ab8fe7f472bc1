//! The option for what the other ranks do when one has died.

use super::{TrainOptions, named};
use anyhow::{Context, ensure};
use maypole_lab::survivors::can_lose_ranks;
use maypole_trainer::ranks::mesh::MeshAxis;
use maypole_trainer::tensor::precision::Precision;
use maypole_trainer::train::setup::Setup;

/// What the other ranks do when one has died.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum OnFailure {
    /// They end with an error.
    Stop,
    /// They go on without it.
    Shrink,
    /// They save a checkpoint after the last step that all of them have done, and end with an error.
    Wait,
}

impl OnFailure {
    /// True if the other ranks need time after a death.
    pub(crate) fn survives(self) -> bool {
        self != Self::Stop
    }
}

impl TrainOptions {
    /// What the other ranks do when one has died, if they can.
    pub(super) fn on_failure(
        &self,
        setup: &Setup,
        precision: Precision,
    ) -> anyhow::Result<OnFailure> {
        let names =
            [("stop", OnFailure::Stop), ("shrink", OnFailure::Shrink), ("wait", OnFailure::Wait)];
        let chosen = named(&self.on_failure, "reaction to a failure", &names);
        let chosen = chosen.context("--on-failure")?;
        if !chosen.survives() {
            return Ok(chosen);
        }
        let name = self.on_failure.as_deref().unwrap_or_default();
        can_lose_ranks(setup.mesh, self.form()?, &self.row_division()?)
            .map_err(|why| anyhow::Error::msg(format!("--on-failure {name} {why}")))?;
        ensure!(
            setup.mesh.size(MeshAxis::Dp) > 1,
            "--on-failure {name} is of a run of several ranks, and the mesh has one: see --mesh"
        );
        ensure!(
            precision == Precision::F32,
            "--on-failure {name} needs every number twice, and the 32-bit weights behind 16-bit ones \
             are on one rank each: leave out --precision"
        );
        ensure!(
            self.against.is_none(),
            "--against one compares rank by rank, and --on-failure {name} renumbers them: leave out \
             one of them"
        );
        ensure!(
            chosen != OnFailure::Wait || self.save.is_some(),
            "--on-failure wait writes a checkpoint when a rank has died: give its folder by --save"
        );
        Ok(chosen)
    }
}
