//! Processes that are started for failed ranks, while the other ranks continue.

use std::time::{Duration, Instant};

/// How long a failure waits, while no rank has joined, for a report that one has. The failure of a
/// rank right after joining may arrive before that report.
const JOINING_NEWS: Duration = Duration::from_secs(1);

/// A rank in whose place a process is to be started.
#[derive(Debug)]
pub(super) struct LostRank {
    pub(super) rank: usize,
    /// How it was lost, as a sentence.
    pub(super) how: String,
    since: Instant,
    /// The process does not count among those that may be started.
    is_free: bool,
}

/// The places of failed ranks.
#[derive(Debug)]
pub(super) struct Replacements {
    /// How many processes may be started; `None` if the others end with a rank that fails.
    most: Option<u32>,
    count: u32,
    waiting: Vec<LostRank>,
    /// A rank has joined the others, so that a process that comes now has to be admitted. Before that
    /// it is a rank like the others, which wait for it.
    has_joined: bool,
}

impl Replacements {
    /// `hears`: the launcher receives reports of joined ranks.
    pub(super) fn new(most: Option<u32>, hears: bool) -> Self {
        Self { most, count: 0, waiting: Vec::new(), has_joined: !hears }
    }

    /// True if the other ranks continue after a failure.
    pub(super) fn are_made(&self) -> bool {
        self.most.is_some()
    }

    /// A rank has joined the others.
    pub(super) fn joined(&mut self) {
        self.has_joined = true;
    }

    /// True if a process that is started now has to be admitted.
    pub(super) fn are_newcomers(&self) -> bool {
        self.has_joined
    }

    /// Notes that a process will replace `rank`, lost for the reason `how`. Returns false at the
    /// limit, to which `is_free` ones do not count.
    pub(super) fn ask(&mut self, rank: usize, how: String, is_free: bool) -> bool {
        let counting = self.waiting.iter().filter(|lost| !lost.is_free).count();
        let used = self.count as usize + counting;
        if !is_free && self.most.is_none_or(|most| used >= most as usize) {
            return false;
        }
        self.waiting.push(LostRank { rank, how, since: Instant::now(), is_free });
        true
    }

    /// True if a process is to be started.
    pub(super) fn are_due(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// When the next process is to be started.
    pub(super) fn due(&self) -> Option<Instant> {
        let pause = if self.has_joined { Duration::ZERO } else { JOINING_NEWS };
        self.waiting.iter().map(|lost| lost.since + pause).min()
    }

    /// Takes the next rank in whose place a process is to be started now, and which of those that may
    /// be started it is: `1 of 3`.
    pub(super) fn take(&mut self) -> Option<(LostRank, String)> {
        self.due().filter(|due| *due <= Instant::now())?;
        let lost = self.waiting.remove(0);
        self.count += u32::from(!lost.is_free);
        let most = self.most.unwrap_or_default();
        let which = match lost.is_free {
            true => "which does not count".to_owned(),
            false => format!("{} of {most}", self.count),
        };
        Some((lost, which))
    }

    /// Takes the ranks in whose place no process is to be started any more.
    pub(super) fn give_up(&mut self) -> Vec<LostRank> {
        std::mem::take(&mut self.waiting)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_are_started_as_often_as_they_may_be() {
        let mut places = Replacements::new(Some(2), false);
        assert!(places.ask(1, "one".to_owned(), false));
        assert!(places.ask(2, "two".to_owned(), false));
        assert!(!places.ask(3, "three".to_owned(), false));
        assert!(places.ask(4, "four".to_owned(), true));
        let started: Vec<_> = std::iter::from_fn(|| places.take()).collect();
        let started: Vec<_> = started.iter().map(|(lost, which)| (lost.rank, &**which)).collect();
        assert_eq!(started, [(1, "1 of 2"), (2, "2 of 2"), (4, "which does not count")]);
        assert!(!places.are_due());
    }

    #[test]
    fn a_failure_before_the_ranks_have_joined_waits_for_news() {
        let mut places = Replacements::new(Some(1), true);
        assert!(places.ask(1, "one".to_owned(), false));
        assert!(places.take().is_none() && !places.are_newcomers());
        places.joined();
        assert!(places.take().is_some() && places.are_newcomers());
    }
}
