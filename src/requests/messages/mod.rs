//! Non-blocking messages, and the driver of one rank's messages in one group.
//!
//! One thread drives at a time: it holds the lock of [`DrivenMessages`](driver::DrivenMessages) and
//! moves bytes for every posted message, its own and those of all requests. A blocking call drives
//! until its messages are complete, and a thread that waits for a request drives meanwhile. If no
//! thread waits, a background thread of the communicator drives. It starts with the first request
//! that does not complete immediately, and sleeps between its polls, because the rank computes
//! concurrently.
//!
//! A request is started without waiting for the driving thread: it is queued in an inbox, which
//! that thread empties at every poll.

mod background;
pub(crate) mod driver;
pub(crate) mod memory;
