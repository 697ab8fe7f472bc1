//! Plants a mistake in a rank: replaces one of its parts by one that makes the mistake, and nothing
//! else.
//!
//! The right part of a [`Trainer`] is taken, or made again, and gets a decorator around it. So the code of an axis contains no mistake, and the code of a mistake contains nothing
//! else.

use crate::mistakes::Mistake;
use crate::mistakes::batches::{Spoil, SpoiltRows};
use crate::mistakes::context::KeysNotReturned;
use crate::mistakes::experts::left_behind;
use crate::mistakes::gradients::{Averaged, KeptUnits, MicroSums, whole_on_each_rank};
use crate::mistakes::tensor::{RegionSpoil, SpoiltRegion, SpoiltVocabulary};
use crate::mistakes::update::{no_masters, skip_alone};
use crate::overlap::wrap;
use crate::rebalance::{MoveExperts, move_experts};
use maypole::Result;
use maypole_trainer::context_parallel::ring::RingAttention;
use maypole_trainer::context_parallel::ulysses::UlyssesAttention;
use maypole_trainer::context_parallel::zigzag::PositionDivision;
use maypole_trainer::data_parallel::sharding::Sharding;
use maypole_trainer::expert_parallel::dispatch::TokenRoutes;
use maypole_trainer::expert_parallel::layer::ExpertLayer;
use maypole_trainer::model::axes::{Attention, Axes};
use maypole_trainer::model::store::Store;
use maypole_trainer::pipeline_parallel::plan::PipelineSchedule;
use maypole_trainer::ranks::group::RankGroup;
use maypole_trainer::ranks::mesh::{MeshAxis, MeshGroups};
use maypole_trainer::tensor::math::{FloatElement, Real};
use maypole_trainer::tensor_parallel::region::TensorParallelRegion;
use maypole_trainer::tensor_parallel::vocab::VocabParallel;
use maypole_trainer::train::parallelism::{ContextExchange, Parallelism};
use maypole_trainer::train::rows::RankRows;
use maypole_trainer::train::stores::StorePlan;
use maypole_trainer::train::trainer::{Parts, Trainer};
use std::rc::Rc;

impl Mistake {
    /// From now on `trainer`, which has done no step and whose weights are drawn by `seed`, makes
    /// this mistake. Where it has no part in which the mistake can be made, nothing changes. All
    /// ranks call it, when all other parts are as they are to be.
    ///
    /// # Errors
    /// As [`Trainer::draw`].
    pub fn plant<T: Real>(self, trainer: &mut Trainer<T>, seed: u64) -> Result<()> {
        if self.is_of_store(&trainer.parallelism, &trainer.groups, &mut trainer.stores) {
            trainer.draw(seed)?;
        }
        self.wrap_store(&mut trainer.parts.store, trainer.groups.copies.world());
        self.spoil_update(&mut trainer.parts);
        self.spoil_rows(trainer);
        self.spoil_pipeline(trainer);
        let Trainer { parallelism: setup, groups, parts, .. } = trainer;
        if groups.tp.world() > 1 {
            self.spoil_tensors(setup, groups, parts.model.config.vocab, &mut parts.model.axes);
        }
        if groups.cp.world() > 1 {
            self.spoil_context(setup, groups, &mut parts.model.axes.attention);
        }
        self.spoil_experts(setup, groups, parts);
        Ok(())
    }

    /// Changes the plan of the store, and returns whether it did.
    fn is_of_store<T: FloatElement>(
        self,
        setup: &Parallelism,
        groups: &MeshGroups,
        stores: &mut StorePlan<T>,
    ) -> bool {
        match self {
            Self::GradientsAlone => stores.copies = RankGroup::single(),
            Self::GradientsOverTensor => stores.copies = groups.tp.clone(),
            Self::NormsNotSummed if setup.sequence => drop(stores.sums.remove(0)),
            Self::RouterSummed if setup.sequence => stores.sums[0].1 = whole_on_each_rank,
            // The sum over ep is the last one.
            Self::ExpertsSummed => stores.sums.iter_mut().rev().take(1).for_each(|sum| {
                sum.1 = |_| true;
            }),
            Self::DenseCountedOften => stores.bring_dense = 1,
            Self::SumsAfterwards => {
                stores.sharding = match stores.sharding {
                    Sharding::Replicated { bucket, .. } => {
                        Sharding::Replicated { bucket, overlap: false }
                    }
                    Sharding::Fsdp { .. } => Sharding::Fsdp { prefetch: false },
                    other => other,
                }
            }
            _ => return false,
        }
        true
    }

    fn wrap_store<T: FloatElement>(self, store: &mut Box<dyn Store<T>>, ranks: usize) {
        let replaced = self == Self::ShardReplaced;
        match self {
            Self::GradientsAveraged => wrap(store, |inner| Box::new(Averaged { inner, ranks })),
            Self::ShardReplaced | Self::SummedEachMicro => {
                wrap(store, |inner| Box::new(MicroSums { inner, replaced, ends: None }));
            }
            Self::UnitsKept => {
                wrap(store, |inner| Box::new(KeptUnits { inner, kept: Vec::new() }));
            }
            _ => {}
        }
    }

    fn spoil_update<T: Real>(self, parts: &mut Parts<T>) {
        let Parts { clip, update, .. } = parts;
        match self {
            Self::NormOfPart => clip.norm.group = RankGroup::single(),
            Self::ClippedScaled => {
                let scale = clip.scale.map_or(1.0, |scale| scale.factor);
                clip.limit = clip.limit.map(|limit| limit / scale);
            }
            Self::SkippedAlone => skip_alone(update),
            Self::NoMasters => no_masters(update),
            _ => {}
        }
    }

    /// Makes the mistake of a run that has just resumed, if this is one.
    pub fn plant_resumed<T: Real>(self, trainer: &mut Trainer<T>) {
        if self == Self::UpdatesForgotten {
            trainer.optimizer_mut().steps = 0;
        }
    }

    fn spoil_rows<T: Real>(self, trainer: &mut Trainer<T>) {
        let Trainer { parallelism: setup, groups, parts, .. } = trainer;
        let equal = RankRows::new(&parts.model.config, setup, groups);
        let replicas = groups.rows().of;
        let ends = groups.pp.rank() + 1 == groups.pp.world() && groups.pp.world() > 1;
        let spoil = match self {
            Self::LocalMean => Spoil::OwnTokens { parts: replicas * groups.cp.world() },
            Self::PlainPositions => Spoil::PlainNumbers { place: groups.cp.rank() },
            Self::MicrosSwapped if ends => Spoil::NextTargets,
            Self::OwnRowsMean => Spoil::OwnRows { replicas },
            Self::RowsCutAlone if groups.world.rank() > 0 => Spoil::Equal(Box::new(equal.clone())),
            _ => return,
        };
        let inner = std::mem::replace(&mut parts.rows, Box::new(equal));
        parts.rows = Box::new(SpoiltRows { inner, spoil });
    }

    fn spoil_pipeline<T: Real>(self, trainer: &mut Trainer<T>) {
        let Trainer { parallelism: setup, parts, .. } = trainer;
        match self {
            Self::PlannedAsGpipe if setup.schedule.chunks() == 1 => {
                let stages = setup.mesh.size(MeshAxis::Pp);
                let plan = PipelineSchedule::GPipe.plan(stages, setup.micros);
                parts.pipeline.plan = plan.expect("GPipe has a plan for any number");
            }
            Self::ActivationsStacked => {
                parts.pipeline.take = |waiting, _| waiting.len().checked_sub(1);
            }
            Self::ActivationsKept => parts.model.recompute = false,
            _ => {}
        }
    }

    fn spoil_tensors<T: Real>(
        self,
        setup: &Parallelism,
        groups: &MeshGroups,
        vocabulary: usize,
        axes: &mut Axes<T>,
    ) {
        let group = groups.tp.clone();
        let right = TensorParallelRegion { group: group.clone(), sequence: setup.sequence };
        let words = VocabParallel { group, vocabulary };
        let spoil = match self {
            Self::NoSumAfterRow => RegionSpoil::Outputs,
            Self::NoSumBeforeColumn => RegionSpoil::InputGradients,
            Self::PositionsOfFirst => RegionSpoil::FirstTokens,
            Self::VocabularyRemainder | Self::VocabularyMaximum => {
                let without_remainder = self == Self::VocabularyRemainder;
                axes.vocabulary = Box::new(SpoiltVocabulary { words, without_remainder });
                return;
            }
            _ => return,
        };
        axes.region = Box::new(SpoiltRegion { right, spoil });
    }

    fn spoil_context<T: Real>(
        self,
        setup: &Parallelism,
        groups: &MeshGroups,
        attention: &mut Box<dyn Attention<T>>,
    ) {
        let (group, division) = (groups.cp.clone(), setup.division);
        *attention = match setup.exchange {
            ContextExchange::Ring => self.ring(RingAttention::new(group, division)),
            ContextExchange::Ulysses => {
                Box::new(self.ulysses(UlyssesAttention { group, division }))
            }
        };
    }

    /// Ring attention that makes this mistake, if it is one of ring attention.
    pub fn ring<T: Real>(self, right: RingAttention) -> Box<dyn Attention<T>> {
        match self {
            Self::NotRescaled => Box::new(RingAttention { rescale: |_| 1.0, ..right }),
            Self::MaskOfFirst => Box::new(RingAttention { positions_of: |_| 0, ..right }),
            Self::NotSentHome => Box::new(KeysNotReturned(right)),
            _ => Box::new(right),
        }
    }

    /// Attention that exchanges positions for heads, and makes this mistake if it is one of it.
    pub fn ulysses(self, right: UlyssesAttention) -> UlyssesAttention {
        if self == Self::HeadsSwapped {
            return UlyssesAttention { division: PositionDivision::Contiguous, ..right };
        }
        right
    }

    fn spoil_experts<T: Real>(
        self,
        setup: &Parallelism,
        groups: &MeshGroups,
        parts: &mut Parts<T>,
    ) {
        let Some(router) = setup.router else { return };
        let routing = Rc::clone(&parts.pipeline.routing);
        let right = ExpertLayer::new(router, (groups.ep.clone(), groups.tp.clone()), routing);
        parts.model.axes.feed_forward = Box::new(self.experts(right));
        if self == Self::LocalBalance {
            // The mean over the groups of this rank.
            let axes = [MeshAxis::Dp, MeshAxis::Ep, MeshAxis::Cp];
            parts.pipeline.group *= setup.mesh.sizes(&axes);
        }
    }

    /// A layer of experts that makes this mistake, if it is one of such layers.
    pub fn experts(self, right: ExpertLayer) -> ExpertLayer {
        match self {
            Self::NotCombined => {
                let routes = |mut routes: TokenRoutes| {
                    routes.returned = (0..routes.returned.len()).collect();
                    routes
                };
                ExpertLayer { routes, ..right }
            }
            Self::GatesForgotten => ExpertLayer { gate_gradient: |_| 0.0, ..right },
            _ => right,
        }
    }

    /// How a rank that may make a mistake moves experts.
    pub fn moves<T: Real>(mistake: Option<Self>) -> MoveExperts<T> {
        match mistake {
            Some(Self::MomentsLeftBehind) => {
                |store, _, groups, moves| move_experts(store, [&mut [], &mut []], groups, moves)
            }
            Some(Self::RouterLeftBehind) => left_behind,
            _ => move_experts,
        }
    }
}
