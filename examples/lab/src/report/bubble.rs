//! The time that a rank of a pipeline waited for other stages in one step: the bubble, apart from
//! communication.
//!
//! What it does: a stage waits before its first pass, between passes, and after its last pass until
//! the last pass of every stage has ended (the *flush*). A rank spends this last wait in its next
//! collective, such as the all-reduce of the losses, so it would be counted as communication.
//! From the passes of all stages this file computes the flush, and counts a rank's time from its
//! last pass to the flush as bubble too. The time of its update, and of an all-reduce of gradients in
//! flight, is not bubble.
//!
//! ```text
//!   rank 0   F0 F1 .  .  B0 B0 B1 B1 | update        between the rank's passes: bubble
//!   rank 1   .  F0 F1 B0 B0 B1 B1 .  | update        before the first pass, after the last: bubble
//!                                  flush             after the flush: exposed communication
//! ```
//!
//! What is sharded, which collective runs where, cost: nothing.
//! [`gather_trace`](crate::replay::gather_trace) gives the trace of all stages.

use crate::replay::TraceFigures;
use maypole_trainer::pipeline_parallel::plan::PassKind;
use maypole_trainer::pipeline_parallel::trace::{self, PipelineTrace};
use maypole_trainer::ranks::timeline::{RankActivity, TimeSpan};
use std::time::Duration;

/// Returns the spans of a step: the spans `noted`, this rank's `own` passes, and its bubble. The
/// passes are in seconds since `start`, a time of the timeline. `pipeline` is the trace of all
/// stages, in seconds since any moment. Time that is bubble is removed from spans of
/// [`RankActivity::Wait`].
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

/// Returns the time at which the last pass of any stage ended, by the clock of `own`. `None` if a
/// trace lacks this rank's first pass.
fn flush(own: &PipelineTrace, pipeline: &PipelineTrace) -> Option<Duration> {
    let first = own.spans.first()?;
    let same = pipeline.spans.iter().find(|span| (span.rank, span.op) == (first.rank, first.op))?;
    Some(Duration::from_secs_f64((pipeline.length() + first.start - same.start).max(0.0)))
}

/// Returns the bubble: the time from the `start` of the step to the first pass, between passes, and
/// the idle time from the last pass to the `flush`.
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
    // All-reduces overlap with passes. Only after the last pass may a rank wait for one.
    let last = passes.last().map_or(start, |pass| pass.end);
    let busy = noted
        .iter()
        .filter(|span| matches!(span.kind, RankActivity::Update | RankActivity::Communication));
    let late = busy
        .filter(|span| span.end > last)
        .map(|span| TimeSpan { start: span.start.max(last), ..*span });
    late.fold(holes, |holes, busy| without(holes, &busy))
}

/// Returns the parts of `spans` that lie outside `hole`.
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
    use crate::replay::{equal_stages, simulate};
    use crate::report::shares::TimeShares;
    use maypole_trainer::pipeline_parallel::plan::PipelineSchedule;

    fn noted(kind: RankActivity, start: f64, end: f64) -> TimeSpan {
        let [start, end] = [start, end].map(Duration::from_secs_f64);
        TimeSpan { kind, start, end }
    }

    /// Returns the trace of all ranks, and of each rank by its own clock, which starts `late[rank]`
    /// seconds after the clock of the former.
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

    /// Returns the seconds of forward passes, backward passes, updates, waits and bubble, which do
    /// not overlap, and those of communication, which overlaps them.
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
    fn the_idle_share_of_both_stages_is_the_formulas() {
        let start = Duration::from_secs(100);
        for (schedule, micros) in
            [(PipelineSchedule::GPipe, 2), (PipelineSchedule::OneForwardOneBackward, 8)]
        {
            let (all, own) = traces(schedule, micros, [0.0, 0.0]);
            for own in own {
                let end = own.spans.last().unwrap().end;
                // All ranks wait for an all-reduce, which ends half a second after the flush. The update
                // follows.
                let meeting = noted(RankActivity::Wait, 100.0 + end, 100.5 + all.length());
                let update =
                    noted(RankActivity::Update, 100.5 + all.length(), 101.0 + all.length());
                let [forward, backward, update, wait, bubble, _] =
                    seconds(&account(vec![meeting, update], &own, &all, start));
                assert_eq!([forward, backward, update], [micros as f64, 2.0 * micros as f64, 0.5]);
                assert_eq!(wait, 0.5, "the wait is the time after the flush");
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
        // The last pass of rank 1 ends at 7 s, that of rank 0 at 9 s.
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
        assert_eq!(bubble, 0.5 + 2.0, "its step began later, so it waited less");
        let alone = PipelineTrace { ranks: 1, ..own.clone() };
        let wait = noted(RankActivity::Wait, 7.0, 9.0);
        let spans = account(vec![wait], &alone, &alone, Duration::ZERO);
        assert_eq!(seconds(&spans), [2.0, 4.0, 0.0, 2.0, 0.0, 0.0]);
    }
}
