//! Messages between two ranks: a send on one, a receive on the other.
//!
//! # Guarantees
//!
//! A message goes from one rank to another and has a tag. The messages of a pair keep their order:
//! a receive takes the *first* message of its pair that has its tag and that no earlier receive
//! took. Tags may be received in any order, because a receiver keeps messages without a receive in
//! an *unexpected queue* of bounded size. Any number of receives may be posted, by a call and by
//! requests ([`MessageRequests`]); one with another tag never blocks a message.
//!
//! A message of another type or length than the receive that takes it is dropped: the receive ends
//! in an error, the send does not, and the next receive takes the next message. So sends and
//! receives of one tag stay paired.
//!
//! # The protocol
//!
//! * **Eager.** A message of at most 16 KiB is sent immediately, and the send is complete when its
//!   bytes have left, whether or not the receive has been posted. A sender has 64 KiB of *credit*
//!   for each receiver. An eager message uses its size in bytes of it, and 64 more; the receiver
//!   returns the credit when a receive takes the message. A message for which the credit does not
//!   suffice is sent by rendezvous.
//! * **Rendezvous.** Any other message is announced by a *ready-to-send* frame, and its bytes stay
//!   in the sender's memory. When a receive takes the announcement, the receiver replies with
//!   *clear-to-send*, and the bytes go directly to the memory of the receive. So a send by
//!   rendezvous waits for its receive: two ranks that both send such a message first and receive
//!   afterwards deadlock until their timeout, unless each posts both in one group. An announcement
//!   uses 64 bytes of credit, for which there are another 64 KiB that eager messages may not use.
//!   So about 1000 messages of a pair may be announced ahead of their receives. A receiver that
//!   drops an announced message replies with *dropped* instead.
//! * **Groups.** A group is one schedule: its sends, then its receives. No two of its steps use the
//!   same span, so in conflict order all of them may begin concurrently, and the driver posts all
//!   of them before it waits for any. So a group cannot deadlock with itself, in any order and
//!   size.
//!
//! A receiver never buffers more than 128 KiB for each sender, and the two need not negotiate.
//!
//! # The links
//!
//! Each direction of each pair has a stream of its own, apart from the streams of collectives. So
//! messages that a receiver leaves unread block no collective, and collectives have no overhead
//! from messages. The *sender* makes the stream at its first message, without the help of its
//! receiver; a receiver takes streams as they arrive. Messages ([`Frame`]s) go one way;
//! clear-to-send and credit go the other way.
//!
//! Between processes of one host, a link begins as a connection, too. The sender offers to use
//! shared memory and names a socket for it; the receiver sends a segment to the socket when it
//! reads the offer; then both directions switch to it. If that fails (the
//! processes have different network namespaces, or no memory is left), the link keeps its
//! connection.
//!
//! [`Frame`]: frame::Frame

mod batch;
mod carrier;
mod context;
mod drive;
mod failures;
mod frame;
mod incoming;
mod links;
mod message;
mod outgoing;
mod posted;
mod requests;
mod sleep;

use super::LinkError;
pub(crate) use batch::MessageBatch;
pub(crate) use context::{BatchContext, Connector};
pub(crate) use links::MessageLinks;
pub(crate) use message::{MessageMemory, Misfit};
pub(crate) use requests::{
    AllowedTime, MessageDeadline, MessageEnd, MessageFailure, MessageRequests, OwnedMessage,
    RequestInbox, RequestedMessage,
};

/// Most bytes of an eager message.
const EAGER_LIMIT: usize = 16 << 10;
/// Bytes of credit that a sender has for eager messages to one receiver. Announcements may use the
/// same amount in addition.
const CREDIT: usize = 64 << 10;
/// Bytes of credit that a message uses in addition to its payload.
const CREDIT_PER_MESSAGE: usize = 64;
/// A receiver returns credit once it is this many bytes.
const CREDIT_REPORT: usize = CREDIT / 4;

/// The error of a message that cannot be completed.
#[derive(Debug)]
pub(crate) struct MessageError {
    /// The message in words.
    pub(crate) operation: String,
    /// The index of its step in the schedule of its batch.
    pub(crate) step: usize,
    /// The rank that was awaited, or whose link failed; `None` for a receive from any rank.
    pub(crate) peer: Option<usize>,
    pub(crate) error: LinkError,
    /// The number of its request; `None` for a message of the running call.
    pub(crate) request: Option<usize>,
}

#[cfg(test)]
mod fuzz_tests;
