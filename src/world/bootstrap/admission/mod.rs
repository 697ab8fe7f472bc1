//! How a process joins a running world: as the replacement of a lost rank, or as an additional one.
//!
//! # The problem
//!
//! Ranks that train cannot wait for a process that may never arrive, and cannot admit it within a
//! step. A newcomer needs an address that outlives the ranks. It may die during admission, and so
//! may a rank. All ranks have to end in one world: the old one, or the same new one.
//!
//! # The plan
//!
//! ```text
//! newcomer                       room at rank 0           all ranks, at a point of their choice
//!    | -- handshake, request ->  |  (a thread)                 |
//!    |         waits             |                             | admit: is anybody there?
//!    |                           |  <------- takes all ------- | yes: agree on a world with them
//!    | <-- Invited ------------  |                             |
//!    | <== Prepare, Ready, Commit, a trial: as survivors of a death agree ==> |
//! ```
//!
//! * **A waiting room** ([`room`]) is a thread of the rank that is rank 0 at the first `admit`. It
//!   listens at a fixed port. A process proves the job's key and name, agrees on everything that
//!   must be equal, and then waits. A process of another job or with another key fails the
//!   handshake. A process that dies leaves the room.
//! * **The point** is an operation that all ranks call ([`admit`](crate::Communicator::admit)). So
//!   no rank is in another call; if one is, the calls do not match, which is an error. If the room
//!   is empty, nothing happens to the communicator.
//! * **The agreement** is that of survivors of a death (`service::shrink`), to which rank 0 brings
//!   the newcomers as followers. It handles a death at any moment, so there is no second protocol:
//!   all ranks get a new communicator of the ranks that were alive to the end.
//! * **Several newcomers** join together. Newcomers without room in the world, and those whose rank
//!   0 has died, wait or connect again until their own deadline.
//!
//! # Cost
//!
//! Without newcomers, an exchange over the control plane. With them, the cost of `shrink`, and of
//! new programs and links.

mod knock;
mod room;

pub(crate) use knock::knock;
pub(crate) use room::WaitingRoom;
