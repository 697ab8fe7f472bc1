//! The tuner's choice, explained in a table.

use super::pairs::{PairGroup, pair_groups};
use super::{
    Candidate, CandidateVerdict, Choice, PlanOverride, Question, RegisteredChoice,
    UnsupportedAlgorithm,
};
use crate::algorithms::Algorithm;
use crate::schedule::collective::Collective;
use crate::schedule::hosts::Hosts;
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
    /// What the call would cost if all ranks had registered its buffers, if that was priced.
    pub registered: Option<RegisteredChoice>,
    /// The measured time of the calls that ran on registered memory.
    pub measured_registered: Option<MeasuredTime>,
}

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
    pub(crate) fn and(self, other: Self) -> Self {
        match (self.runs, other.runs) {
            (0, _) => other,
            (_, 0) => self,
            _ => Self { runs: self.runs + other.runs, least_ns: self.least_ns.min(other.least_ns) },
        }
    }
}

impl Explanation {
    /// Explains the answer to `question`, for ranks on `hosts`.
    pub fn new(
        question: &Question<'_>,
        hosts: &Hosts,
        wanted: Option<PlanOverride>,
        choice: Result<Choice, UnsupportedAlgorithm>,
        measured: Option<MeasuredTime>,
    ) -> Self {
        Self {
            collective: question.collective,
            bytes: question.bytes,
            world: question.world(),
            crowding: question.crowding,
            levels: question.has_levels(),
            pair_groups: pair_groups(question.boards, hosts),
            wanted,
            choice,
            measured,
            registered: None,
            measured_registered: None,
        }
    }

    /// Adds what the call costs on registered memory, and how long such calls took.
    #[must_use]
    pub fn with_registered(self, choice: RegisteredChoice, measured: Option<MeasuredTime>) -> Self {
        Self { registered: Some(choice), measured_registered: measured, ..self }
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

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { collective, bytes, world, crowding, .. } = self;
        write!(f, "{}", collective.name())?;
        if let Some(root) = collective.root() {
            write!(f, " at root {root}")?;
        }
        writeln!(f, " of {bytes} bytes on {world} ranks, {}", Crowding(*crowding))?;
        self.pair_groups.iter().try_for_each(|edges| writeln!(f, "  {edges}"))?;
        match &self.choice {
            Ok(choice) => self.table(f, choice)?,
            Err(refusal) => writeln!(f, "refused: {refusal}")?,
        }
        for (algorithm, why) in self.refused() {
            writeln!(f, "- {algorithm:<21} {why}")?;
        }
        if let Some(choice) = &self.registered {
            self.registered_memory(f, choice)?;
        }
        self.figures(f)
    }
}

impl Explanation {
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
            writeln!(f, "{}", self.remark(*verdict))?;
        }
        Ok(())
    }

    fn remark(&self, verdict: CandidateVerdict) -> &'static str {
        match (verdict, self.wanted) {
            (CandidateVerdict::Chosen, None) => "  chosen",
            (CandidateVerdict::Chosen, Some(_)) => "  asked for",
            (CandidateVerdict::Slower, _) => "",
            (CandidateVerdict::NotAsked, _) => "  another algorithm was asked for",
            (CandidateVerdict::OtherOrder, _) => {
                "  combines the ranks in another order than the call needs"
            }
        }
    }

    /// Whether a call whose buffers all ranks have registered runs on that memory, and the price.
    fn registered_memory(
        &self,
        f: &mut fmt::Formatter<'_>,
        choice: &RegisteredChoice,
    ) -> fmt::Result {
        write!(f, "registered memory: ")?;
        let (Some(best), asking) = (choice.best, Microseconds(choice.asking_ns)) else {
            let why = match self.collective {
                Collective::Barrier => "no bytes are moved",
                _ if self.world < 2 => "there is no other rank",
                _ => "not all ranks share one board",
            };
            return writeln!(f, "never used, because {why}");
        };
        let best = choice.candidates.first().unwrap_or(&best);
        let (algorithm, price) = (best.plan.algorithm, Microseconds(best.predicted_ns));
        let private = Microseconds(choice.private_ns);
        let verdict = if choice.candidates.is_empty() { "not used" } else { "used" };
        writeln!(
            f,
            "{verdict} where all ranks pass it: {algorithm} in {price} us and {asking} us to ask \
             all ranks, against {private} us"
        )?;
        match self.measured_registered {
            Some(MeasuredTime { runs, least_ns }) => {
                writeln!(f, "  measured: {} us at best of {runs}", Microseconds(least_ns))
            }
            None => Ok(()),
        }
    }

    fn figures(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Some(measured), Some(error)) = (self.measured, self.error()) else {
            return writeln!(f, "not measured yet");
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

struct Crowding(usize);

impl fmt::Display for Crowding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 | 1 => f.write_str("each with a core of its own"),
            many => write!(f, "{many} to a core"),
        }
    }
}

/// Nanoseconds, shown as microseconds with three decimals.
struct Microseconds(u64);

impl fmt::Display for Microseconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}.{:03}", self.0 / 1000, self.0 % 1000))
    }
}
