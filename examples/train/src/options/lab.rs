//! The section of the lab's options: unequal ranks, experts that move, deliberate mistakes,
//! comparisons, and recovery from the death of a rank.

use super::data::DataOptions;
use super::{named, section};
use anyhow::{Context, Error, bail, ensure};
use maypole_lab::averaging::DataForm;
use maypole_lab::mistakes::Mistake;
use maypole_lab::survivors::can_lose_ranks;
use maypole_lab::unequal::rows::{RowDivision, SpeedClock};
use maypole_trainer::model::config::Config;
use maypole_trainer::ranks::mesh::MeshAxis;
use maypole_trainer::tensor::precision::Precision;
use maypole_trainer::train::parallelism::Parallelism;
use serde::{Deserialize, Serialize};
use std::path::Path;

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

section! {
    #[command(next_help_heading = "Unequal ranks, moving experts, mistakes and deaths")]
    LabOptions {
        /// Steps after which experts move to other ranks of ep, so that no rank has all the busy ones
        /// [default: never].
        rebalance: u64,
        /// Steps after which rows are divided over dp anew, by the measured speed of ranks; 25:1,2
        /// takes these seconds of a row instead of measuring [default: never].
        rows_by_speed: String,
        /// A step in which a gradient of the last rank is made infinite, as by an overflow: all ranks skip
        /// it [default: none].
        overflow: u64,
        /// Make a mistake, to see that the loss falls all the same: norms-not-summed, not-rescaled ...;
        /// list explains all of them.
        fault: String,
        /// With `one`: train the same model in one process too, and print after each step which
        /// gradients differ.
        against: String,
        /// What the other ranks do when one dies: stop, shrink (go on without it, in the same step and
        /// with every number) or wait (save a checkpoint after the last step, and end). The last two are
        /// of dp alone, replicated, zero1 or zero2. Under maypole run, shrink needs --enable-recovery, and
        /// wait needs --failure-grace [default: stop].
        on_failure: String,
    }
}

impl LabOptions {
    /// Refuses numbers that are impossible with any other options.
    pub(super) fn check(&self) -> anyhow::Result<()> {
        ensure!(self.rebalance != Some(0), "--rebalance needs a positive number");
        ensure!(self.overflow != Some(0), "--overflow needs a positive number: steps count from 1");
        Ok(())
    }

    /// The value of `--rows-by-speed`.
    pub(super) fn row_division(&self) -> anyhow::Result<RowDivision> {
        let division = self.rows_by_speed.as_deref().map(RowDivision::parse);
        Ok(division.transpose().map_err(Error::msg)?.unwrap_or_default())
    }

    pub(super) fn mistake(&self) -> anyhow::Result<Option<Mistake>> {
        self.fault.as_deref().map(Mistake::parse).transpose().map_err(Error::msg)
    }

    /// Refuses options without effect in this model or on this mesh, and guarantees that a division by
    /// measured times would break.
    pub(super) fn check_effects(
        &self,
        config: &Config,
        setup: &Parallelism,
        is_deterministic: bool,
    ) -> anyhow::Result<()> {
        let ep = setup.mesh.size(MeshAxis::Ep) > 1;
        ensure!(
            self.rebalance.is_none() || config.experts > 0,
            "--rebalance moves experts, and the model has none: see --experts"
        );
        ensure!(
            self.rebalance.is_none() || ep,
            "--rebalance moves experts between the ranks of ep, \
             and the mesh has one: see --mesh"
        );
        ensure!(
            self.rows_by_speed.is_none() || ep || setup.mesh.size(MeshAxis::Dp) > 1,
            "--rows-by-speed divides rows over dp and ep, and the mesh has one rank of them: \
             see --mesh"
        );
        let measured = matches!(
            self.row_division()?,
            RowDivision::BySpeed { clock: SpeedClock::Measured, .. }
        );
        ensure!(
            !(measured && is_deterministic),
            "--rows-by-speed divides rows by measured times, which differ from run to run, and \
             --deterministic promises equal bits: leave out one of them"
        );
        Ok(())
    }

    /// Refuses `--against` for runs that one process cannot repeat step by step.
    pub(super) fn check_comparison(
        &self,
        form: DataForm,
        precision: Precision,
        save: Option<&Path>,
        data: &DataOptions,
    ) -> anyhow::Result<()> {
        let Some(with) = self.against.as_deref() else { return Ok(()) };
        ensure!(
            self.overflow.is_none(),
            "--against one: the gradients of one process do not overflow: leave out --overflow"
        );
        ensure!(with == "one", "'{with}' is nothing to compare with: there is --against one");
        ensure!(
            !form.diverges() && !form.is_late(),
            "--against one: one process cannot repeat averages of weights or stale sums; \
             give another --sharding"
        );
        ensure!(
            precision == Precision::F32,
            "--against one compares in 32 bits: leave out --precision"
        );
        ensure!(
            save.is_none(),
            "--against one begins at the first step, and --save may go on from another: \
             leave out --save"
        );
        if let Some(path) = data.streams()? {
            bail!(
                "--against one reads its text from memory, and --data {} streams from disk: give a \
                 shorter file",
                path.display()
            );
        }
        Ok(())
    }

    /// What the other ranks do when one has died, if they can.
    pub(super) fn on_failure(
        &self,
        (setup, form): (&Parallelism, DataForm),
        precision: Precision,
        save: Option<&Path>,
    ) -> anyhow::Result<OnFailure> {
        let names =
            [("stop", OnFailure::Stop), ("shrink", OnFailure::Shrink), ("wait", OnFailure::Wait)];
        let chosen = named(&self.on_failure, "reaction to a failure", &names);
        let chosen = chosen.context("--on-failure")?;
        if !chosen.survives() {
            return Ok(chosen);
        }
        let name = self.on_failure.as_deref().unwrap_or_default();
        can_lose_ranks(setup.mesh, form, &self.row_division()?)
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
            chosen != OnFailure::Wait || save.is_some(),
            "--on-failure wait writes a checkpoint when a rank has died: give its folder by --save"
        );
        Ok(chosen)
    }
}
