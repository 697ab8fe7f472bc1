//! Adds a planted mistake to a rank: the rank's parts pass through here while it is assembled.
//!
//! What it does: each method takes the right part and returns the part itself, or a decorator
//! around it that makes the mistake. Without a mistake every method returns its argument unchanged.
//! So the code of an axis contains no mistake, and the code of a mistake contains nothing else.

use crate::context_parallel::ring::{ExactRing, RingAttention};
use crate::context_parallel::ulysses::UlyssesAttention;
use crate::context_parallel::zigzag::PositionDivision;
use crate::data_parallel::partial::SummedEntries;
use crate::data_parallel::sharding::Sharding;
use crate::expert_parallel::layer::{ExactExperts, ExpertLayer};
use crate::expert_parallel::rebalance::{ExpertMove, move_experts};
use crate::faults::PlantedFault;
use crate::faults::batches;
use crate::faults::context::{FirstMask, KeysNotReturned, NoRescaling};
use crate::faults::experts::{ArrivalOrder, NoGateGradient, left_behind};
use crate::faults::gradients::{Averaged, KeptUnits, whole_on_each_rank};
use crate::faults::pipeline;
use crate::faults::tensor::{FirstTokens, ForgottenSum, OwnMaximum, RegionSum, WithoutRemainder};
use crate::model::axes::{Attention, FeedForward};
use crate::model::batch::TokenBatch;
use crate::model::store::Store;
use crate::pipeline_parallel::execute::TakeActivations;
use crate::pipeline_parallel::plan::PipelineSchedule;
use crate::ranks::group::RankGroup;
use crate::ranks::mesh::MeshGroups;
use crate::tensor::math::{FloatElement, Real};
use crate::tensor_parallel::region::{ParallelRegion, TensorParallelRegion};
use crate::tensor_parallel::vocab::{VocabParallel, Vocabulary};
use maypole::Result;

/// The mistake that a rank makes, if it makes one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Assembly(pub Option<PlantedFault>);

impl Assembly {
    fn makes(self, fault: PlantedFault) -> bool {
        self.0 == Some(fault)
    }

    /// The entry to and the exit from layers that are divided over `tp`.
    pub fn region<T: Real>(self, right: TensorParallelRegion) -> Box<dyn ParallelRegion<T>> {
        match self.0 {
            Some(PlantedFault::NoSumAfterRow) => {
                Box::new(ForgottenSum { right, of: RegionSum::Outputs })
            }
            Some(PlantedFault::NoSumBeforeColumn) => {
                Box::new(ForgottenSum { right, of: RegionSum::InputGradients })
            }
            Some(PlantedFault::PositionsOfFirst) => Box::new(FirstTokens(right)),
            _ => Box::new(right),
        }
    }

    /// The softmax over a vocabulary that is divided over `tp`.
    pub fn vocabulary<T: Real>(self, right: VocabParallel) -> Box<dyn Vocabulary<T>> {
        match self.0 {
            Some(PlantedFault::VocabularyRemainder) => Box::new(WithoutRemainder(right)),
            Some(PlantedFault::VocabularyMaximum) => Box::new(OwnMaximum(right)),
            _ => Box::new(right),
        }
    }

    /// Ring attention over `cp`.
    pub fn ring<T: Real>(self, right: RingAttention) -> Box<dyn Attention<T>> {
        let RingAttention { group, division, rules: ExactRing } = right;
        match self.0 {
            Some(PlantedFault::NotRescaled) => {
                Box::new(RingAttention { group, division, rules: NoRescaling })
            }
            Some(PlantedFault::MaskOfFirst) => {
                Box::new(RingAttention { group, division, rules: FirstMask })
            }
            Some(PlantedFault::NotSentHome) => {
                Box::new(KeysNotReturned(RingAttention { group, division, rules: ExactRing }))
            }
            _ => Box::new(RingAttention { group, division, rules: ExactRing }),
        }
    }

    /// Attention over `cp` that exchanges positions for heads.
    pub fn ulysses<T: Real>(self, right: UlyssesAttention) -> Box<dyn Attention<T>> {
        if self.makes(PlantedFault::HeadsSwapped) {
            return Box::new(UlyssesAttention { division: PositionDivision::Contiguous, ..right });
        }
        Box::new(right)
    }

    /// A layer of experts over `ep`.
    pub fn experts<T: Real>(self, right: ExpertLayer) -> Box<dyn FeedForward<T>> {
        let ExpertLayer { router, ep, tp, routing, rules: ExactExperts } = right;
        match self.0 {
            Some(PlantedFault::NotCombined) => {
                Box::new(ExpertLayer { router, ep, tp, routing, rules: ArrivalOrder })
            }
            Some(PlantedFault::GatesForgotten) => {
                Box::new(ExpertLayer { router, ep, tp, routing, rules: NoGateGradient })
            }
            _ => Box::new(ExpertLayer { router, ep, tp, routing, rules: ExactExperts }),
        }
    }

    /// The sum over `tp` of the gradients of norms, biases and positions, which sequence
    /// parallelism needs.
    pub fn sum_of_tokens(
        self,
        right: (RankGroup, SummedEntries),
    ) -> Option<(RankGroup, SummedEntries)> {
        match self.0 {
            Some(PlantedFault::NormsNotSummed) => None,
            Some(PlantedFault::RouterSummed) => Some((right.0, whole_on_each_rank)),
            _ => Some(right),
        }
    }

    /// The number of ranks of `ep`, of which there are `ep`, that bring each dense parameter to the
    /// norm of the gradient.
    pub fn copies_of_dense(self, ep: usize) -> usize {
        if self.makes(PlantedFault::DenseCountedOften) { 1 } else { ep }
    }

    /// What ranks that have the same parameters divide among them.
    pub fn sharding(self, right: Sharding) -> Sharding {
        match right {
            _ if !self.makes(PlantedFault::SumsAfterwards) => right,
            Sharding::Replicated { bucket, .. } => Sharding::Replicated { bucket, overlap: false },
            Sharding::Fsdp { .. } => Sharding::Fsdp { prefetch: false },
            other => other,
        }
    }

    /// The order of the passes of a pipeline.
    pub fn schedule(self, right: PipelineSchedule) -> PipelineSchedule {
        let one_stage = right.chunks() == 1;
        let wrong = one_stage && self.makes(PlantedFault::PlannedAsGpipe);
        if wrong { PipelineSchedule::GPipe } else { right }
    }

    /// Whether blocks keep only their input and compute the rest again.
    pub fn recompute(self, right: bool) -> bool {
        right && !self.makes(PlantedFault::ActivationsKept)
    }

    /// The sum over `ep` of the gradients of dense parameters.
    pub fn sum_over_experts(self, right: (RankGroup, SummedEntries)) -> (RankGroup, SummedEntries) {
        if self.makes(PlantedFault::ExpertsSummed) { (right.0, |_| true) } else { right }
    }

    /// The ranks over which gradients are summed by data parallelism.
    pub fn copies(self, groups: &MeshGroups) -> RankGroup {
        match self.0 {
            Some(PlantedFault::GradientsAlone) => RankGroup::single(),
            Some(PlantedFault::GradientsOverTensor) => groups.tp.clone(),
            _ => groups.copies.clone(),
        }
    }

    /// The store of weights and gradients; `copies` ranks have the same parameters.
    pub fn store<T: FloatElement>(
        self,
        right: Box<dyn Store<T>>,
        copies: usize,
    ) -> Box<dyn Store<T>> {
        match self.0 {
            Some(PlantedFault::GradientsAveraged) => {
                Box::new(Averaged { inner: right, ranks: copies })
            }
            Some(PlantedFault::UnitsKept) => Box::new(KeptUnits { inner: right, kept: Vec::new() }),
            _ => right,
        }
    }

    /// The micro-batches of a step. Their rows and positions are one of `parts` parts of the whole
    /// batch, `place` is this rank's place along `cp`, and `last_of_many` is true on the last stage
    /// of a pipeline.
    pub fn batches(self, all: &mut [TokenBatch], parts: usize, place: usize, last_of_many: bool) {
        match self.0 {
            Some(PlantedFault::LocalMean) => batches::weigh_by_own_tokens(all, parts),
            Some(PlantedFault::PlainPositions) => batches::number_plainly(all, place),
            Some(PlantedFault::MicrosSwapped) if last_of_many => batches::swap_targets(all),
            _ => {}
        }
    }

    /// The weights of tokens where replicas have unequal rows; `even` is the rows of a replica if
    /// all had equal numbers.
    pub fn weights(self, all: &mut [TokenBatch], even: f64) {
        if self.makes(PlantedFault::OwnRowsMean) {
            batches::weigh_by_own_rows(all, even);
        }
    }

    /// The division of rows that rank `rank` adopts.
    pub fn rows(self, rank: usize, before: &[usize], right: Vec<usize>) -> Vec<usize> {
        if rank > 0 && self.makes(PlantedFault::RowsCutAlone) { before.to_vec() } else { right }
    }

    /// The number of routing groups that the auxiliary loss is the mean of: `all` of the batch,
    /// of which a rank has one of `parts` parts.
    pub fn routing_groups(self, all: usize, parts: usize) -> usize {
        if self.makes(PlantedFault::LocalBalance) { all / parts } else { all }
    }

    /// Chooses the stored activations for the backward pass of a micro-batch.
    pub fn activations(self, right: TakeActivations) -> TakeActivations {
        if self.makes(PlantedFault::ActivationsStacked) { pipeline::last } else { right }
    }

    /// Moves experts between ranks: see [`move_experts`].
    ///
    /// # Errors
    /// As the collectives in it.
    pub fn move_experts<T: Real>(
        self,
        store: &mut dyn Store<T>,
        averages: [&mut [T]; 2],
        groups: &MeshGroups,
        moves: &[ExpertMove],
    ) -> Result<()> {
        match self.0 {
            Some(PlantedFault::MomentsLeftBehind) => {
                move_experts(store, [&mut [], &mut []], groups, moves)
            }
            Some(PlantedFault::RouterLeftBehind) => left_behind(store, averages, groups, moves),
            _ => move_experts(store, averages, groups, moves),
        }
    }
}
