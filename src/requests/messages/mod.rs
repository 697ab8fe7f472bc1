//! Messages that do not block, and how the messages of one rank in one group are driven.
//!
//! One thread drives at a time: it holds the lock of [`DrivenMessages`](driver::DrivenMessages) and moves bytes for every
//! message that is posted, its own and those of all requests. A blocking call drives until its
//! messages are complete, and a thread that waits for a request drives meanwhile. If no thread
//! waits, a thread of the communicator's own drives. It starts with the first request that is not
//! over at once, and sleeps between its polls, because the rank computes meanwhile.
//!
//! A request is started without waiting for the thread that drives: it is left in an inbox, which
//! that thread empties at every poll.

mod background;
pub(crate) mod driver;
pub(crate) mod memory;
