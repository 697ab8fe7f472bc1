//! The tuner's choice, explained in a table.

mod text;

use super::pairs::{PairGroup, pair_groups};
use super::{
    Candidate, CandidateVerdict, Choice, PlanOverride, Question, ReachingChoice,
    UnsupportedAlgorithm,
};
use crate::algorithms::Algorithm;
use crate::schedule::collective::Collective;
use crate::schedule::hosts::Hosts;
#[cfg(feature = "cuda")]
use crate::topology::transport::TransportKind;
use crate::topology::{DeviceLinks, StreamLinks};

/// Why the tuner chose an algorithm: every candidate with its predicted time, and the algorithms
/// that were refused.
///
/// Printed, it is a table.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Explanation {
    /// The collective of the call.
    pub collective: Collective,
    /// Bytes of the whole.
    pub bytes: usize,
    /// The bytes by which the call was priced: see [`priced_bytes`](super::priced_bytes).
    pub priced_bytes: usize,
    /// How many ranks.
    pub world: usize,
    /// The greatest number of ranks that share a core.
    pub crowding: usize,
    /// Whether there are several boards, and one of them has several ranks.
    pub levels: bool,
    /// The transports between ranks, the number of pairs each joins, and why no better one is used.
    pub pair_groups: Vec<PairGroup>,
    /// The requested algorithm, instead of the tuner's choice.
    pub wanted: Option<PlanOverride>,
    /// The choice, or why there is none.
    pub choice: Result<Choice, UnsupportedAlgorithm>,
    /// The cost of the call if all ranks had registered its buffers, if priced.
    pub registered: Option<ReachingChoice>,
    /// The cost of the call by copies from private memory to private memory, if priced.
    pub copied: Option<ReachingChoice>,
    /// Why ranks cannot copy from one another, if there is a reason.
    pub copies_refused: Option<String>,
    /// The links between the ranks' GPUs, if the buffers are in their memory.
    pub gpus: Option<DevicePrices>,
}

/// The inputs of costs on GPUs, and how far they were measured.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct DevicePrices {
    /// The links between the GPUs.
    pub links: DeviceLinks,
    /// The source of the costs, as a sentence.
    pub source: String,
    /// True if every price was measured.
    pub are_measured: bool,
    /// True if the call has so few bytes that it runs as one exchange of all ranks, by the chosen algorithm.
    pub is_exchange: bool,
}

impl Explanation {
    /// Explains the choice for `question`, for ranks on `hosts` that are joined by `links`.
    pub fn new(
        question: &Question<'_>,
        hosts: &Hosts,
        links: &StreamLinks,
        wanted: Option<PlanOverride>,
        choice: Result<Choice, UnsupportedAlgorithm>,
    ) -> Self {
        Self {
            collective: question.collective,
            bytes: question.bytes,
            priced_bytes: question.bytes,
            world: question.world(),
            crowding: question.crowding,
            levels: question.boards.has_levels(),
            pair_groups: pair_groups(question.boards, hosts, links),
            wanted,
            choice,
            registered: None,
            copied: None,
            copies_refused: None,
            gpus: None,
        }
    }

    /// The candidate that was chosen.
    pub fn chosen(&self) -> Option<&Candidate> {
        let candidates = &self.choice.as_ref().ok()?.candidates;
        candidates.iter().find(|candidate| candidate.verdict == CandidateVerdict::Chosen)
    }

    fn asks_for(&self, algorithm: Algorithm) -> bool {
        self.wanted.is_some_and(|wanted| wanted.algorithm == algorithm)
    }

    /// The algorithms that are not candidates, each with the reason.
    pub fn refused(&self) -> impl Iterator<Item = (Algorithm, String)> {
        let why = |algorithm: Algorithm| match algorithm {
            _ if !algorithm.supports(self.collective) => {
                Some(format!("does not implement {}", self.collective.name()))
            }
            Algorithm::Hierarchical if !self.levels && !self.asks_for(algorithm) => {
                Some("needs several hosts, one of them with several ranks".to_owned())
            }
            _ => None,
        };
        Algorithm::named().filter_map(move |algorithm| Some((algorithm, why(algorithm)?)))
    }
}

#[cfg(feature = "cuda")]
impl Explanation {
    /// As [`new`](Self::new), for ranks on GPUs that reach one another's memory within a board, where `links`
    /// join boards.
    pub(crate) fn on_gpus(
        question: &Question<'_>,
        links: &StreamLinks,
        wanted: Option<PlanOverride>,
        choice: Result<Choice, UnsupportedAlgorithm>,
        prices: DevicePrices,
    ) -> Self {
        let hosts = Hosts::new(question.boards.numbers());
        let mut explanation = Self::new(question, &hosts, links, wanted, choice);
        let groups = explanation.pair_groups.iter_mut();
        for group in groups.filter(|group| group.transport == TransportKind::SharedMemory) {
            group.transport = TransportKind::CudaPeer;
            group.refused.clear();
        }
        explanation.gpus = Some(prices);
        explanation
    }

    /// Adds why bytes of GPUs go by the transports between hosts and processes, or through memory of the
    /// host.
    pub(crate) fn refuse_gpus(&mut self, why: &str) {
        for group in &mut self.pair_groups {
            group.refused.retain(|(better, _)| *better != TransportKind::CudaPeer);
            let refusal = crate::topology::transport::RefusalReason::Other(why.to_owned());
            group.refused.insert(0, (TransportKind::CudaPeer, refusal));
            if group.transport == TransportKind::CudaPeer {
                group.transport = TransportKind::SharedMemory;
            }
        }
    }
}
