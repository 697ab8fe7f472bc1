//! The shares of a rank's time by activity, which sum to 100 %.
//!
//! Spans overlap: a wait lies within a forward pass, or within the writing of a checkpoint. So a
//! share is not a difference of sums. Every moment of a period belongs to exactly one activity: to
//! the most specific one that is under way, or to "other" if none is. So the parts of a period are
//! never negative, and they add up to the period exactly, for any spans.
//!
//! ```text
//! spans    forward |------------------|      saving |---------|
//!          wait          |----|              wait      |----|
//! shares   forward |-----|    |-------|      saving |---------|    other: the rest
//!          wait          |----|
//! ```

use maypole_trainer::ranks::timeline::{RankActivity, TimeSpan, Timeline};
use std::fmt;
use std::ops::Range;
use std::time::Duration;

/// The activities, the most specific first. A moment with several activities belongs to the first
/// of them: a wait within the writing of a checkpoint counts as saving. Collectives that run [while
/// a rank computes](RankActivity::Communication) take none of its time.
const ORDER: [RankActivity; 8] = [
    RankActivity::Saving,
    RankActivity::Validation,
    RankActivity::Moving,
    RankActivity::Bubble,
    RankActivity::Wait,
    RankActivity::Update,
    RankActivity::Backward,
    RankActivity::Forward,
];

/// The index of the time that belongs to no activity.
const OTHER: usize = ORDER.len();

/// The time of one rank by activity.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct TimeShares {
    /// The time of each activity in the order of [`ORDER`], then the other time.
    parts: [Duration; OTHER + 1],
}

impl TimeShares {
    /// The number of elements of [`to_nanos`](Self::to_nanos).
    pub const NUMBERS: usize = OTHER + 1;

    /// Divides `period` among activities. Only the time of spans within `period` counts.
    pub fn of(spans: &[TimeSpan], period: Range<Duration>) -> Self {
        let mut shares = Self::default();
        let mut active = [0u32; OTHER];
        let mut from = period.start;
        for (time, place, begins) in edges(spans, &period) {
            shares.parts[most_specific(&active)] += time - from;
            from = time;
            if begins {
                active[place] += 1;
            } else {
                active[place] -= 1;
            }
        }
        shares.parts[most_specific(&active)] += period.end.saturating_sub(from);
        shares
    }

    /// Adds the parts of another period.
    pub fn add(&mut self, other: &Self) {
        self.parts.iter_mut().zip(other.parts).for_each(|(part, more)| *part += more);
    }

    /// Returns the sum of all parts.
    pub fn total(&self) -> Duration {
        self.parts.iter().sum()
    }

    /// Returns the time of one activity, zero for [`RankActivity::Communication`].
    pub fn part(&self, kind: RankActivity) -> Duration {
        ORDER.iter().position(|it| *it == kind).map_or(Duration::ZERO, |place| self.parts[place])
    }

    /// Returns the parts in nanoseconds, for a message.
    pub fn to_nanos(&self) -> [u64; Self::NUMBERS] {
        self.parts.map(|part| u64::try_from(part.as_nanos()).unwrap_or(u64::MAX))
    }

    /// Reads the numbers of [`to_nanos`](Self::to_nanos); missing numbers are zero.
    pub fn from_nanos(nanos: &[u64]) -> Self {
        let mut shares = Self::default();
        let times = nanos.iter().map(|nanos| Duration::from_nanos(*nanos));
        shares.parts.iter_mut().zip(times).for_each(|(part, time)| *part = time);
        shares
    }

    /// Returns the shares in whole per cent, as a run prints them. They sum to 100: parts are
    /// rounded down, and those that lost most get one more. Computing and exposed communication are
    /// always among them, other kinds only if they took time. If no time passed, all of it is
    /// other.
    pub fn percentages(&self) -> Vec<(ShareKind, u32)> {
        let times: Vec<(ShareKind, u128)> = ShareKind::ALL
            .map(|kind| (kind, self.time_of(kind).as_nanos()))
            .into_iter()
            .filter(|(kind, time)| kind.always() || *time > 0)
            .collect();
        let total = times.iter().map(|(_, time)| time).sum::<u128>();
        if total == 0 {
            return vec![(ShareKind::Other, 100)];
        }
        let mut shares: Vec<(ShareKind, u32)> =
            times.iter().map(|(kind, time)| (*kind, (100 * time / total) as u32)).collect();
        let missing = 100 - shares.iter().map(|(_, share)| share).sum::<u32>();
        let mut lost: Vec<usize> = (0..times.len()).collect();
        lost.sort_by_key(|nth| std::cmp::Reverse(100 * times[*nth].1 % total));
        lost.iter().take(missing as usize).for_each(|nth| shares[*nth].1 += 1);
        shares
    }

    fn time_of(&self, kind: ShareKind) -> Duration {
        match kind {
            ShareKind::Compute => {
                let passes = [RankActivity::Forward, RankActivity::Backward, RankActivity::Update];
                passes.map(|pass| self.part(pass)).iter().sum()
            }
            ShareKind::Activity(activity) => self.part(activity),
            ShareKind::Other => self.parts[OTHER],
        }
    }
}

/// Returns the index of the most specific activity that is under way.
fn most_specific(active: &[u32; OTHER]) -> usize {
    active.iter().position(|spans| *spans > 0).unwrap_or(OTHER)
}

/// Returns the times at which activities begin and end within `period`, in order: (time, index in
/// [`ORDER`], whether it begins).
fn edges(spans: &[TimeSpan], period: &Range<Duration>) -> Vec<(Duration, usize, bool)> {
    let mut edges = Vec::new();
    for span in spans {
        let Some(place) = ORDER.iter().position(|kind| *kind == span.kind) else { continue };
        let start = span.start.max(period.start);
        let end = span.end.min(period.end);
        if start < end {
            edges.push((start, place, true));
            edges.push((end, place, false));
        }
    }
    edges.sort_by_key(|(time, ..)| *time);
    edges
}

/// A share that a run prints.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ShareKind {
    /// The forward pass, the backward pass and the optimizer.
    Compute,
    /// One activity.
    Activity(RankActivity),
    /// Time without a span: making batches, writing lines, measuring.
    Other,
}

impl ShareKind {
    const ALL: [Self; 7] = [
        Self::Compute,
        Self::Activity(RankActivity::Wait),
        Self::Activity(RankActivity::Bubble),
        Self::Activity(RankActivity::Moving),
        Self::Activity(RankActivity::Saving),
        Self::Activity(RankActivity::Validation),
        Self::Other,
    ];

    fn always(self) -> bool {
        matches!(self, Self::Compute | Self::Activity(RankActivity::Wait))
    }
}

impl fmt::Display for ShareKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Compute => "compute",
            Self::Activity(RankActivity::Wait) => "exposed communication",
            Self::Activity(RankActivity::Bubble) => "bubble",
            Self::Activity(RankActivity::Moving) => "moving experts",
            Self::Activity(RankActivity::Saving) => "saving",
            Self::Activity(RankActivity::Validation) => "validation",
            Self::Activity(_) | Self::Other => "other",
        })
    }
}

/// The clock of a run on one rank. It divides the run into periods without a gap between them.
#[derive(Clone, Debug)]
pub struct RunClock {
    timeline: Timeline,
    /// The end of the last period.
    until: Duration,
    run: TimeShares,
    lap: TimeShares,
}

impl RunClock {
    /// A clock that starts now. Spans that `timeline` has noted before are dropped.
    pub fn start(timeline: &Timeline) -> Self {
        timeline.take();
        Self {
            timeline: timeline.clone(),
            until: timeline.now(),
            run: TimeShares::default(),
            lap: TimeShares::default(),
        }
    }

    /// Ends the present period, whose spans are `spans`, and begins the next period.
    pub fn end_period(&mut self, spans: &[TimeSpan]) {
        let now = self.timeline.now();
        let shares = TimeShares::of(spans, self.until..now);
        self.until = now;
        self.run.add(&shares);
        self.lap.add(&shares);
    }

    /// Runs `work` in a period of its own, all of whose time is `kind` or more specific.
    pub fn record<R>(&mut self, kind: RankActivity, work: impl FnOnce() -> R) -> R {
        self.end_period(&self.timeline.take());
        let result = self.timeline.record(kind, work);
        self.end_period(&self.timeline.take());
        result
    }

    /// Returns the shares of all periods so far.
    pub fn run(&self) -> TimeShares {
        self.run
    }

    /// Returns the shares of the periods since the last call of this method.
    pub fn lap(&mut self) -> TimeShares {
        std::mem::take(&mut self.lap)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn span(kind: RankActivity, start: u64, end: u64) -> TimeSpan {
        let [start, end] = [start, end].map(Duration::from_millis);
        TimeSpan { kind, start, end }
    }

    fn seconds(shares: &TimeShares, kinds: [RankActivity; 4]) -> [u64; 4] {
        kinds.map(|kind| shares.part(kind).as_millis() as u64)
    }

    #[test]
    fn a_wait_within_a_pass_and_within_a_save_is_counted_once() {
        use RankActivity::{Communication, Forward, Saving, Update, Wait};
        let spans = [
            span(Communication, 1, 7),
            span(Wait, 2, 3),
            span(Forward, 0, 5),
            span(Wait, 6, 7),
            span(Update, 7, 9),
            // Two concurrent waits, both within a save.
            span(Saving, 10, 20),
            span(Wait, 11, 15),
            span(Wait, 12, 19),
            // Only the part within the period counts.
            span(Wait, 24, 99),
        ];
        let shares = TimeShares::of(&spans, Duration::from_millis(1)..Duration::from_millis(25));
        assert_eq!(seconds(&shares, [Forward, Wait, Update, Saving]), [3, 3, 2, 10]);
        assert_eq!(shares.part(Communication), Duration::ZERO);
        assert_eq!(shares.total(), Duration::from_millis(24));
        let shown: Vec<String> =
            shares.percentages().iter().map(|(kind, share)| format!("{kind} {share}")).collect();
        assert_eq!(shown, ["compute 21", "exposed communication 12", "saving 42", "other 25"]);
    }

    #[test]
    fn a_clock_leaves_no_gap_between_periods() {
        let timeline = Timeline::default();
        let mut clock = RunClock::start(&timeline);
        let before = clock.until;
        clock.record(RankActivity::Saving, || timeline.record(RankActivity::Wait, || ()));
        clock.end_period(&[]);
        clock.record(RankActivity::Validation, || ());
        assert_eq!(clock.run().total(), clock.until - before);
        assert_eq!(clock.lap(), clock.run());
        assert_eq!(clock.lap(), TimeShares::default());
        assert_eq!(clock.run().part(RankActivity::Wait), Duration::ZERO);
    }

    fn any_span() -> impl Strategy<Value = TimeSpan> {
        // Ends may lie before starts, and spans outside of the period.
        (0..=OTHER, 0u64..2_000, 0u64..2_000).prop_map(|(kind, start, end)| {
            let [start, end] = [start, end].map(Duration::from_micros);
            let kind = ORDER.get(kind).copied().unwrap_or(RankActivity::Communication);
            TimeSpan { kind, start, end }
        })
    }

    proptest! {
        #[test]
        fn shares_of_any_spans_sum_to_the_whole_and_to_100(
            spans in proptest::collection::vec(any_span(), 0..60),
            start in 0u64..1_500,
            length in 0u64..1_500,
        ) {
            let period = Duration::from_micros(start)..Duration::from_micros(start + length);
            let shares = TimeShares::of(&spans, period.clone());
            prop_assert_eq!(shares.total(), period.end - period.start);
            let percentages = shares.percentages();
            prop_assert_eq!(percentages.iter().map(|(_, share)| share).sum::<u32>(), 100);
            prop_assert_eq!(TimeShares::from_nanos(&shares.to_nanos()), shares);
            // Each microsecond belongs to the first activity of `ORDER` that is under way.
            let mut expected = [0u64; OTHER + 1];
            for moment in start..start + length {
                let now = Duration::from_micros(moment);
                let active = |kind: &RankActivity| {
                    spans.iter().any(|it| it.kind == *kind && it.start <= now && now < it.end)
                };
                expected[ORDER.iter().position(active).unwrap_or(OTHER)] += 1_000;
            }
            prop_assert_eq!(shares.to_nanos(), expected);
        }
    }
}
