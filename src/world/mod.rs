//! How processes become ranks of one world.
//!
//! [`launch`] reads from the environment which rank this process is. [`bootstrap`] joins the ranks
//! at one port of rank 0 and refuses every process that does not hold the job's key. [`service`] is
//! the control plane that the ranks have from then on. [`calls`] records the calls of each rank, so
//! that ranks can compare them. None of the four depends on a collective.

pub mod bootstrap;
#[doc(hidden)]
pub mod calls;
pub mod launch;
mod peer;
mod sentence;
#[doc(hidden)]
pub mod service;
mod verbs;

pub(crate) use peer::Peer;
#[doc(hidden)]
pub use sentence::RankSentence;
pub(crate) use sentence::{group_name, rank_name};
use std::collections::VecDeque;
pub(crate) use verbs::{PortChoice, VerbsAccess, VerbsPortOffer};

/// Adds `item` to a queue that keeps the last `most` items.
fn keep_last<T>(queue: &mut VecDeque<T>, most: usize, item: T) {
    if queue.len() == most {
        queue.pop_front();
    }
    queue.push_back(item);
}
