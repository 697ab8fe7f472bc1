//! Refuses `--fault` where the mistake would change nothing.

use super::TrainOptions;
use anyhow::ensure;
use maypole_lab::averaging::DataForm;
use maypole_lab::mistakes::Mistake;
use maypole_trainer::context_parallel::zigzag::PositionDivision;
use maypole_trainer::data_parallel::sharding::Sharding;
use maypole_trainer::model::config::{Architecture, Config};
use maypole_trainer::pipeline_parallel::plan::PipelineSchedule;
use maypole_trainer::ranks::mesh::MeshAxis;
use maypole_trainer::tensor::precision::Precision;
use maypole_trainer::train::optim::Rule;
use maypole_trainer::train::parallelism::{ContextExchange, Parallelism};

impl TrainOptions {
    /// Refuses a mistake that changes nothing in this model or on this mesh.
    pub(super) fn check_fault(
        &self,
        fault: Mistake,
        config: &Config,
        (setup, form): (&Parallelism, DataForm),
        rule: Rule,
    ) -> anyhow::Result<()> {
        let (has_effect, needs) = self.fault_effect(fault, config, (setup, form), rule);
        ensure!(has_effect, "--fault {} would change nothing: it needs {needs}", fault.name());
        Ok(())
    }

    /// Returns true if a mistake can change this run, and the options that the mistake needs.
    fn fault_effect(
        &self,
        fault: Mistake,
        config: &Config,
        (setup, form): (&Parallelism, DataForm),
        rule: Rule,
    ) -> (bool, &'static str) {
        use MeshAxis::{Cp, Dp, Ep, Pp, Tp};
        let several = |axes: &[MeshAxis]| setup.mesh.sizes(axes) > 1;
        let experts = config.experts > 0;
        let zig_zag = setup.division == PositionDivision::ZigZag;
        let ring = setup.exchange == ContextExchange::Ring;
        let cp = several(&[Cp]);
        let tp = several(&[Tp]);
        let summed = matches!(form, DataForm::Summed(_));
        let sharded = !matches!(setup.sharding, Sharding::Replicated { .. });
        let parts = several(&[Pp, Ep, Tp]) || sharded && several(&[Dp, Cp]);
        let precision = self.optimizer.precision().unwrap_or(Precision::F32);
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
                let rows = setup.micro_rows(self.optimizer.rows());
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
                experts && several(&[Ep]) && self.optimizer.clip().is_some(),
                "--experts, a --mesh with ranks along ep, and a --clip above 0",
            ),
            Mistake::OwnRowsMean | Mistake::RowsCutAlone => (
                self.lab.rows_by_speed.is_some(),
                "--rows-by-speed, with a rank that is slower than others, as 5:1,2 pretends",
            ),
            Mistake::NormOfPart => (
                parts && self.optimizer.clip().is_some(),
                "a --clip above 0, and ranks that have parts of the gradient: along pp, ep or tp, or \
                 along dp with --sharding zero1, zero2 or fsdp",
            ),
            Mistake::SkippedAlone => (
                parts && self.lab.overflow.is_some(),
                "--overflow, and ranks that have parts of the gradient: along pp, ep or tp, or along \
                 dp with --sharding zero1, zero2 or fsdp",
            ),
            Mistake::ClippedScaled => (
                precision == Precision::F16 && self.optimizer.clip().is_some(),
                "--precision f16 and a --clip above 0",
            ),
            Mistake::ShardReplaced => (
                setup.sharding == Sharding::Zero2 && several(&[Dp, Cp]) && setup.micros > 1,
                "--sharding zero2, several --micros, and ranks along dp or cp",
            ),
            Mistake::SummedEachMicro => (
                !sharded && summed && several(&[Dp, Cp]) && setup.micros > 1,
                "--sharding replicated, several --micros, and ranks along dp or cp",
            ),
            Mistake::UpdatesForgotten => {
                (self.run.save.is_some() && rule.states() > 0, "--save and adamw")
            }
            Mistake::NoMasters => (precision != Precision::F32, "--precision bf16 or f16"),
            Mistake::PlannedAsGpipe => (
                setup.schedule != PipelineSchedule::GPipe
                    && setup.schedule.chunks() == 1
                    && setup.micros > 1,
                "several --micros and --pipeline 1f1b",
            ),
            Mistake::ActivationsKept => (self.optimizer.recompute(), "--recompute"),
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
            Mistake::RouterLeftBehind => (self.lab.rebalance.is_some(), "--rebalance"),
            Mistake::MomentsLeftBehind => {
                (self.lab.rebalance.is_some() && rule.states() > 0, "--rebalance and adamw")
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
