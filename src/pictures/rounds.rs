//! Rounds: message latencies that lie before a step.

use maypole::schedule::Schedule;
use maypole::schedule::conflict::{ConflictGraph, StepKind, StepOrder};

/// The round of each step, and where each message is received.
///
/// A message takes one round and nothing else takes time. So the round of a step is the number of
/// message latencies that lie before it, one after another, as executors run: the *alphas* that
/// the [clocks](crate::clocks) count where bytes cost nothing.
///
/// ```
/// use maypole::{algorithms::Algorithm, schedule::collective::Collective};
/// use maypole_pictures::rounds::StepRounds;
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
    /// The rounds of `schedules`, one a rank. If they deadlock, a rank's steps have rounds up to
    /// the first that can never be taken.
    ///
    /// # Panics
    /// If a step names a rank outside the world.
    pub fn new(schedules: &[Schedule]) -> Self {
        // Schedules that deadlock have rounds, too: those of the steps before.
        let graph = ConflictGraph::of_taken(StepOrder::Conflict, schedules);
        let rounds = by_node(&graph);
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

/// By node of `graph`: its round.
fn by_node(graph: &ConflictGraph) -> Vec<usize> {
    let mut rounds = vec![0; graph.nodes.len()];
    let mut waits: Vec<u32> = graph.nodes.iter().map(|node| node.waits).collect();
    let mut ready: Vec<usize> = (0..waits.len()).filter(|&node| waits[node] == 0).collect();
    while let Some(node) = ready.pop() {
        let latency = usize::from(matches!(graph.nodes[node].kind, StepKind::Message { .. }));
        for next in graph.within.of(node).iter().map(|next| *next as usize) {
            rounds[next] = rounds[next].max(rounds[node] + latency);
            waits[next] -= 1;
            if waits[next] == 0 {
                ready.push(next);
            }
        }
    }
    rounds
}

#[cfg(test)]
mod tests {
    use super::*;
    use maypole::schedule::{Step, input, output};

    #[test]
    fn schedules_that_get_stuck_have_rounds_up_to_there() {
        let steps = [
            vec![
                Step::Send { from: input(0), to: 1 },
                Step::Send { from: input(0), to: 2 },
                Step::Recv { into: output(0), from: 1 },
            ],
            vec![
                Step::Recv { into: output(0), from: 0 },
                Step::Recv { into: output(0), from: 2 },
                Step::Send { from: output(0), to: 0 },
            ],
            // Takes nothing, so that a message is never received.
            vec![],
        ];
        let rounds = StepRounds::new(&steps.map(|steps| Schedule::new(1, steps)));
        let [first, second, third] = &rounds.of[..] else { panic!("three ranks") };
        assert_eq!(first[..], [Some(0), Some(0), None]);
        assert_eq!(second[..], [Some(1), None, None]);
        assert!(third.is_empty());
        assert_eq!(rounds.received_by[0], [Some((1, 0)), None, None]);
    }
}
