//! The relay of a failure from rank to rank, for failures that rank 0 does not forward because it
//! is stopped or unreachable.
//!
//! Each rank sends the cause to its neighbours in the *binomial graph*: the ranks at the distances
//! 1, 2, 4 and so on, in both directions. A rank that receives a lesser cause than its own forwards
//! it to its neighbours. So all ranks receive the cause in about log2(n) rounds, no rank makes more
//! than 2 log2(n) connections, and the graph of the others stays connected while fewer than 2
//! log2(n) - 1 ranks are silent.
//!
//! Source: T. Angskun, G. Bosilca and J. Dongarra, "Binomial graph: a scalable and fault-tolerant
//! logical network topology" (2007), which ULFM uses for its reliable broadcast.

use super::PeerQuestion;
use crate::world::service::Cause;
use crate::world::service::state::{ServiceContext, ServiceState};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::thread::Builder;
use std::time::{Duration, Instant};

/// The timeout of sending a failure to one neighbour.
const TELLING_TIME: Duration = Duration::from_millis(500);

/// The neighbours of `rank` in the binomial graph of `world` ranks.
fn neighbours(rank: usize, world: usize) -> BTreeSet<usize> {
    let distances = (0..usize::BITS).map(|bit| 1usize << bit).take_while(|far| *far < world);
    distances.flat_map(|far| [(rank + far) % world, (rank + world - far) % world]).collect()
}

/// Broadcasts `cause`, the failure of the world, to the neighbours of this rank, in a thread of its
/// own. This rank's own program receives the failure after that, because it may end immediately.
/// Without effect if that cause or a lesser one was sent before.
pub(in crate::world::service) fn relay(shared: &Arc<ServiceContext>, cause: Cause) {
    let is_news = |state: &mut ServiceState| {
        let news = state.relayed.as_ref().is_none_or(|relayed| cause < *relayed);
        if news {
            state.relayed = Some(cause.clone());
        }
        news
    };
    if !shared.update(is_news) {
        return;
    }
    let context = Arc::clone(shared);
    let told = cause.clone();
    let thread = Builder::new().name(format!("maypole-{}-relay", shared.rank));
    let spawned = thread.spawn(move || {
        tell_neighbours(&context, &told);
        context.learn_relayed(&told);
    });
    if spawned.is_err() {
        shared.learn_relayed(&cause);
    }
}

fn tell_neighbours(shared: &ServiceContext, cause: &Cause) {
    let question = PeerQuestion::Failed(cause.clone());
    let listens = |peer: &usize| !shared.state().left.contains(peer);
    let targets = neighbours(shared.rank, shared.peers.len()).into_iter().filter(listens);
    std::thread::scope(|scope| {
        for peer in targets {
            let question = &question;
            let tell = move || shared.ask_peer(peer, question, Instant::now() + TELLING_TIME);
            // A neighbour that cannot be reached receives the failure from another rank.
            let _ = Builder::new().spawn_scoped(scope, tell);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_mutual_and_few() {
        for world in 2..200 {
            for rank in 0..world {
                let near = neighbours(rank, world);
                assert!(!near.contains(&rank), "{world}: {rank} is its own neighbour");
                assert!(near.len() <= 2 * world.next_power_of_two().ilog2() as usize);
                assert!(near.iter().all(|other| neighbours(*other, world).contains(&rank)));
            }
        }
    }

    /// The ranks that receive a failure which rank `first` relays, if `silent` ranks forward
    /// nothing.
    fn heard(first: usize, world: usize, silent: &[usize]) -> BTreeSet<usize> {
        let mut known = BTreeSet::from([first]);
        let mut fresh = vec![first];
        while let Some(rank) = fresh.pop() {
            let next = neighbours(rank, world).into_iter().filter(|next| !silent.contains(next));
            fresh.extend(next.filter(|next| known.insert(*next)));
        }
        known
    }

    #[test]
    fn all_others_hear_of_a_failure_while_ranks_are_silent() {
        for world in 3..40 {
            for silent in 0..world {
                let other = (silent * 7 + 3) % world;
                let first = (0..world).find(|rank| ![silent, other].contains(rank)).unwrap();
                let expected = (0..world).filter(|rank| ![silent, other].contains(rank)).count();
                assert_eq!(heard(first, world, &[silent, other]).len(), expected, "{world}");
            }
        }
    }
}
