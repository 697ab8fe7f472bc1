//! The time that a rank of a pipeline waited for other stages in one step: the bubble, apart from
//! communication.
//!
//! What it does: a stage waits before its first pass, between passes, and after its last pass until
//! every stage is through (the *flush*). That last wait hides in whichever collective comes next,
//! such as the sum of the losses of all ranks, and would pass for slow communication. So the
//! passes are asked for, and a rank's time from its last pass to the flush is bubble too, but for
//! its update and for a sum of gradients that is under way meanwhile.
//!
//! ```text
//!   rank 0   F0 F1 .  .  B0 B0 B1 B1 | update        between the rank's passes: bubble
//!   rank 1   .  F0 F1 B0 B0 B1 B1 .  | update        before the first and after the last, to the flush: bubble
//!                                  flush             after it: communication that nothing hides
//! ```
//!
//! What is sharded, which collective runs where, what it costs: nothing; the trace of all stages is
//! [`Worker::gather_trace`](crate::train::worker::Worker::gather_trace)'s.

use crate::pipeline_parallel::plan::PassKind;
use crate::pipeline_parallel::trace::{self, PipelineTrace};
use crate::ranks::timeline::{RankActivity, TimeSpan};
use std::time::Duration;

/// The spans of a step: those that were `noted`, this rank's `own` passes, which are counted from
/// `start` of the timeline, and its bubble. `pipeline` is the trace of all stages, by any clock
/// whose seconds are as long. What is bubble is no [`RankActivity::Wait`] any more.
pub fn account(
    noted: Vec<TimeSpan>,
    own: &PipelineTrace,
    pipeline: &PipelineTrace,
    start: Duration,
) -> Vec<TimeSpan> {
    let passes: Vec<TimeSpan> = own.spans.iter().map(|pass| span(pass, start)).collect();
    let bubble = match flush(own, pipeline) {
        Some(flush) if own.ranks > 1 => waited(&noted, &passes, start, start + flush),
        _ => Vec::new(),
    };
    let (waits, others): (Vec<TimeSpan>, Vec<TimeSpan>) =
        noted.into_iter().partition(|span| span.kind == RankActivity::Wait);
    let waits = bubble.iter().fold(waits, without);
    [others, waits, passes, bubble].concat()
}

fn span(pass: &trace::PassSpan, start: Duration) -> TimeSpan {
    let kind = if pass.op.pass == PassKind::Forward {
        RankActivity::Forward
    } else {
        RankActivity::Backward
    };
    let [from, to] = [pass.start, pass.end].map(Duration::from_secs_f64);
    TimeSpan { kind, start: start + from, end: start + to }
}

/// When the last pass of any stage ended, by this rank's clock.
fn flush(own: &PipelineTrace, pipeline: &PipelineTrace) -> Option<Duration> {
    let first = own.spans.first()?;
    let same = pipeline.spans.iter().find(|span| (span.rank, span.op) == (first.rank, first.op))?;
    Some(Duration::from_secs_f64((pipeline.length() + first.start - same.start).max(0.0)))
}

/// Holes from the `start` of the step to the first pass and between passes, and what is idle from
/// the last to the `flush`.
fn waited(
    noted: &[TimeSpan],
    passes: &[TimeSpan],
    start: Duration,
    flush: Duration,
) -> Vec<TimeSpan> {
    let starts = passes.iter().map(|pass| pass.start).chain([flush]);
    let ends = [start].into_iter().chain(passes.iter().map(|pass| pass.end));
    let holes =
        ends.zip(starts).map(|(start, end)| TimeSpan { kind: RankActivity::Bubble, start, end });
    let holes: Vec<TimeSpan> = holes.filter(|hole| hole.start < hole.end).collect();
    // Sums that run beside passes are hidden: only after the last may they be what is waited for.
    let last = passes.last().map_or(start, |pass| pass.end);
    let busy = noted
        .iter()
        .filter(|span| matches!(span.kind, RankActivity::Update | RankActivity::Communication));
    let late = busy
        .filter(|span| span.end > last)
        .map(|span| TimeSpan { start: span.start.max(last), ..*span });
    late.fold(holes, |holes, busy| without(holes, &busy))
}

/// The parts of `spans` that lie outside `hole`.
fn without(spans: Vec<TimeSpan>, hole: &TimeSpan) -> Vec<TimeSpan> {
    let sides = |span: TimeSpan| {
        let end = span.end.min(hole.start);
        let start = span.start.max(hole.end);
        [TimeSpan { end, ..span }, TimeSpan { start, ..span }]
    };
    spans.into_iter().flat_map(sides).filter(|span| span.start < span.end).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipeline_parallel::plan::PipelineSchedule;
    use crate::pipeline_parallel::trace::{equal_stages, simulate};
    use crate::ranks::shares::TimeShares;

    fn noted(kind: RankActivity, start: f64, end: f64) -> TimeSpan {
        let [start, end] = [start, end].map(Duration::from_secs_f64);
        TimeSpan { kind, start, end }
    }

    /// The trace of all and of each rank, whose steps began `late` seconds after that of the first.
    fn traces(
        schedule: PipelineSchedule,
        micros: usize,
        late: [f64; 2],
    ) -> (PipelineTrace, [PipelineTrace; 2]) {
        let plan = schedule.plan(2, micros).unwrap();
        let all = simulate(&plan, equal_stages(&plan)).unwrap();
        let own = |rank: usize| {
            let mine = all.spans.iter().filter(|span| span.rank == rank);
            let by = |span: &trace::PassSpan| trace::PassSpan {
                start: span.start - late[rank],
                end: span.end - late[rank],
                ..*span
            };
            PipelineTrace { spans: mine.map(by).collect(), ..all }
        };
        let own = [own(0), own(1)];
        (all, own)
    }

    /// Seconds of a forward pass, a backward pass, an update, a wait and a bubble, each moment in
    /// one of them; and of communication beside them.
    fn seconds(spans: &[TimeSpan]) -> [f64; 6] {
        let shares = TimeShares::of(spans, Duration::ZERO..Duration::from_secs(1_000));
        let beside = spans.iter().filter(|span| span.kind == RankActivity::Communication);
        let beside: Duration = beside.map(|span| span.end - span.start).sum();
        let alone = [
            RankActivity::Forward,
            RankActivity::Backward,
            RankActivity::Update,
            RankActivity::Wait,
            RankActivity::Bubble,
        ];
        let [forward, backward, update, wait, bubble] = alone.map(|kind| shares.part(kind));
        [forward, backward, update, wait, bubble, beside]
            .map(|time| (time.as_secs_f64() * 1e6).round() / 1e6)
    }

    #[test]
    fn both_stages_are_idle_for_as_long_as_the_formula_says() {
        let start = Duration::from_secs(100);
        for (schedule, micros) in
            [(PipelineSchedule::GPipe, 2), (PipelineSchedule::OneForwardOneBackward, 8)]
        {
            let (all, own) = traces(schedule, micros, [0.0, 0.0]);
            for own in own {
                let end = own.spans.last().unwrap().end;
                // Everybody meets in a sum, which ends half a second after the flush; then comes
                // the update.
                let meeting = noted(RankActivity::Wait, 100.0 + end, 100.5 + all.length());
                let update =
                    noted(RankActivity::Update, 100.5 + all.length(), 101.0 + all.length());
                let [forward, backward, update, wait, bubble, _] =
                    seconds(&account(vec![meeting, update], &own, &all, start));
                assert_eq!([forward, backward, update], [micros as f64, 2.0 * micros as f64, 0.5]);
                assert_eq!(wait, 0.5, "only what comes after the flush");
                let idle = bubble / all.length();
                assert!(
                    (idle - schedule.idle(2, micros)).abs() < 1e-9,
                    "{}: {idle}",
                    schedule.name()
                );
            }
        }
    }

    #[test]
    fn a_sum_of_gradients_under_way_is_no_bubble_and_neither_is_an_update() {
        // Rank 1 is through at 7, rank 0 at 9.
        let (all, [_, own]) = traces(PipelineSchedule::GPipe, 2, [0.0, 0.0]);
        let sum =
            [noted(RankActivity::Communication, 6.5, 7.5), noted(RankActivity::Wait, 7.0, 7.5)];
        let rest = [noted(RankActivity::Update, 7.5, 8.0), noted(RankActivity::Wait, 8.0, 9.25)];
        let spans = account([sum, rest].concat(), &own, &all, Duration::ZERO);
        assert_eq!(seconds(&spans), [2.0, 4.0, 0.5, 0.75, 1.0 + 1.0, 1.0]);
    }

    #[test]
    fn clocks_may_differ_and_one_rank_has_no_bubble() {
        let (all, [_, own]) = traces(PipelineSchedule::GPipe, 2, [0.0, 0.5]);
        let bubble = seconds(&account(Vec::new(), &own, &all, Duration::ZERO))[4];
        assert_eq!(bubble, 0.5 + 2.0, "it began later, and so waited less");
        let alone = PipelineTrace { ranks: 1, ..own.clone() };
        let wait = noted(RankActivity::Wait, 7.0, 9.0);
        let spans = account(vec![wait], &alone, &alone, Duration::ZERO);
        assert_eq!(seconds(&spans), [2.0, 4.0, 0.0, 2.0, 0.0, 0.0]);
    }
}
