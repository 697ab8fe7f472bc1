//! Executes a pipeline plan: activations go from stage to stage, and gradients go back.
//!
//! What it does: executes a [`PipelinePlan`]. The forward pass of a stage receives its input from
//! the previous stage and sends its output to the next. The backward pass receives the gradient of
//! the output from the next stage, and sends the gradient of the input to the previous stage.
//!
//! ```text
//!   rank 0   layers 0 1     F0 F1 .  B0 F2 B1 .  B2        F: activations -> next rank
//!   rank 1   layers 2 3     .  F0 B0 F1 B1 F2 B2 .         B: gradients   -> previous rank
//! ```
//!
//! What is sharded: layers. The first stage also has the embedding, and the last stage the head.
//!
//! Which collective runs where: none; one message of `tokens * width` a micro-batch, boundary and
//! pass, between two ranks.
//!
//! Cost: those messages, and the bubble ([`crate::pipeline_parallel::plan`]).
//!
//! Threads send and receive messages ([`crate::pipeline_parallel::links`]) while ranks compute.
//! A rank waits only for the inputs of its passes. `maypole_lab::replay::simulate`
//! shows whether a plan ends.

use crate::pipeline_parallel::links::StageLinks;
use crate::pipeline_parallel::plan::{PassKind, PipelinePlan, StagePass};
use crate::pipeline_parallel::trace::{PassSpan, PipelineTrace};
use crate::tensor::math::Real;
use maypole::Result;
use rustix::time::{ClockId, clock_gettime};
use std::collections::HashMap;
use std::time::Instant;

/// Chooses the activations for the backward pass of micro-batch `micro`: returns an index of
/// `waiting`, the micro-batches whose activations wait, in the order of their forward passes.
pub type TakeActivations = fn(waiting: &[usize], micro: usize) -> Option<usize>;

/// Chooses the activations of the same micro-batch, which is right.
pub fn own_activations(waiting: &[usize], micro: usize) -> Option<usize> {
    waiting.iter().position(|of| *of == micro)
}

/// The stages of a rank, which the executor runs.
pub trait Stages<T> {
    /// Runs stage `chunk` of this rank forward. `input` is empty for the first stage of the
    /// pipeline. The result of the last stage is not read.
    ///
    /// # Errors
    /// As the collectives within a stage.
    fn forward(&mut self, micro: usize, chunk: usize, input: Vec<T>) -> Result<Vec<T>>;

    /// Runs stage `chunk` of this rank backward. `gradient` is empty for the last stage of the
    /// pipeline. The result of the first stage is not read.
    ///
    /// # Errors
    /// As the collectives within a stage.
    fn backward(&mut self, micro: usize, chunk: usize, gradient: Vec<T>) -> Result<Vec<T>>;
}

/// Runs the passes of rank `rank` of `plan`. `links` join it with its neighbours, and a message has
/// `length` numbers. Returns the passes with their times in seconds since `start`.
///
/// # Errors
/// As the links and the stages.
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
                    own.remove(&op).expect("a plan has a pass before those that need it")
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

/// Returns the processor time of this thread, in seconds.
fn processor_time() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

/// Returns the direction of a message: 0 for activations, to the next rank; 1 for gradients, to the
/// previous rank.
fn way(op: StagePass) -> usize {
    usize::from(op.pass == PassKind::Backward)
}

/// Returns the rank whose output is the input of `op`. A forward pass of the first stage has no
/// input, and a backward pass of the last stage starts from the loss: `None`.
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

/// Returns the passes of `rank` whose input arrives from the previous rank (0) and from the next
/// (1), each in the order of sending.
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

    /// Stages that send the micro-batch and the number of the stage, and check received ones.
    struct CheckedStages {
        rank: usize,
        ranks: usize,
        stages: usize,
    }

    impl CheckedStages {
        fn stage(&self, chunk: usize) -> usize {
            chunk * self.ranks + self.rank
        }
    }

    impl Stages<f64> for CheckedStages {
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
    fn every_message_reaches_its_pass() {
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
                    let mut stages =
                        CheckedStages { rank: group.rank(), ranks, stages: plan.stages() };
                    let mut links = StageLinks::new(&group).unwrap();
                    for _ in 0..2 {
                        let trace = execute(
                            &plan,
                            group.rank(),
                            &mut links,
                            &mut stages,
                            2,
                            Instant::now(),
                        )
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
        checked: CheckedStages,
        fails: usize,
    }

    impl Stages<f64> for Failing {
        fn forward(&mut self, micro: usize, chunk: usize, input: Vec<f64>) -> Result<Vec<f64>> {
            if self.checked.rank == self.fails && micro == 1 {
                // There is no rank 9 to broadcast from.
                Communicator::local(1).remove(0).broadcast(&mut [0.0], 9)?;
            }
            self.checked.forward(micro, chunk, input)
        }

        fn backward(&mut self, micro: usize, chunk: usize, gradient: Vec<f64>) -> Result<Vec<f64>> {
            self.checked.backward(micro, chunk, gradient)
        }
    }

    #[test]
    fn if_one_rank_fails_all_fail_before_the_time_out() {
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
                    let checked =
                        CheckedStages { rank: group.rank(), ranks, stages: plan.stages() };
                    let mut stages = Failing { checked, fails };
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
            "no rank waited for a time-out"
        );
    }
}
