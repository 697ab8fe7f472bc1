//! Executes a pipeline plan: activations go from stage to stage, and gradients go back.
//!
//! What it does: executes a [`PipelinePlan`]. A stage's forward takes what the stage before sent
//! and sends on what it made; its backward takes the gradient of that from the stage after, and
//! sends the gradient of its input back.
//!
//! ```text
//!   rank 0   layers 0 1     F0 F1 .  B0 F2 B1 .  B2        F: activations -> next rank
//!   rank 1   layers 2 3     .  F0 B0 F1 B1 F2 B2 .         B: gradients   -> previous rank
//! ```
//!
//! What is sharded: layers; the embedding is with the first stage, the head with the last, which
//! therefore have more.
//!
//! Which collective runs where: none; one message of `tokens * width` a micro-batch, boundary and
//! pass, between two ranks.
//!
//! Cost: those messages, and the bubble ([`crate::pipeline_parallel::plan`]).
//!
//! Messages travel on links of their own ([`crate::pipeline_parallel::links`]) while ranks compute.
//! A rank waits for nothing but what the plan says it needs, and
//! [`crate::pipeline_parallel::trace::simulate`] shows of every plan that this ends.

use crate::pipeline_parallel::links::StageLinks;
use crate::pipeline_parallel::plan::{PassKind, PipelinePlan, StagePass};
use crate::pipeline_parallel::trace::{PassSpan, PipelineTrace};
use crate::tensor::math::Real;
use maypole::Result;
use rustix::time::{ClockId, clock_gettime};
use std::collections::HashMap;
use std::time::Instant;

/// Chooses the activations for the backward pass of micro-batch `micro`: a place in `waiting`, the
/// micro-batches whose activations wait, in the order of their forward passes.
pub type TakeActivations = fn(waiting: &[usize], micro: usize) -> Option<usize>;

/// The activations of the same micro-batch: what every backward pass needs.
pub fn own_activations(waiting: &[usize], micro: usize) -> Option<usize> {
    waiting.iter().position(|of| *of == micro)
}

/// A rank's stages, as the executor sees them.
pub trait Stages<T> {
    /// Runs a stage forward. The first stage of the pipeline gets nothing; what the last one gives
    /// is not read.
    ///
    /// # Errors
    /// As the collectives within a stage.
    fn forward(&mut self, micro: usize, chunk: usize, input: Vec<T>) -> Result<Vec<T>>;

    /// Runs a stage backward. The last stage of the pipeline gets nothing; what the first one gives
    /// is not read.
    ///
    /// # Errors
    /// As the collectives within a stage.
    fn backward(&mut self, micro: usize, chunk: usize, gradient: Vec<T>) -> Result<Vec<T>>;
}

/// Runs the part of `plan` of rank `rank`, whose neighbours are at the ends of `links`; a message
/// has `length` numbers. Gives what ran when, in seconds from `start`.
///
/// # Errors
/// As the links, and as the stages.
pub fn execute<T: Real>(
    plan: &PipelinePlan,
    rank: usize,
    links: &mut StageLinks<T>,
    stages: &mut impl Stages<T>,
    length: usize,
    start: Instant,
) -> Result<PipelineTrace> {
    let mut spans = Vec::new();
    let mut own = HashMap::<StagePass, Vec<T>>::new();
    std::thread::scope(|scope| {
        let mut messages = links.open(scope, (outgoing(plan, rank), incoming(plan, rank)), length);
        for op in plan.ops[rank].iter().copied() {
            let input = match source(plan, rank, op) {
                None => Vec::new(),
                Some(from) if from == rank => {
                    own.remove(&op).expect("a plan has work before what needs it")
                }
                Some(_) => messages.receive(way(op), op)?,
            };
            let begun = start.elapsed().as_secs_f64();
            let worked = processor_time();
            let output = match op.pass {
                PassKind::Forward => stages.forward(op.micro, op.chunk, input)?,
                PassKind::Backward => stages.backward(op.micro, op.chunk, input)?,
            };
            let work = processor_time() - worked;
            spans.push(PassSpan {
                rank,
                op,
                start: begun,
                end: start.elapsed().as_secs_f64(),
                work,
            });
            match plan.after(rank, op) {
                Some((to, next)) if to == rank => drop(own.insert(next, output)),
                Some(_) => messages.send(way(op), output)?,
                None => {}
            }
        }
        messages.close()
    })?;
    Ok(PipelineTrace { ranks: plan.ranks, chunks: plan.chunks, spans })
}

/// Seconds that this thread has had a core for.
fn processor_time() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

/// Activations go to the next rank, gradients to the previous.
fn way(op: StagePass) -> usize {
    usize::from(op.pass == PassKind::Backward)
}

/// The rank whose output is the input of `op`. The first forward pass has none, and the last stage's
/// backward pass starts from the loss.
fn source(plan: &PipelinePlan, rank: usize, op: StagePass) -> Option<usize> {
    let (from, before) = plan.before(rank, op)?;
    (before.pass == op.pass).then_some(from)
}

/// Returns the number of messages that `rank` sends to the next rank (0) and to the previous (1).
fn outgoing(plan: &PipelinePlan, rank: usize) -> [usize; 2] {
    let mut outgoing = [0; 2];
    for op in &plan.ops[rank] {
        let leaves = plan.after(rank, *op).is_some_and(|(to, _)| to != rank);
        outgoing[way(*op)] += usize::from(leaves);
    }
    outgoing
}

/// The passes of `rank` whose input arrives from the previous rank (0) and from the next (1), each
/// in the order of sending.
fn incoming(plan: &PipelinePlan, rank: usize) -> [Vec<StagePass>; 2] {
    let mut incoming = [Vec::new(), Vec::new()];
    for (from, ops) in plan.ops.iter().enumerate().filter(|(from, _)| *from != rank) {
        let sent = ops.iter().filter_map(|op| plan.after(from, *op));
        sent.filter(|(to, _)| *to == rank).for_each(|(_, next)| incoming[way(next)].push(next));
    }
    incoming
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipeline_parallel::plan::PipelineSchedule;
    use crate::ranks::group::{RankGroup, SumOrder};
    use maypole::Communicator;

    /// Stage `s` writes down what it sees: the stages and the micro-batch that a message has been
    /// through.
    struct Diary {
        rank: usize,
        ranks: usize,
        stages: usize,
    }

    impl Diary {
        fn stage(&self, chunk: usize) -> usize {
            chunk * self.ranks + self.rank
        }
    }

    impl Stages<f64> for Diary {
        fn forward(&mut self, micro: usize, chunk: usize, input: Vec<f64>) -> Result<Vec<f64>> {
            let stage = self.stage(chunk);
            let expected = if stage == 0 { vec![] } else { vec![micro as f64, (stage - 1) as f64] };
            assert_eq!(input, expected, "forward of {micro} at stage {stage}");
            Ok(vec![micro as f64, stage as f64])
        }

        fn backward(&mut self, micro: usize, chunk: usize, gradient: Vec<f64>) -> Result<Vec<f64>> {
            let stage = self.stage(chunk);
            let expected = if stage + 1 == self.stages {
                vec![]
            } else {
                vec![-(micro as f64), (stage + 1) as f64]
            };
            assert_eq!(gradient, expected, "backward of {micro} at stage {stage}");
            Ok(vec![-(micro as f64), stage as f64])
        }
    }

    #[test]
    fn every_message_comes_to_the_work_that_it_is_for() {
        for (ranks, micros) in [(1, 3), (2, 4), (3, 6), (4, 8)] {
            for schedule in [
                PipelineSchedule::GPipe,
                PipelineSchedule::OneForwardOneBackward,
                PipelineSchedule::Interleaved(2),
            ] {
                let plan = schedule.plan(ranks, micros).unwrap();
                Communicator::run_local(ranks, |comm| {
                    let group = if ranks == 1 {
                        RankGroup::single()
                    } else {
                        RankGroup::new(comm, SumOrder::Fast)
                    };
                    let mut diary = Diary { rank: group.rank(), ranks, stages: plan.stages() };
                    let mut links = StageLinks::new(&group).unwrap();
                    for _ in 0..2 {
                        let trace =
                            execute(&plan, group.rank(), &mut links, &mut diary, 2, Instant::now())
                                .unwrap();
                        let ran: Vec<StagePass> = trace.spans.iter().map(|span| span.op).collect();
                        assert_eq!(ran, plan.ops[group.rank()]);
                    }
                });
            }
        }
    }

    /// Fails in the middle of a step on one rank.
    struct Failing {
        diary: Diary,
        fails: usize,
    }

    impl Stages<f64> for Failing {
        fn forward(&mut self, micro: usize, chunk: usize, input: Vec<f64>) -> Result<Vec<f64>> {
            if self.diary.rank == self.fails && micro == 1 {
                // There is no such root.
                Communicator::local(1).remove(0).broadcast(&mut [0.0], 9)?;
            }
            self.diary.forward(micro, chunk, input)
        }

        fn backward(&mut self, micro: usize, chunk: usize, gradient: Vec<f64>) -> Result<Vec<f64>> {
            self.diary.backward(micro, chunk, gradient)
        }
    }

    #[test]
    fn when_one_rank_fails_all_fail_and_none_waits() {
        let ranks = 3;
        let begun = Instant::now();
        for schedule in [
            PipelineSchedule::GPipe,
            PipelineSchedule::OneForwardOneBackward,
            PipelineSchedule::Interleaved(2),
        ] {
            let plan = schedule.plan(ranks, 6).unwrap();
            for fails in 0..ranks {
                Communicator::run_local(ranks, |comm| {
                    let group = RankGroup::new(comm, SumOrder::Fast);
                    let diary = Diary { rank: group.rank(), ranks, stages: plan.stages() };
                    let mut stages = Failing { diary, fails };
                    let mut links = StageLinks::new(&group).unwrap();
                    let failed =
                        execute(&plan, group.rank(), &mut links, &mut stages, 2, Instant::now());
                    assert!(
                        failed.is_err(),
                        "{} rank {} after {fails}",
                        schedule.name(),
                        group.rank()
                    );
                });
            }
        }
        assert!(
            begun.elapsed() < Communicator::local(1)[0].timeout() / 2,
            "nobody waited for a time-out"
        );
    }
}
