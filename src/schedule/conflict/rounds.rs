//! Rounds: message latencies that lie before a step.

use super::{ConflictGraph, Matches, StepKind, StepOrder};
use crate::schedule::walk::walk;
use crate::schedule::{Placement, Schedule};

/// The round of each step, and where each message is received.
///
/// A message takes one round and nothing else takes time. So the round of a step is the number of
/// message latencies that lie before it, one after another, as executors run: the *alphas* that
/// the clocks of `maypole-pictures` count where bytes cost nothing.
///
/// ```
/// use maypole::schedule::StepRounds;
/// use maypole::{algorithms::Algorithm, schedule::collective::Collective};
/// let ring = Algorithm::Ring.schedules(Collective::AllGather, 3).unwrap();
/// let rounds = StepRounds::new(&ring);
/// // A copy and a send; a receive, which is sent on; a receive.
/// assert_eq!(rounds.of[0], [0, 0, 1, 1, 2].map(Some));
/// assert_eq!(rounds.last(), Some(2));
/// // The second step of rank 0 is a send. The third step of rank 1 receives its message.
/// assert_eq!(rounds.received_by[0][1], Some((1, 2)));
/// ```
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct StepRounds {
    /// By rank and step: its round; `None` for a step that can never be taken.
    pub of: Vec<Vec<Option<usize>>>,
    /// By rank and step: for a send whose message is received, the rank and the step that receive
    /// it; else `None`.
    pub received_by: Vec<Vec<Option<(usize, usize)>>>,
}

impl StepRounds {
    /// The rounds of `schedules`, one a rank. Where they get stuck, a rank's steps have rounds up to
    /// the first that can never be taken.
    ///
    /// # Panics
    /// If a step names a rank outside the world.
    pub fn new(schedules: &[Schedule]) -> Self {
        let mut matches = Matches::new(schedules);
        // Schedules that get stuck have rounds, too: those of the steps before.
        let _ = walk(schedules, Placement::Apart, &mut matches);
        let taken = |(schedule, taken): (&Schedule, &usize)| Schedule {
            steps: schedule.steps[..*taken].to_vec(),
            ..*schedule
        };
        let first_parts: Vec<_> = schedules.iter().zip(&matches.taken).map(taken).collect();
        let graph = ConflictGraph::of_matched(StepOrder::Conflict, &first_parts, matches);
        let rounds = graph.rounds();
        let of = |(schedule, nodes): (&Schedule, &Vec<usize>)| {
            let round = |step| nodes.get(step).map(|&node: &usize| rounds[node]);
            (0..schedule.steps.len()).map(round).collect()
        };
        let of = schedules.iter().zip(&graph.node_of).map(of).collect();
        Self { of, received_by: graph.received_by }
    }

    /// The last round, if a step has one.
    pub fn last(&self) -> Option<usize> {
        self.of.iter().flatten().flatten().max().copied()
    }
}

impl ConflictGraph {
    /// By node: its round.
    fn rounds(&self) -> Vec<usize> {
        let mut rounds = vec![0; self.nodes.len()];
        let mut waits: Vec<u32> = self.nodes.iter().map(|node| node.waits).collect();
        let mut ready: Vec<usize> = (0..waits.len()).filter(|&node| waits[node] == 0).collect();
        while let Some(node) = ready.pop() {
            let latency = usize::from(matches!(self.nodes[node].kind, StepKind::Message { .. }));
            for next in self.within.of(node).iter().map(|next| *next as usize) {
                rounds[next] = rounds[next].max(rounds[node] + latency);
                waits[next] -= 1;
                if waits[next] == 0 {
                    ready.push(next);
                }
            }
        }
        rounds
    }
}
