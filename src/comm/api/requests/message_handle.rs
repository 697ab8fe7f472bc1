//! Starting messages while a call of the communicator runs on another thread.

use crate::comm::{Communicator, Request};
use crate::element::DataType;
use crate::error::Error;
use crate::requests::messages::memory::Arrival;

/// Starts messages of a communicator from another thread: see [`Communicator::message_handle`].
///
/// Messages have the timeout that the communicator had when the handle was made. After the
/// communicator has been closed, they fail with [`Error::Invalid`].
#[derive(Debug)]
pub struct MessageHandle {
    /// Has no engine, which messages do not need.
    comm: Communicator,
}

impl MessageHandle {
    /// As [`Communicator::start_send_erased`].
    pub fn start_send_erased<B: AsRef<[u8]> + Send + 'static>(
        &mut self,
        data_type: DataType,
        data: B,
        to: usize,
        tag: u32,
        ended: impl FnOnce(Result<Arrival, &Error>) + Send + 'static,
    ) -> Request<B> {
        self.comm.start_send_erased(data_type, data, to, tag, ended)
    }

    /// As [`Communicator::start_recv_erased`].
    pub fn start_recv_erased<B: AsMut<[u8]> + Send + 'static>(
        &mut self,
        data_type: DataType,
        data: B,
        from: Option<usize>,
        tag: u32,
        ended: impl FnOnce(Result<Arrival, &Error>) + Send + 'static,
    ) -> Request<(B, Arrival)> {
        self.comm.start_recv_erased(data_type, data, from, tag, ended)
    }
}

impl Communicator {
    /// Returns a handle by which another thread starts messages of this communicator, also while a
    /// call of this rank waits.
    ///
    /// ```
    /// use maypole::{Communicator, DataType};
    /// Communicator::run_local(2, |mut comm| {
    ///     let (rank, other) = (comm.rank(), 1 - comm.rank());
    ///     let mut handle = comm.message_handle();
    ///     if rank == 1 {
    ///         // Rank 0 waits in its barrier, and sends meanwhile.
    ///         comm.recv(&mut [0u8; 3], other, 5).unwrap();
    ///         return comm.barrier().unwrap();
    ///     }
    ///     std::thread::scope(|threads| {
    ///         threads.spawn(|| comm.barrier().unwrap());
    ///         let sent = handle.start_send_erased(DataType::U8, vec![7; 3], other, 5, |_| {});
    ///         sent.wait().unwrap();
    ///     });
    /// });
    /// ```
    pub fn message_handle(&self) -> MessageHandle {
        MessageHandle { comm: self.without_engine() }
    }
}
