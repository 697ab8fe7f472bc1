//! An explanation as text.

use super::{DevicePrices, Explanation};
use crate::schedule::collective::Collective;
use crate::tuner::{Candidate, CandidateVerdict, Choice, ReachingChoice, regrets};
use std::fmt;

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { collective, bytes, world, crowding, .. } = self;
        write!(f, "{}", collective.name())?;
        if let Some(root) = collective.root() {
            write!(f, " at root {root}")?;
        }
        write!(f, " of {bytes} bytes on {world} ranks, ")?;
        match self.gpus.is_some() {
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
        match &self.choice {
            Ok(choice) => self.table(f, choice)?,
            Err(refusal) => writeln!(f, "refused: {refusal}")?,
        }
        for (algorithm, why) in self.refused() {
            writeln!(f, "- {algorithm:<21} {why}")?;
        }
        if let Some(choice) = &self.registered {
            let verdict = if choice.candidates.is_empty() { "not used" } else { "used" };
            let how = format!("{verdict} where all ranks pass it");
            reaching(f, "registered memory", choice, &how, self.never_reached())?;
        }
        match (&self.copied, &self.copies_refused) {
            (Some(_), Some(why)) => {
                writeln!(f, "copies of private memory: never used, because {why}")?;
            }
            (Some(choice), None) => {
                let how = "measured beside slots, among processes that may read one another";
                reaching(f, "copies of private memory", choice, how, self.never_copied())?;
            }
            (None, _) => {}
        }
        Ok(())
    }
}

impl Explanation {
    fn table(&self, f: &mut fmt::Formatter<'_>, choice: &Choice) -> fmt::Result {
        writeln!(
            f,
            "  {:<21} {:>8} {:>8} {:>14} {:>14}",
            "algorithm", "window", "windows", "in a row (us)", "alone (us)"
        )?;
        let able: Vec<Candidate> = choice
            .candidates
            .iter()
            .filter(|one| one.verdict != CandidateVerdict::OtherOrder)
            .copied()
            .collect();
        let regrets = regrets(&able);
        let least =
            able.iter().zip(&regrets).min_by_key(|(_, regret)| **regret).map(|it| it.0.plan);
        for candidate in &choice.candidates {
            let Candidate { plan, windows, predicted_ns, alone_ns, verdict } = candidate;
            let mark = if *verdict == CandidateVerdict::Chosen { '*' } else { ' ' };
            write!(
                f,
                "{mark} {:<21} {:>8} {windows:>8} {:>14} {:>14}",
                plan.algorithm,
                plan.window,
                Microseconds(*predicted_ns),
                Microseconds(*alone_ns)
            )?;
            let is_cheapest = able.iter().all(|other| other.predicted_ns >= *predicted_ns);
            writeln!(f, "{}", self.remark(*verdict, (least == Some(*plan), is_cheapest)))?;
        }
        Ok(())
    }

    /// `is_best`: its worse regret is least. `is_cheapest`: so is its price in a row.
    fn remark(
        &self,
        verdict: CandidateVerdict,
        (is_best, is_cheapest): (bool, bool),
    ) -> &'static str {
        let is_exchange = self.gpus.as_ref().is_some_and(|gpus| gpus.is_exchange);
        match (verdict, self.wanted) {
            (CandidateVerdict::Chosen, None) if is_exchange => {
                "  chosen: one exchange of all ranks"
            }
            (CandidateVerdict::Chosen, None) if !is_best => {
                "  chosen: within a sixth of the best, which counts as equal, and first in this \
                 table"
            }
            (CandidateVerdict::Chosen, None) if !is_cheapest => {
                "  chosen: best where one call and a row of 16 both count"
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
}

/// Whether a call runs by a plan of `choice`, and its price. `never` is the reason if it cannot.
fn reaching(
    f: &mut fmt::Formatter<'_>,
    title: &str,
    choice: &ReachingChoice,
    how: &str,
    never: &str,
) -> fmt::Result {
    let Some(best) = choice.candidates.first().or(choice.best.as_ref()) else {
        return writeln!(f, "{title}: never used, because {never}");
    };
    writeln!(
        f,
        "{title}: {how}: {} in {} us and {} us to ask all ranks, against {} us",
        best.plan.algorithm,
        Microseconds(best.predicted_ns),
        Microseconds(choice.asking_ns),
        Microseconds(choice.staged_ns)
    )
}

/// Nanoseconds, shown as microseconds with three decimals.
struct Microseconds(u64);

impl fmt::Display for Microseconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}.{:03}", self.0 / 1000, self.0 % 1000))
    }
}
