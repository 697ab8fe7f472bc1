//! Starting messages while a call of the communicator runs on another thread, and messages with a
//! function for their end.

use crate::comm::{Communicator, Request};
use crate::element::DataType;
use crate::error::Error;
use crate::requests::messages::memory::{Arrival, data_of, room_of};

/// Starts messages of a communicator from another thread, and reports their end: see
/// [`Communicator::message_handle`].
///
/// Messages have the timeout that the communicator had when the handle was made. After the
/// communicator has been closed, they fail with [`Error::Invalid`].
#[derive(Debug)]
pub struct MessageHandle {
    /// Without an engine, which messages do not need.
    comm: Communicator,
}

impl MessageHandle {
    /// [`Communicator::start_send`] of bytes, which are elements of `data_type`. `ended` is called
    /// before the request can be waited for, with rank `to` and the number of elements, or with the
    /// error. It runs on a thread that drives messages, so it must neither block nor make calls of
    /// this communicator.
    pub fn start_send<B: AsRef<[u8]> + Send + 'static>(
        &mut self,
        data_type: DataType,
        data: B,
        to: usize,
        tag: u32,
        ended: impl FnOnce(Result<Arrival, &Error>) + Send + 'static,
    ) -> Request<B> {
        let memory = data_of::<u8, B>;
        let (message, hook) = ((data_type, Some(to), tag), Some(Box::new(ended) as _));
        self.comm.post("start_send", message, data, memory, |data, _| data, hook)
    }

    /// Makes progress on the messages in flight, unless another thread does, so that messages whose
    /// other end is done complete.
    pub fn poll(&mut self) {
        self.comm.engine.messages.poll();
    }

    /// [`Communicator::start_recv`] of bytes, which are elements of `data_type`, from rank `from`, or
    /// as [`Communicator::start_recv_any`] from any rank. `ended` is as in
    /// [`start_send`](Self::start_send), with the rank that sent the message.
    pub fn start_recv<B: AsMut<[u8]> + Send + 'static>(
        &mut self,
        data_type: DataType,
        data: B,
        from: Option<usize>,
        tag: u32,
        ended: impl FnOnce(Result<Arrival, &Error>) + Send + 'static,
    ) -> Request<(B, Arrival)> {
        let memory = room_of::<u8, B>;
        let give = move |mut data: B, arrival: Arrival| {
            if data_type == DataType::Bool {
                // A peer can send any byte, and every byte but 0 is true.
                let bytes = &mut data.as_mut()[..arrival.1];
                bytes.iter_mut().for_each(|byte| *byte = u8::from(*byte != 0));
            }
            (data, arrival)
        };
        let (message, hook) = ((data_type, from, tag), Some(Box::new(ended) as _));
        self.comm.post("start_recv", message, data, memory, give, hook)
    }
}

impl Communicator {
    /// Returns a handle by which another thread starts messages of this communicator, also while a
    /// call of this rank waits. The elements of these messages have a dynamic type, and a function
    /// is called at their end.
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
    ///         let sent = handle.start_send(DataType::U8, vec![7; 3], other, 5, |_| {});
    ///         sent.wait().unwrap();
    ///     });
    /// });
    /// ```
    pub fn message_handle(&self) -> MessageHandle {
        MessageHandle { comm: self.without_engine() }
    }
}
