//! Refuses options that make no sense: impossible numbers, and options that would change nothing.

use super::TrainOptions;
use anyhow::ensure;
use maypole_lab::averaging::DataForm;
use maypole_lab::mistakes::Mistake;
use maypole_trainer::context_parallel::zigzag::PositionDivision;
use maypole_trainer::data_parallel::sharding::Sharding;
use maypole_trainer::model::config::{Architecture, Config};
use maypole_trainer::pipeline_parallel::plan::PipelineSchedule;
use maypole_trainer::ranks::mesh::MeshAxis;
use maypole_trainer::train::optim::Rule;
use maypole_trainer::train::setup::{ContextExchange, Setup};

impl TrainOptions {
    /// Refuses numbers that are impossible with any other options.
    pub(super) fn check_numbers(&self) -> anyhow::Result<()> {
        let positive = [
            ("micros", self.micros == Some(0)),
            ("rows", self.rows == Some(0)),
            ("save-every", self.save_every == Some(0)),
            ("keep", self.keep == Some(0)),
            ("rebalance", self.rebalance == Some(0)),
            ("group", self.group == Some(0)),
        ];
        for (name, zero) in positive {
            ensure!(!zero, "--{name} needs a positive number");
        }
        if let Some(vocab) = self.bpe {
            ensure!(
                vocab > 256,
                "--bpe {vocab}: bytes alone are 256 tokens; give more, or leave it out"
            );
        }
        if let Some(kib) = self.bucket {
            ensure!(kib <= usize::MAX >> 10, "--bucket {kib}: no memory has so many KiB");
        }
        ensure!(
            self.prompt.as_deref() != Some(""),
            "--prompt is empty: give the text that the sample at the end follows"
        );
        if let Some(capacity) = self.capacity {
            let even = "1 is the even share, and without --capacity experts take all";
            ensure!(
                capacity.is_finite() && capacity > 0.0,
                "--capacity {capacity} is no share of tokens: {even}"
            );
        }
        for (name, number) in
            [("rate", self.rate), ("clip", self.clip), ("temperature", self.temperature)]
        {
            let number = number.unwrap_or(0.0);
            ensure!(
                number.is_finite() && number >= 0.0,
                "--{name} {number}: give a number from 0 on"
            );
        }
        Ok(())
    }

    /// Refuses a pipeline with stages that have no layers.
    pub(super) fn check_stages(config: &Config, setup: &Setup) -> anyhow::Result<()> {
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

    /// Refuses options that change nothing in this model or on this mesh.
    pub(super) fn check_effects(
        &self,
        config: &Config,
        setup: &Setup,
        rule: Rule,
    ) -> anyhow::Result<()> {
        let several = |axis| setup.mesh.size(axis) > 1;
        let experts = config.experts > 0;
        let ep = several(MeshAxis::Ep);
        let cp = several(MeshAxis::Cp);
        let summed = DataForm::Summed(setup.sharding) == self.form()?;
        let replicated = summed && matches!(setup.sharding, Sharding::Replicated { .. });
        let warms = self.warm_up.is_some_and(|steps| steps > 0);
        for (given, matters, why) in [
            (
                self.sequence == Some(true),
                several(MeshAxis::Tp),
                "--sequence divides tokens over the ranks of tp, and the mesh has one: see --mesh",
            ),
            (
                self.exchange.is_some(),
                cp,
                "--exchange says how the ranks of cp exchange, and the mesh has one: see --mesh",
            ),
            (
                self.division.is_some(),
                cp,
                "--division divides positions over cp, and the mesh has one rank: see --mesh",
            ),
            (
                self.capacity.is_some(),
                experts,
                "--capacity needs experts, and the model has none: see --experts",
            ),
            (
                self.group.is_some(),
                experts,
                "--group needs experts, and the model has none: see --experts",
            ),
            (
                self.rebalance.is_some(),
                experts,
                "--rebalance moves experts, and the model has none: see --experts",
            ),
            (
                self.rebalance.is_some(),
                ep,
                "--rebalance moves experts between the ranks of ep, \
                 and the mesh has one: see --mesh",
            ),
            (
                self.rows_by_speed.is_some(),
                several(MeshAxis::Dp) || ep,
                "--rows-by-speed divides rows over dp and ep, and the mesh has one rank of them: \
                 see --mesh",
            ),
            (
                self.stages.is_some(),
                several(MeshAxis::Pp),
                "--stages divides layers over pp, and the mesh has one rank: see --mesh",
            ),
            (
                ep,
                experts,
                "ep divides experts, and the model has none: see --experts, or divide rows by dp",
            ),
            (
                self.bucket.is_some(),
                replicated,
                "--bucket needs replicated gradients, and --sharding divides them",
            ),
            (
                self.save_every.is_some(),
                self.save.is_some(),
                "--save-every needs --save, the folder for checkpoints",
            ),
            (
                self.keep.is_some(),
                self.save.is_some(),
                "--keep needs --save, the folder for checkpoints",
            ),
            (
                self.temperature.is_some(),
                self.sample != Some(0),
                "--temperature is of the text at the end, and --sample 0 writes none",
            ),
            (
                self.prompt.is_some(),
                self.sample != Some(0),
                "--prompt is of the text at the end, and --sample 0 writes none",
            ),
            (
                warms,
                self.shape.as_deref() != Some("constant"),
                "--warm-up raises a rate that --shape constant keeps",
            ),
        ] {
            ensure!(!given || matters, why);
        }
        self.check_division(config, setup)?;
        self.check_comparison(self.form()?)?;
        let Some(fault) = self.mistake()? else { return Ok(()) };
        let (has_effect, needs) = self.fault_effect(fault, config, setup, rule);
        ensure!(has_effect, "--fault {} would change nothing: it needs {needs}", fault.name());
        Ok(())
    }

    /// Refuses `--against` for runs that one process cannot repeat step by step.
    fn check_comparison(&self, form: DataForm) -> anyhow::Result<()> {
        let Some(with) = self.against.as_deref() else { return Ok(()) };
        ensure!(with == "one", "'{with}' is nothing to compare with: there is --against one");
        ensure!(
            !form.diverges() && !form.is_late(),
            "--against one: one process cannot repeat averages of weights or stale sums; \
             give another --sharding"
        );
        ensure!(
            self.precision.as_deref().is_none_or(|precision| precision == "f32"),
            "--against one compares in 32 bits: leave out --precision"
        );
        ensure!(
            self.save.is_none(),
            "--against one begins at the first step, and --save may go on from another: \
             leave out --save"
        );
        Ok(())
    }

    /// Returns true if a mistake can change this run, and the options that the mistake needs.
    fn fault_effect(
        &self,
        fault: Mistake,
        config: &Config,
        setup: &Setup,
        rule: Rule,
    ) -> (bool, &'static str) {
        use MeshAxis::{Cp, Dp, Ep, Pp, Tp};
        let several = |axes: &[MeshAxis]| setup.mesh.sizes(axes) > 1;
        let experts = config.experts > 0;
        let zig_zag = setup.division == PositionDivision::ZigZag;
        let ring = setup.exchange == ContextExchange::Ring;
        let cp = several(&[Cp]);
        let tp = several(&[Tp]);
        let summed = matches!(self.form(), Ok(DataForm::Summed(_)));
        let held = setup.schedule.held(setup.mesh.size(Pp), setup.micros);
        match fault {
            Mistake::LocalMean => {
                (several(&[Dp, Ep, Cp]), "a --mesh with ranks along dp, ep or cp")
            }
            Mistake::GradientsAlone | Mistake::GradientsAveraged => {
                (several(&[Dp, Cp]), "a --mesh with ranks along dp or cp")
            }
            Mistake::GradientsOverTensor => {
                (several(&[Dp, Cp, Tp]), "a --mesh with ranks along dp, cp or tp")
            }
            Mistake::NoSumAfterRow | Mistake::NoSumBeforeColumn | Mistake::VocabularyMaximum => {
                (tp, "a --mesh with ranks along tp")
            }
            Mistake::NormsNotSummed => {
                (tp && setup.sequence, "--sequence and a --mesh with ranks along tp")
            }
            Mistake::PositionsOfFirst => {
                // Rows that ranks of tp do not divide have the same positions on all of them.
                let rows = setup.micro_rows(self.rows.unwrap_or(16));
                let divided = !rows.is_multiple_of(setup.mesh.size(Tp));
                (
                    tp && setup.sequence && divided && config.architecture == Architecture::Gpt,
                    "--model gpt, --sequence, ranks along tp, and so many --micros that tp does \
                     not divide the rows of one",
                )
            }
            Mistake::RouterSummed => (
                experts && tp && setup.sequence,
                "--experts, --sequence and a --mesh with ranks along tp",
            ),
            Mistake::DenseCountedOften => (
                experts && several(&[Ep]) && self.clip != Some(0.0),
                "--experts, a --mesh with ranks along ep, and a --clip above 0",
            ),
            Mistake::OwnRowsMean | Mistake::RowsCutAlone => (
                self.rows_by_speed.is_some(),
                "--rows-by-speed, with a rank that is slower than others, as 5:1,2 pretends",
            ),
            Mistake::PlannedAsGpipe => (
                setup.schedule != PipelineSchedule::GPipe
                    && setup.schedule.chunks() == 1
                    && setup.micros > 1,
                "several --micros and --pipeline 1f1b",
            ),
            Mistake::ActivationsKept => (self.recompute == Some(true), "--recompute"),
            Mistake::UnitsKept => (
                matches!(setup.sharding, Sharding::Fsdp { .. }) && several(&[Dp, Cp]),
                "--sharding fsdp and a --mesh with ranks along dp or cp",
            ),
            Mistake::SumsAfterwards => (
                summed
                    && several(&[Dp, Cp])
                    && matches!(
                        setup.sharding,
                        Sharding::Replicated { .. } | Sharding::Fsdp { .. }
                    ),
                "a --mesh with ranks along dp or cp, and --sharding replicated or fsdp",
            ),
            Mistake::VocabularyRemainder => (
                !config.vocab.is_multiple_of(setup.mesh.size(Tp)),
                "ranks along tp that do not divide the vocabulary: 256 bytes, or --bpe",
            ),
            Mistake::MicrosSwapped => (
                several(&[Pp]) && setup.micros > 1,
                "a --mesh with ranks along pp, and several --micros",
            ),
            Mistake::ActivationsStacked => (
                held > 1.0,
                "several --micros that wait for their backward pass: \
                 --pipeline gpipe, or ranks along pp",
            ),
            Mistake::NotCombined | Mistake::GatesForgotten => (experts, "--experts"),
            Mistake::ExpertsSummed => {
                (experts && several(&[Ep]), "--experts and a --mesh with ranks along ep")
            }
            Mistake::LocalBalance => (
                experts && several(&[Dp, Ep, Cp]),
                "--experts and a --mesh with ranks along dp, ep or cp",
            ),
            Mistake::RouterLeftBehind => (self.rebalance.is_some(), "--rebalance"),
            Mistake::MomentsLeftBehind => {
                (self.rebalance.is_some() && rule.states() > 0, "--rebalance and adamw")
            }
            Mistake::NotRescaled | Mistake::NotSentHome | Mistake::MaskOfFirst => {
                (ring && cp, "a --mesh with ranks along cp, and --exchange ring")
            }
            Mistake::PlainPositions => {
                (cp && zig_zag, "a --mesh with ranks along cp, and --division zig-zag")
            }
            Mistake::HeadsSwapped => (
                !ring && cp && zig_zag,
                "a --mesh with ranks along cp, --exchange ulysses, and --division zig-zag",
            ),
        }
    }
}
