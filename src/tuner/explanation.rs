//! The tuner's choice, explained in a table.

use super::pairs::{PairGroup, pair_groups};
use super::{
    Candidate, CandidateVerdict, Choice, PlanOverride, Question, ReachingChoice,
    UnsupportedAlgorithm,
};
use crate::algorithms::Algorithm;
use crate::schedule::collective::Collective;
use crate::schedule::hosts::Hosts;
use crate::topology::transport::TransportKind;
use crate::topology::{DeviceLinks, StreamLinks};
use std::fmt;

/// Why the tuner chose an algorithm: every candidate with its predicted time, the algorithms that
/// were refused, and the measured time beside the predicted one.
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
    /// The algorithm that was asked for instead of the tuner's choice.
    pub wanted: Option<PlanOverride>,
    /// The choice, or why there is none.
    pub choice: Result<Choice, UnsupportedAlgorithm>,
    /// The measured time, once the call has run with timing on.
    pub measured: Option<MeasuredTime>,
    /// How many times as long bytes through slots take between these ranks as the table of costs says, once
    /// they have measured that. Prices count it.
    pub slot_scale: Option<f64>,
    /// The slots of the table of costs were measured by `maypole tune`, and not built in.
    pub is_tuned: bool,
    /// What the call would cost if all ranks had registered its buffers, if that was priced.
    pub registered: Option<ReachingChoice>,
    /// The measured time of the calls that ran on registered memory.
    pub measured_registered: Option<MeasuredTime>,
    /// What the call would cost by copies from private memory to private memory, if that was priced.
    pub copied: Option<ReachingChoice>,
    /// The measured time of the calls that ran so.
    pub measured_copied: Option<MeasuredTime>,
    /// Why ranks cannot copy from one another, if that is known.
    pub copies_refused: Option<String>,
    /// The links between the ranks' GPUs, if the buffers are in their memory.
    pub gpus: Option<DevicePrices>,
}

/// What prices on GPUs depend on, and how far they were measured.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct DevicePrices {
    /// The links between the GPUs.
    pub links: DeviceLinks,
    /// Where the prices come from, as a sentence.
    pub source: String,
    /// True if every price was measured.
    pub are_measured: bool,
}

/// A tuned table was measured in the state of now if its slots take so many times as long.
const STATE: std::ops::Range<f64> = 0.6..1.7;

/// The measured time of a call.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct MeasuredTime {
    /// How often it ran with timing on.
    pub runs: u64,
    /// Its shortest time on this rank, in nanoseconds.
    pub least_ns: u64,
}

impl MeasuredTime {
    /// Adds one more run.
    pub(crate) fn note(&mut self, nanoseconds: u64) {
        let least = if self.runs == 0 { u64::MAX } else { self.least_ns };
        self.runs += 1;
        self.least_ns = least.min(nanoseconds);
    }

    /// The runs of both together.
    pub(crate) fn merged(self, other: Self) -> Self {
        match (self.runs, other.runs) {
            (0, _) => other,
            (_, 0) => self,
            _ => Self { runs: self.runs + other.runs, least_ns: self.least_ns.min(other.least_ns) },
        }
    }
}

impl Explanation {
    /// Explains the answer to `question`, for ranks on `hosts` that are joined by `links`.
    pub fn new(
        question: &Question<'_>,
        hosts: &Hosts,
        links: &StreamLinks,
        wanted: Option<PlanOverride>,
        choice: Result<Choice, UnsupportedAlgorithm>,
        measured: Option<MeasuredTime>,
    ) -> Self {
        Self {
            collective: question.collective,
            bytes: question.bytes,
            priced_bytes: question.bytes,
            world: question.world(),
            crowding: question.crowding,
            levels: question.has_levels(),
            pair_groups: pair_groups(question.boards, hosts, links),
            wanted,
            choice,
            measured,
            slot_scale: None,
            is_tuned: false,
            registered: None,
            measured_registered: None,
            copied: None,
            measured_copied: None,
            copies_refused: None,
            gpus: None,
        }
    }

    /// The explanation of a call of `bytes` bytes, which was priced as one of the question's length.
    #[must_use]
    pub fn of_bytes(self, bytes: usize) -> Self {
        Self { bytes, ..self }
    }

    /// Adds how many times as long slots take as the table of costs says, which `is_tuned` or built in.
    #[must_use]
    pub(crate) fn with_slots(self, scale: Option<f64>, is_tuned: bool) -> Self {
        Self { slot_scale: scale, is_tuned, ..self }
    }

    /// Adds what the call costs on registered memory, and how long such calls took.
    #[must_use]
    pub fn with_registered(self, choice: ReachingChoice, measured: Option<MeasuredTime>) -> Self {
        Self { registered: Some(choice), measured_registered: measured, ..self }
    }

    /// Adds what the call costs by copies, how long such calls took, and why ranks cannot copy, if
    /// they have found out that they cannot.
    #[must_use]
    pub fn with_copied(
        self,
        choice: ReachingChoice,
        measured: Option<MeasuredTime>,
        refused: Option<&str>,
    ) -> Self {
        let copies_refused = refused.map(str::to_owned);
        Self { copied: Some(choice), measured_copied: measured, copies_refused, ..self }
    }

    /// The candidate that was chosen.
    pub fn chosen(&self) -> Option<&Candidate> {
        self.choice
            .as_ref()
            .ok()?
            .candidates
            .iter()
            .find(|candidate| candidate.verdict == CandidateVerdict::Chosen)
    }

    /// The error of the prediction as a fraction of the measured time: 0.5 if it is 50 % too high,
    /// negative if it is too low.
    pub fn error(&self) -> Option<f64> {
        let measured = self.measured?;
        let chosen = self.chosen()?;
        (measured.least_ns > 0).then(|| chosen.predicted_ns as f64 / measured.least_ns as f64 - 1.0)
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
    /// As [`new`](Self::new), for ranks on GPUs that reach one another's memory.
    pub(crate) fn on_gpus(
        question: &Question<'_>,
        wanted: Option<PlanOverride>,
        choice: Result<Choice, UnsupportedAlgorithm>,
        prices: DevicePrices,
    ) -> Self {
        let hosts = Hosts::new(&vec![0; question.world()]);
        let links = StreamLinks::undecided();
        let mut explanation = Self::new(question, &hosts, &links, wanted, choice, None);
        for group in &mut explanation.pair_groups {
            group.transport = TransportKind::CudaPeer;
            group.refused.clear();
        }
        explanation.gpus = Some(prices);
        explanation
    }

    /// Says why bytes of GPUs go by the transports between hosts and processes.
    pub(crate) fn refuse_gpus(&mut self, why: &str) {
        for group in &mut self.pair_groups {
            group.refused.retain(|(better, _)| *better != TransportKind::CudaPeer);
            let refusal = crate::topology::transport::RefusalReason::Other(why.to_owned());
            group.refused.insert(0, (TransportKind::CudaPeer, refusal));
        }
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { collective, bytes, world, crowding, .. } = self;
        write!(f, "{}", collective.name())?;
        if let Some(root) = collective.root() {
            write!(f, " at root {root}")?;
        }
        write!(f, " of {bytes} bytes on {world} ranks, ")?;
        match self.pair_groups.iter().any(|group| group.transport == TransportKind::CudaPeer) {
            true => writeln!(f, "on GPUs")?,
            false if *crowding < 2 => writeln!(f, "each with a core of its own")?,
            false => writeln!(f, "{crowding} to a core")?,
        }
        if self.priced_bytes != *bytes {
            let priced = self.priced_bytes;
            writeln!(
                f,
                "  chosen and priced as {priced} bytes, one of eight lengths in a doubling"
            )?;
        }
        self.pair_groups.iter().try_for_each(|edges| writeln!(f, "  {edges}"))?;
        if let Some(DevicePrices { links, source, .. }) = &self.gpus {
            writeln!(f, "{links}  prices: {source}")?;
        }
        self.slots(f)?;
        match &self.choice {
            Ok(choice) => self.table(f, choice)?,
            Err(refusal) => writeln!(f, "refused: {refusal}")?,
        }
        for (algorithm, why) in self.refused() {
            writeln!(f, "- {algorithm:<21} {why}")?;
        }
        if let Some(choice) = &self.registered {
            write!(f, "registered memory: ")?;
            let verdict = if choice.candidates.is_empty() { "not used" } else { "used" };
            let how = format!("{verdict} where all ranks pass it");
            reaching(f, choice, &how, || self.never_reached(), self.measured_registered)?;
        }
        match (&self.copied, &self.copies_refused) {
            (Some(_), Some(why)) => {
                writeln!(f, "copies of private memory: never used, because {why}")?;
            }
            (Some(choice), None) => {
                write!(f, "copies of private memory: ")?;
                let verdict = match (choice.candidates.is_empty(), choice.worth_trying()) {
                    (false, _) => "used first, and as long as trials say so,",
                    (true, []) => "not used",
                    (true, _) => "used if trials say so",
                };
                let how = format!("{verdict} among processes that may read one another");
                reaching(f, choice, &how, || self.never_copied(), self.measured_copied)?;
            }
            (None, _) => {}
        }
        self.figures(f)
    }
}

impl Explanation {
    fn slots(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(scale) = self.slot_scale else { return Ok(()) };
        let table = if self.is_tuned { "table of maypole tune" } else { "built-in table" };
        write!(
            f,
            "  slots: a byte takes {scale:.2} times as long here as the {table} says, which prices count"
        )?;
        match self.is_tuned && !STATE.contains(&scale) {
            true => writeln!(f, "; it is of another machine or state, so run maypole tune again"),
            false => writeln!(f),
        }
    }

    fn table(&self, f: &mut fmt::Formatter<'_>, choice: &Choice) -> fmt::Result {
        writeln!(
            f,
            "  {:<21} {:>8} {:>8} {:>14}",
            "algorithm", "window", "windows", "predicted (us)"
        )?;
        for candidate in &choice.candidates {
            let Candidate { plan, windows, predicted_ns, verdict } = candidate;
            let mark = if *verdict == CandidateVerdict::Chosen { '*' } else { ' ' };
            write!(
                f,
                "{mark} {:<21} {:>8} {windows:>8} {:>14}",
                plan.algorithm,
                plan.window,
                Microseconds(*predicted_ns)
            )?;
            let is_cheapest = choice.candidates.iter().all(|other| {
                other.verdict == CandidateVerdict::OtherOrder || other.predicted_ns >= *predicted_ns
            });
            writeln!(f, "{}", self.remark(*verdict, is_cheapest))?;
        }
        Ok(())
    }

    fn remark(&self, verdict: CandidateVerdict, is_cheapest: bool) -> &'static str {
        match (verdict, self.wanted) {
            (CandidateVerdict::Chosen, None) if !is_cheapest => {
                "  chosen: within a sixth of the least, which counts as equal, and first in this \
                 table"
            }
            (CandidateVerdict::Chosen, None) => "  chosen",
            (CandidateVerdict::Chosen, Some(_)) => "  asked for",
            (CandidateVerdict::Slower, _) => "",
            (CandidateVerdict::NotAsked, _) => "  another algorithm was asked for",
            (CandidateVerdict::OtherOrder, _) => {
                "  combines the ranks in another order than the call needs"
            }
        }
    }

    /// Why no plan reaches registered memory.
    fn never_reached(&self) -> &'static str {
        match self.collective {
            Collective::Barrier => "no bytes are moved",
            _ if self.world < 2 => "there is no other rank",
            _ => "not all ranks share one board",
        }
    }

    /// Why no plan copies.
    fn never_copied(&self) -> &'static str {
        let is_reachable = self.registered.as_ref().is_some_and(|choice| choice.best.is_some());
        match is_reachable {
            false => self.never_reached(),
            true if self.collective.reduces() => "elements are combined, and not only moved",
            true => "the call is short",
        }
    }

    fn figures(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Some(measured), Some(error)) = (self.measured, self.error()) else {
            let others = self.measured_registered.or(self.measured_copied);
            let through = if others.is_some() { " through slots" } else { "" };
            return writeln!(f, "not measured{through} yet");
        };
        let runs = measured.runs;
        let way = if error < 0.0 { "low" } else { "high" };
        let percent = (error.abs() * 100.0).round();
        writeln!(
            f,
            "measured: {} us at best of {runs}; predicted {percent} % too {way}",
            Microseconds(measured.least_ns)
        )
    }
}

/// Whether a call runs by a plan of `choice`, at which price, and how long such calls took. `never`
/// is the reason where it cannot.
fn reaching(
    f: &mut fmt::Formatter<'_>,
    choice: &ReachingChoice,
    how: &str,
    never: impl Fn() -> &'static str,
    measured: Option<MeasuredTime>,
) -> fmt::Result {
    let Some(best) = choice.candidates.first().or(choice.best.as_ref()) else {
        return writeln!(f, "never used, because {}", never());
    };
    writeln!(
        f,
        "{how}: {} in {} us and {} us to ask all ranks, against {} us",
        best.plan.algorithm,
        Microseconds(best.predicted_ns),
        Microseconds(choice.asking_ns),
        Microseconds(choice.staged_ns)
    )?;
    match measured {
        Some(MeasuredTime { runs, least_ns }) => {
            writeln!(f, "  measured: {} us at best of {runs}", Microseconds(least_ns))
        }
        None => Ok(()),
    }
}

/// Nanoseconds, shown as microseconds with three decimals.
struct Microseconds(u64);

impl fmt::Display for Microseconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}.{:03}", self.0 / 1000, self.0 % 1000))
    }
}
