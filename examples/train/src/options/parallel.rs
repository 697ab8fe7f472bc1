//! The section of the division over ranks: the mesh, and what its axes divide how.

use super::{named, section};
use anyhow::{Context, ensure};
use maypole_lab::averaging::DataForm;
use maypole_trainer::context_parallel::zigzag::PositionDivision;
use maypole_trainer::data_parallel::sharding::Sharding;
use maypole_trainer::expert_parallel::router::Router;
use maypole_trainer::model::config::Config;
use maypole_trainer::pipeline_parallel::plan::PipelineSchedule;
use maypole_trainer::ranks::group::SumOrder;
use maypole_trainer::ranks::mesh::{Mesh, MeshAxis};
use maypole_trainer::train::parallelism::{ContextExchange, Parallelism};
use serde::{Deserialize, Serialize};

/// The most steps that sums may be late: each keeps a buffer of gradients.
const MOST_LATE: u64 = 64;

section! {
    #[command(next_help_heading = "Its division over ranks")]
    ParallelOptions {
        /// Ranks along each axis, as dp=2,tp=2: dp, pp, ep, cp, tp [default: one rank].
        mesh: String,
        /// What ranks along dp share: replicated, zero1, zero2, fsdp; local:STEPS,
        /// diloco:STEPS, gossip:STEPS, once (weights averaged); stale:STEPS [default: replicated].
        sharding: String,
        /// The most KiB of a bucket of gradients [default: a quarter of the rank's gradients, and
        /// at most 25600].
        bucket: usize,
        /// Divide tokens over tp where layers are not divided.
        #[arg(num_args = 0..=1, default_missing_value = "true")]
        sequence: bool,
        /// How ranks along cp exchange: ring, ulysses [default: ring].
        exchange: String,
        /// How positions are divided over cp: zig-zag, contiguous [default: zig-zag].
        division: String,
        /// The layers of each stage of pp, as 3,1; measured divides them by what they cost each rank
        /// [default: equal numbers].
        stages: String,
        /// The schedule of pp: gpipe, 1f1b, interleaved:STAGES [default: 1f1b].
        pipeline: String,
        /// Micro-batches of a step [default: one, or two a stage].
        micros: usize,
        /// Sum in the order of ranks, so that equal runs give equal bits.
        #[arg(num_args = 0..=1, default_missing_value = "true")]
        deterministic: bool,
    }
}

impl ParallelOptions {
    /// Refuses numbers that are impossible with any other options.
    pub(super) fn check(&self) -> anyhow::Result<()> {
        ensure!(self.micros != Some(0), "--micros needs a positive number");
        if let Some(kib) = self.bucket {
            ensure!(kib <= usize::MAX >> 10, "--bucket {kib}: no memory has so many KiB");
        }
        Ok(())
    }

    /// How the model of `config` is divided in a run of `steps` steps. Its experts choose tokens by
    /// `router`.
    pub(super) fn build(
        &self,
        config: &Config,
        router: Option<Router>,
        steps: u64,
    ) -> anyhow::Result<(Parallelism, DataForm)> {
        let mesh = Mesh::parse(self.mesh.as_deref().unwrap_or("")).map_err(anyhow::Error::msg)?;
        let pipeline = self.pipeline.as_deref().unwrap_or("1f1b");
        let stages = mesh.size(MeshAxis::Pp);
        let exchanges = [("ring", ContextExchange::Ring), ("ulysses", ContextExchange::Ulysses)];
        let divisions =
            [("zig-zag", PositionDivision::ZigZag), ("contiguous", PositionDivision::Contiguous)];
        let form = self.form(steps)?;
        let setup = Parallelism {
            mesh,
            sequence: self.sequence.unwrap_or(false),
            exchange: named(&self.exchange, "exchange", &exchanges)?,
            schedule: PipelineSchedule::parse(pipeline).map_err(anyhow::Error::msg)?,
            micros: self.micros.unwrap_or(if stages > 1 { 2 * stages } else { 1 }),
            layers: self.layer_counts()?,
            router,
            sharding: form.sharding(),
            division: named(&self.division, "division", &divisions)?,
            order: if self.is_deterministic() { SumOrder::Ranks } else { SumOrder::Fast },
        };
        Self::check_stages(config, &setup)?;
        form.check(&setup).map_err(anyhow::Error::msg)?;
        Ok((setup, form))
    }

    pub(super) fn is_deterministic(&self) -> bool {
        self.deterministic == Some(true)
    }

    /// True of `--stages measured`.
    pub(crate) fn measures_layers(&self) -> bool {
        self.stages.as_deref() == Some("measured")
    }

    /// The value of `--stages`; equal numbers before a measurement.
    pub(super) fn layer_counts(&self) -> anyhow::Result<Option<Vec<usize>>> {
        let given = self.stages.as_deref().filter(|_| !self.measures_layers());
        given.map(layer_counts).transpose()
    }

    fn form(&self, steps: u64) -> anyhow::Result<DataForm> {
        let bucket = self.bucket.map(|kib| kib << 10);
        let name = self.sharding.as_deref().unwrap_or("replicated");
        if let Some(apart) = Self::apart(name, steps) {
            return apart;
        }
        let sharding = named(
            &Some(name.to_owned()),
            "sharding",
            &[
                ("replicated", Sharding::Replicated { bucket, overlap: true }),
                ("zero1", Sharding::Zero1),
                ("zero2", Sharding::Zero2),
                ("fsdp", Sharding::Fsdp { prefetch: true }),
            ],
        )?;
        Ok(sharding.into())
    }

    /// The form of ranks that train apart, if `name` names one.
    fn apart(name: &str, steps: u64) -> Option<anyhow::Result<DataForm>> {
        let (kind, number) = name.split_once(':').unwrap_or((name, ""));
        let number = number.parse::<u64>().ok();
        let positive = || {
            let every = number.filter(|every| *every > 0);
            every.with_context(|| format!("{kind}:STEPS needs a positive number of steps"))
        };
        let late = || {
            let late = number.filter(|late| *late <= MOST_LATE);
            late.with_context(|| format!("stale:STEPS needs a number from 0 to {MOST_LATE}"))
        };
        Some(match kind {
            "local" => positive().map(|every| DataForm::Local { every }),
            "diloco" => positive().map(|every| DataForm::Diloco { every }),
            "gossip" => positive().map(|every| DataForm::Gossip { every }),
            "stale" => late().map(|late| DataForm::Stale { late }),
            "once" => Ok(DataForm::Local { every: steps.max(1) }),
            _ => return None,
        })
    }

    /// Refuses a pipeline with stages that have no layers.
    fn check_stages(config: &Config, setup: &Parallelism) -> anyhow::Result<()> {
        let stages = setup.mesh.size(MeshAxis::Pp).saturating_mul(setup.schedule.chunks());
        ensure!(
            setup.schedule.chunks() == 1 || stages <= config.layers,
            "--pipeline {} makes {stages} stages of {} layers, so that some are empty: \
             give --layers {stages} or fewer stages",
            setup.schedule.name(),
            config.layers
        );
        Ok(())
    }

    /// Refuses options that change nothing on this mesh, and measurements that cannot be made.
    pub(super) fn check_effects(
        &self,
        config: &Config,
        (setup, form): (&Parallelism, DataForm),
    ) -> anyhow::Result<()> {
        let several = |axis| setup.mesh.size(axis) > 1;
        let cp = several(MeshAxis::Cp);
        let replicated = matches!(form, DataForm::Summed(Sharding::Replicated { .. }));
        ensure!(
            self.sequence != Some(true) || several(MeshAxis::Tp),
            "--sequence divides tokens over the ranks of tp, and the mesh has one: see --mesh"
        );
        ensure!(
            self.exchange.is_none() || cp,
            "--exchange says how the ranks of cp exchange, and the mesh has one: see --mesh"
        );
        ensure!(
            self.division.is_none() || cp,
            "--division divides positions over cp, and the mesh has one rank: see --mesh"
        );
        ensure!(
            self.stages.is_none() || several(MeshAxis::Pp),
            "--stages divides layers over pp, and the mesh has one rank: see --mesh"
        );
        ensure!(
            !several(MeshAxis::Ep) || config.experts > 0,
            "ep divides experts, and the model has none: see --experts, or divide rows by dp"
        );
        ensure!(
            self.bucket.is_none() || replicated,
            "--bucket needs replicated gradients, and --sharding divides them"
        );
        if self.measures_layers() { Self::check_measurement(config, setup) } else { Ok(()) }
    }

    /// Refuses to measure layers where that cannot be done.
    fn check_measurement(config: &Config, setup: &Parallelism) -> anyhow::Result<()> {
        ensure!(
            setup.schedule.chunks() == 1,
            "--stages measured divides layers over one stage of each rank: \
             give --pipeline 1f1b or gpipe, or the layers of each stage, as --stages 2,1,2,1"
        );
        ensure!(
            config.experts == 0,
            "--stages measured times layers without experts: \
             give the layers of each stage, as --stages 3,1"
        );
        let stages = setup.mesh.size(MeshAxis::Pp);
        ensure!(
            stages <= config.layers,
            "--stages gives each of {stages} stages a layer, and there are {}: give --layers \
             {stages}, or fewer ranks of pp",
            config.layers
        );
        Ok(())
    }
}

/// Reads `3,1`: the layers of each stage.
fn layer_counts(text: &str) -> anyhow::Result<Vec<usize>> {
    let counts = text.split(',').map(|count| count.trim().parse().ok());
    counts.collect::<Option<Vec<usize>>>().with_context(|| {
        format!("'{text}' is no division of layers: give those of each stage, as 3,1")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn divisions_of_layers_are_read() {
        assert_eq!(layer_counts("3, 1").unwrap(), [3, 1]);
        assert!(layer_counts("3,x").unwrap_err().to_string().contains("3,1"));
    }
}
