//! Sending and receiving: messages between two ranks, and groups of them.

use crate::comm::Communicator;
use crate::comm::api::arguments::slices::{AnySliceMut, IntoInput, IntoOutput};
use crate::element::Element;
use crate::error::{Error, Result};
use crate::execute::messages::MessageBatch;
use crate::execute::messages::MessageMemory::{Data, Room};
use crate::requests::messages::driver::DrivenMessages;
use crate::requests::messages::memory::misfit_error;
use bytemuck::Pod;
use maypole_kernels::{View, ViewMut};

impl Communicator {
    /// Sends `data` to rank `to`, which [receives](Self::recv) it by the same `tag`.
    ///
    /// No other rank is involved. **Messages are matched by their tags**: a receive takes the first
    /// message from its rank that has its tag and that no earlier receive took. So messages with
    /// one tag are received in the order in which they were sent, and messages with other tags may
    /// be received earlier or later.
    ///
    /// A message of at most 16 KiB is *eager*: it does not wait for its receiver. Its receiver may
    /// hold 64 KiB of eager messages that no receive has taken, each counted with 64 bytes more.
    /// When they are full, or if the message is longer, it is sent by *rendezvous*: `send` waits for
    /// the receive, and the bytes go straight to the receiver's buffer. So two ranks must not both
    /// send a long message first and then receive; [`exchange`](Self::exchange),
    /// [`group`](Self::group) and [`start_send`](Self::start_send) do not block each other. About a
    /// thousand messages of a pair may wait for their receives in this way; later ones wait for
    /// these, whatever their tags.
    ///
    /// ```
    /// use maypole::Communicator;
    /// let came = Communicator::run_local(2, |mut comm| {
    ///     let mut word = *b"-----";
    ///     match comm.rank() {
    ///         0 => comm.send(b"hello", 1, 7).unwrap(),
    ///         _ => comm.recv(&mut word, 0, 7).unwrap(),
    ///     }
    ///     word
    /// });
    /// assert_eq!(came, [*b"-----", *b"hello"]);
    /// ```
    ///
    /// # Errors
    /// [`Error::Invalid`] if there is no such rank, or it is this one and the message would wait
    /// for itself; else as every call.
    #[doc(alias("MPI_Send", "ncclSend"))]
    pub fn send<'a, T>(&mut self, data: impl IntoInput<'a, T>, to: usize, tag: u32) -> Result<()> {
        let data = data.into_input();
        self.check_peer("send", to)?;
        self.check_slice("send", data.flaw())?;
        data.read(|bytes| {
            if to == self.rank() && !self.is_eager_here(bytes.len()) {
                let why = "a long message to this rank itself waits for its receive; post both in \
                           a group";
                return Err(self.invalid("send", why.to_owned()));
            }
            let mut batch = MessageBatch::default();
            batch.add(Data(bytes), data.kind, Some(to), tag);
            self.run_batch(batch).map(drop)
        })
    }

    /// Receives the next message with this `tag` from rank `from`. It must have the type and the
    /// length of `data`. A message of another type or length is dropped, `data` does not change,
    /// and the next receive takes the next message. [`send`](Self::send) has an example.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there is no such rank; [`Error::Value`] if the message is of another
    /// type or length, after which the communicator works as before; else as every call. The sender
    /// gets no error: it has sent its message.
    #[doc(alias("MPI_Recv", "ncclRecv", "receive"))]
    pub fn recv<'a, T>(
        &mut self,
        data: impl IntoOutput<'a, T>,
        from: usize,
        tag: u32,
    ) -> Result<()> {
        self.check_peer("recv", from)?;
        self.receive("recv", data.into_output(), Some(from), tag).map(drop)
    }

    /// Receives a message with this `tag` from any rank, at most as long as `data`. Returns the
    /// rank that sent it and its number of elements. The rest of `data` does not change. If
    /// several ranks have sent, they are served in turn.
    ///
    /// ```
    /// use maypole::Communicator;
    /// Communicator::run_local(3, |mut comm| {
    ///     if comm.rank() > 0 {
    ///         return comm.send(&vec![9u8; comm.rank()], 0, 0).unwrap();
    ///     }
    ///     for _ in 0..2 {
    ///         let (from, count) = comm.recv_any(&mut [0u8; 8], 0).unwrap();
    ///         assert_eq!(from, count);
    ///     }
    /// });
    /// ```
    ///
    /// # Errors
    /// [`Error::Value`] if the message is of another type or too long, and is dropped;
    /// [`Error::TimedOut`] without a peer if none arrives in time; else as every call.
    #[doc(alias = "MPI_ANY_SOURCE")]
    pub fn recv_any<'a, T>(
        &mut self,
        data: impl IntoOutput<'a, T>,
        tag: u32,
    ) -> Result<(usize, usize)> {
        self.receive("recv_any", data.into_output(), None, tag)
    }

    /// Sends `data` to rank `to` and receives `into` from rank `from`, concurrently. A ring of
    /// ranks that all do this never deadlocks, at any length.
    ///
    /// ```
    /// use maypole::Communicator;
    /// let came = Communicator::run_local(3, |mut comm| {
    ///     let (rank, world) = (comm.rank(), comm.world());
    ///     let mut left = [0];
    ///     comm.exchange(&[rank], (rank + 1) % world, &mut left, (rank + 2) % world, 0).unwrap();
    ///     left[0]
    /// });
    /// assert_eq!(came, [2, 0, 1]);
    /// ```
    ///
    /// # Errors
    /// As [`recv`](Self::recv).
    #[doc(alias("MPI_Sendrecv", "sendrecv"))]
    pub fn exchange<'a, 'b, T>(
        &mut self,
        data: impl IntoInput<'a, T>,
        to: usize,
        into: impl IntoOutput<'b, T>,
        from: usize,
        tag: u32,
    ) -> Result<()> {
        let (data, into) = (data.into_input(), into.into_output());
        self.check_peer("exchange", to)?;
        self.check_peer("exchange", from)?;
        self.check_slice("exchange", data.flaw().or(into.flaw()))?;
        let (sent, received) = (data.kind, into.kind);
        into.memory.write(|room| {
            data.read(|bytes| {
                let mut batch = MessageBatch::default();
                batch.add(Data(bytes), sent, Some(to), tag);
                batch.add(Room(room), received, Some(from), tag);
                self.run_batch(batch).map(drop)
            })
        })
    }

    /// Runs several sends and receives. All are posted before
    /// any is waited for, so ranks never deadlock because of their order or their sizes. Returns
    /// once all are done: for each receive, in order, the rank that sent the message and its
    /// number of elements.
    ///
    /// ```
    /// use maypole::Communicator;
    /// let neighbours = Communicator::run_local(4, |mut comm| {
    ///     let rank = comm.rank();
    ///     let left = (rank + 3) % 4;
    ///     let right = (rank + 1) % 4;
    ///     let mine = vec![rank as u32; 100_000];
    ///     let mut from_left = mine.clone();
    ///     let mut from_right = mine.clone();
    ///     comm.group(|group| {
    ///         group.send(&mine, left, 0)?;
    ///         group.send(&mine, right, 0)?;
    ///         group.recv(&mut from_left, left, 0)?;
    ///         group.recv(&mut from_right, right, 0)
    ///     })
    ///     .unwrap();
    ///     (from_left[0], from_right[0])
    /// });
    /// assert_eq!(neighbours, [(3, 1), (0, 2), (1, 3), (2, 0)]);
    /// ```
    ///
    /// # Errors
    /// The error of `fill`, after which nothing is posted; else as each send and receive. If a
    /// message does not fit its receive, all other messages are done.
    #[doc(alias("ncclGroupStart", "batch_isend_irecv"))]
    pub fn group<'a>(
        &mut self,
        fill: impl FnOnce(&mut Group<'a>) -> Result<()>,
    ) -> Result<Vec<(usize, usize)>> {
        let mut group =
            Group { rank: self.rank(), world: self.world(), batch: MessageBatch::default() };
        fill(&mut group)?;
        self.run_batch(group.batch)
    }

    /// Receives a message into `data`. Returns the rank that sent it and its number of elements.
    fn receive(
        &mut self,
        operation: &'static str,
        data: AnySliceMut<'_>,
        from: Option<usize>,
        tag: u32,
    ) -> Result<(usize, usize)> {
        self.check_slice(operation, data.flaw())?;
        data.memory.write(|room| {
            let mut batch = MessageBatch::default();
            batch.add(Room(room), data.kind, from, tag);
            Ok(self.run_batch(batch)?[0])
        })
    }

    /// True if a message of `bytes` bytes to this rank itself would not wait for its receive.
    fn is_eager_here(&mut self, bytes: usize) -> bool {
        let rank = self.rank();
        let (_, _, driven) = self.engine.with_messages();
        driven.links.is_eager(bytes, rank)
    }

    pub(crate) fn check_peer(&self, operation: &'static str, peer: usize) -> Result<()> {
        check_peer(operation, self.rank(), self.world(), peer)
    }

    fn run_batch(&mut self, mut batch: MessageBatch<'_>) -> Result<Vec<(usize, usize)>> {
        let (engine, messages, mut driven) = self.engine.with_messages();
        engine.check_usable(|| batch.title())?;
        let mut recorder = engine.recorder.take();
        let mut recording = recorder.as_deref_mut().filter(|it| it.is_recording());
        let DrivenMessages { links, requests } = &mut *driven;
        let context = messages.context(engine.waiting());
        let mut noted = false;
        let slow = |batch: &MessageBatch<'_>| {
            noted = true;
            let (words, peer, step) = batch.awaited();
            engine.health.begin_message(words, peer, step);
        };
        engine.health.activity.begin_messages();
        if let Some(recorder) = &mut recording {
            recorder.begin();
        }
        let ended = links.run(&mut batch, requests, &context, recording.as_deref_mut(), slow);
        if let Some(recorder) = recording {
            recorder.end(batch.recorded(), ended.as_ref().err().map(|failed| failed.peer));
        }
        drop(driven);
        engine.recorder = recorder;
        engine.health.activity.end_messages(batch.len());
        if noted {
            engine.health.end_message();
        }
        let allowed = engine.limits.allowed();
        ended.map_err(|failed| engine.health.explain_message(failed, allowed))?;
        batch.arrivals().map_err(|misfit| misfit_error(self.rank(), misfit))
    }
}

fn check_peer(operation: &'static str, rank: usize, world: usize, peer: usize) -> Result<()> {
    if peer < world {
        return Ok(());
    }
    let why = format!("rank {peer} is not one of the {world} ranks");
    Err(Error::Invalid { rank, operation, why })
}

/// Sends and receives that are posted together; see [`Communicator::group`].
#[derive(Debug)]
pub struct Group<'a> {
    rank: usize,
    world: usize,
    batch: MessageBatch<'a>,
}

impl<'a> Group<'a> {
    /// As [`Communicator::send`], but returns immediately at any length of the message. A rank may
    /// also send to itself.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there is no such rank.
    pub fn send<T: Element>(&mut self, data: &'a [T], to: usize, tag: u32) -> Result<()> {
        check_peer("send", self.rank, self.world, to)?;
        self.batch.add(Data(View::of(data)), T::DATA_TYPE, Some(to), tag);
        Ok(())
    }

    /// As [`Communicator::recv`]; the data is valid once the group has run. `bool` cannot be
    /// received in a group, because not every byte is a `bool`: receive `u8`.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there is no such rank.
    pub fn recv<T: Element + Pod>(
        &mut self,
        data: &'a mut [T],
        from: usize,
        tag: u32,
    ) -> Result<()> {
        check_peer("recv", self.rank, self.world, from)?;
        self.batch.add(Room(ViewMut::of(data)), T::DATA_TYPE, Some(from), tag);
        Ok(())
    }

    /// As [`Communicator::recv_any`]; the data is valid once the group has run. `bool` cannot be
    /// received in a group: receive `u8`.
    ///
    /// # Errors
    /// None in this version.
    pub fn recv_any<T: Element + Pod>(&mut self, data: &'a mut [T], tag: u32) -> Result<()> {
        self.batch.add(Room(ViewMut::of(data)), T::DATA_TYPE, None, tag);
        Ok(())
    }
}
