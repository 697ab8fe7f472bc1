//! The streams of one rank: the messages that are posted and not yet sent, and the message of each
//! peer that is expected.
//!
//! A stream keeps no pointers, so a posted message is remembered here as a range of one of the
//! call's buffers and offered again until it has left. A rank that waits for any peer moves bytes
//! in both directions on all streams of the program, so the progress of a rank does not depend on
//! which peer it waits for.

use super::cursor::{Advance, ReceiveCursor, SendCursor};
use super::polling::StreamActivity;
use super::{AnyStream, Buffers};
use crate::lower::Program;
use crate::schedule::Buffer;
use maypole_kernels::{Region, View};
use maypole_transports::poll::Interest;
use maypole_transports::{Fault, HEAD, Head, Sleep, Stream};
use std::collections::VecDeque;
use std::os::fd::BorrowedFd;

/// A range of one of the call's buffers, in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct BufferRange {
    pub(super) buffer: Buffer,
    pub(super) offset: usize,
    pub(super) len: usize,
}

/// A message to receive.
#[derive(Clone, Copy, Debug)]
pub(super) struct ExpectedMessage {
    /// Where its body goes; `None` for the staging buffer of its stream.
    pub(super) into: Option<BufferRange>,
    /// Bytes of its body.
    pub(super) len: usize,
}

/// A message that was posted and has not left as a whole.
#[derive(Debug)]
struct PostedMessage {
    head: [u8; HEAD],
    body: BufferRange,
}

/// The stream to one peer, with what it has still to send and to receive.
#[derive(Debug)]
struct PeerStream {
    stream: AnyStream,
    posted: VecDeque<PostedMessage>,
    /// The position in the first posted message.
    sending: SendCursor,
    /// Messages posted since the stream was made.
    posts: u64,
    /// Messages that have left in this run.
    flushed: u64,
    /// Messages received since the stream was made.
    taken: u64,
    expected: Option<ExpectedMessage>,
    /// The position in the expected message.
    receiving: ReceiveCursor,
    /// Holds an expected message that does not go straight to its place.
    staging: Region,
    fault: Option<Fault>,
}

impl PeerStream {
    fn new(stream: AnyStream) -> Self {
        Self {
            stream,
            posted: VecDeque::new(),
            sending: SendCursor::default(),
            posts: 0,
            flushed: 0,
            taken: 0,
            expected: None,
            receiving: ReceiveCursor::default(),
            staging: Region::new(0),
            fault: None,
        }
    }

    /// Makes room for a message of `bytes` bytes; false if there is no memory for it.
    fn has_room(&mut self, bytes: usize) -> bool {
        if self.staging.len() < bytes {
            match Region::try_new(bytes) {
                Some(staging) => self.staging = staging,
                None => return false,
            }
        }
        true
    }

    /// Sends as much as the stream takes now; true if any byte left.
    fn push(&mut self, buffers: &Buffers<'_>) -> bool {
        let mut moved = false;
        while let Some(PostedMessage { head, body }) = self.posted.front() {
            let body = buffers.read(body.buffer, (body.offset, body.len));
            match self.sending.advance(&mut self.stream, head, body) {
                Ok(Advance::Blocked) => return moved,
                Ok(Advance::Partial) => {}
                Ok(Advance::Complete) => {
                    self.posted.pop_front();
                    self.flushed += 1;
                }
                Err(fault) => {
                    self.fault.get_or_insert(fault);
                    return moved;
                }
            }
            moved = true;
        }
        moved
    }

    /// Receives as much of the expected message as has arrived; true if any byte has.
    fn pull(&mut self, buffers: &Buffers<'_>) -> bool {
        let mut moved = false;
        let Some(expected) = self.expected else { return moved };
        while !self.receiving.is_complete(expected.len) {
            let body = match expected.into {
                Some(range) => buffers.write(range.buffer, (range.offset, range.len)),
                None => self.staging.view().slice(0, expected.len),
            };
            match self.receiving.advance(&mut self.stream, body) {
                Ok(Advance::Blocked) => return moved,
                Ok(Advance::Partial | Advance::Complete) => moved = true,
                Err(fault) => {
                    self.fault.get_or_insert(fault);
                    return moved;
                }
            }
        }
        moved
    }

    /// The event that ends a sleep early, if there is one.
    fn interest(&self) -> Option<(BorrowedFd<'_>, Interest)> {
        let reads = self.expected.is_some_and(|expected| !self.receiving.is_complete(expected.len));
        self.stream.interest(reads, !self.posted.is_empty())
    }
}

/// All streams of one rank.
#[derive(Debug, Default)]
pub struct PeerStreams {
    /// By rank.
    streams: Vec<Option<PeerStream>>,
    /// By index of the running program's streams: the rank at the other end.
    active: Vec<usize>,
    activity: StreamActivity,
}

impl PeerStreams {
    /// Adds the stream to `rank`.
    pub fn insert(&mut self, rank: usize, stream: AnyStream) {
        if self.streams.len() <= rank {
            self.streams.resize_with(rank + 1, || None);
        }
        self.streams[rank] = Some(PeerStream::new(stream));
    }

    /// True if there is a stream to `rank`.
    pub fn contains(&self, rank: usize) -> bool {
        self.streams.get(rank).is_some_and(Option::is_some)
    }

    /// Says on all streams that nothing more will be sent.
    pub fn finish(&mut self) {
        self.streams.iter_mut().flatten().for_each(|peer| peer.stream.finish());
    }

    /// Makes room for the messages of `program` that do not go straight to their places. Returns
    /// false if there is no memory for them.
    pub fn reserve(&mut self, program: &Program) -> bool {
        program.streams.iter().all(|stream| {
            let peer = self.streams.get_mut(stream.peer as usize).and_then(Option::as_mut);
            peer.is_none_or(|peer| peer.has_room(program.longest_staged))
        })
    }

    /// Prepares for a run of `program`. Makes room where [`reserve`](Self::reserve) was not called.
    pub(super) fn begin(&mut self, program: &Program) {
        self.active.clear();
        self.active.extend(program.streams.iter().map(|stream| stream.peer as usize));
        for rank in &self.active {
            let stream = self.streams.get_mut(*rank).and_then(Option::as_mut);
            let stream = stream.expect("streams are made before programs run");
            stream.flushed = 0;
            if stream.staging.len() < program.longest_staged {
                stream.staging = Region::new(program.longest_staged);
            }
        }
    }

    #[inline(always)]
    fn stream(&mut self, index: usize) -> &mut PeerStream {
        self.streams[self.active[index]].as_mut().expect("checked by `begin`")
    }

    /// The rank at the other end.
    pub(super) fn peer(&self, index: usize) -> usize {
        self.active[index]
    }

    /// Queues a message whose body is `body`.
    pub(super) fn post(&mut self, index: usize, body: BufferRange, fingerprint: u64) {
        let stream = self.stream(index);
        let head = Head { position: stream.posts, fingerprint }.to_bytes();
        stream.posted.push_back(PostedMessage { head, body });
        stream.posts += 1;
    }

    /// Sets the message that comes next and the place of its body.
    pub(super) fn expect(&mut self, index: usize, expected: ExpectedMessage) {
        let stream = self.stream(index);
        stream.expected = Some(expected);
        stream.receiving.restart();
    }

    /// `None` until the expected message has arrived. Then true if it is in its final place, false
    /// if it is in the staging buffer.
    ///
    /// # Errors
    /// The fingerprint of the message, if it belongs to another call.
    pub(super) fn arrived(&mut self, index: usize, fingerprint: u64) -> Result<Option<bool>, u64> {
        let stream = self.stream(index);
        let expected = stream.expected.expect("only expected messages are awaited");
        let Some(head) = stream.receiving.head() else { return Ok(None) };
        let head = Head::from_bytes(head);
        if head != (Head { position: stream.taken, fingerprint }) {
            return Err(head.fingerprint);
        }
        let complete = stream.receiving.is_complete(expected.len);
        Ok(complete.then_some(expected.into.is_some()))
    }

    /// The first `len` bytes of the staging buffer.
    pub(super) fn staged(&self, index: usize, len: usize) -> View<'_> {
        let stream = self.streams[self.active[index]].as_ref().expect("checked by `begin`");
        stream.staging.view().slice(0, len).as_view()
    }

    /// Ends the use of the expected message.
    pub(super) fn release(&mut self, index: usize) {
        let stream = self.stream(index);
        stream.expected = None;
        stream.taken += 1;
    }

    /// Messages that have left in this run.
    pub(super) fn flushed(&mut self, index: usize) -> u64 {
        self.stream(index).flushed
    }

    /// True if no posted message is left to send.
    pub(super) fn is_flushed(&mut self, index: usize) -> bool {
        self.stream(index).posted.is_empty()
    }

    /// Sends what can be sent now, on all streams of the program.
    pub(super) fn push(&mut self, buffers: &Buffers<'_>) {
        for index in 0..self.active.len() {
            let pushed = self.stream(index).push(buffers);
            self.activity.note(pushed);
        }
    }

    /// Sends and receives what can be moved now, on all streams of the program.
    pub(super) fn drive(&mut self, buffers: &Buffers<'_>) {
        for index in 0..self.active.len() {
            let stream = self.stream(index);
            let pushed = stream.push(buffers);
            let pulled = stream.pull(buffers);
            self.activity.note(pushed | pulled);
        }
    }

    /// The rank of the first stream that is lost, if any, and its fault.
    pub(super) fn take_fault(&mut self) -> Option<(usize, Fault)> {
        let mut active = self.active.iter().copied();
        active.find_map(|rank| Some((rank, self.streams[rank].as_mut()?.fault.take()?)))
    }

    /// Takes the `sleep`, which ends early if a stream can go on, unless bytes are on the move.
    pub(super) fn sleep(&mut self, sleep: Sleep<'_>) {
        let active = self.active.iter().filter_map(|rank| self.streams[*rank].as_ref());
        self.activity.sleep_if_idle(sleep, active.filter_map(PeerStream::interest));
    }
}

#[cfg(test)]
mod tests {
    use crate::algorithms::Algorithm;
    use crate::execute::{AnyStream, Buffers, ExecuteError, Executor, LinkError, Unwatched};
    use crate::lower::{LoweringInput, Program, lower};
    use crate::schedule::collective::Collective;
    use crate::schedule::hosts::Boards;
    use crate::schedule::{Layout, Placement};
    use maypole_kernels::{BinaryOp, BuiltInReducer, DataType, Region, View, ViewMut};
    use maypole_transports::{Alarm, HEAD, Head, Mem, Stream, SystemCalls, Tcp, Waiting, mem};
    use std::net::{TcpListener, TcpStream};
    use std::sync::Arc;
    use std::thread;
    use std::time::Duration;

    const FINGERPRINT: u64 = 7;
    const CALLS: u64 = 50;
    /// Far above what a lost link takes to be noticed.
    const TIMEOUT: Duration = Duration::from_secs(30);

    /// The program of the root that gathers one byte of each of three ranks.
    fn gather() -> Program {
        let collective = Collective::Gather { root: 0 };
        let input = LoweringInput {
            collective,
            schedules: &Algorithm::Linear.schedules(collective, 3).unwrap(),
            layout: &Layout::even(3, 3),
            element: 1,
            boards: &Boards::separate(3),
            window: 1 << 20,
            fingerprint: FINGERPRINT,
        };
        lower(&input, 0, Placement::Apart).unwrap()
    }

    /// Gathers from two peers, of which `lost` closes its stream and the other one sends its part.
    fn gather_without(lost: usize) -> Box<ExecuteError> {
        let program = gather();
        let waiting = Waiting::new(1, 1, TIMEOUT);
        let alarm = Arc::new(Alarm::default());
        let mut executor = Executor::new(0, waiting, alarm, Box::new(Unwatched));
        let mut peers: Vec<(usize, Mem)> = Vec::new();
        for peer in [1, 2] {
            let (here, there) = mem::pair(64);
            executor.streams().insert(peer, AnyStream::Mem(here));
            peers.push((peer, there));
        }
        peers.retain(|(peer, _)| *peer != lost);
        let head = Head { position: 0, fingerprint: FINGERPRINT }.to_bytes();
        let (_, sender) = &mut peers[0];
        assert_eq!(sender.send(&head, View::of(&[9u8]), 0).unwrap(), HEAD + 1);
        let mut output = [0u8; 3];
        let scratch = Region::new(program.scratch);
        let buffers = Buffers {
            input: View::of(&[5u8]),
            output: ViewMut::of(&mut output),
            scratch: scratch.view(),
        };
        let reducer = BuiltInReducer::new(DataType::U8, BinaryOp::Sum).into();
        executor.run(&program, &reducer, &buffers).unwrap_err()
    }

    /// Adds eight bytes of two ranks `CALLS` times, over `stream` to rank `1 - rank`. Returns the
    /// system calls that it took.
    fn add(rank: usize, stream: Tcp) -> SystemCalls {
        let collective = Collective::AllReduce;
        let schedules = Algorithm::OneShot.schedules(collective, 2).unwrap();
        let input = LoweringInput {
            collective,
            schedules: &schedules,
            layout: &Layout::even(8, schedules[0].chunks),
            element: 1,
            boards: &Boards::separate(2),
            window: 1 << 20,
            fingerprint: FINGERPRINT,
        };
        let program = lower(&input, rank, Placement::Apart).unwrap();
        let alarm = Arc::new(Alarm::default());
        let waiting = Waiting::new(2, 1, TIMEOUT);
        let mut executor = Executor::new(rank, waiting, alarm, Box::new(Unwatched));
        executor.streams().insert(1 - rank, AnyStream::Tcp(stream));
        let mine = [1 + rank as u8; 8];
        let mut output = [0u8; 8];
        let scratch = Region::new(program.scratch);
        let buffers = Buffers {
            input: View::of(&mine),
            output: ViewMut::of(&mut output),
            scratch: scratch.view(),
        };
        let reducer = BuiltInReducer::new(DataType::U8, BinaryOp::Sum).into();
        for _ in 0..CALLS {
            executor.run(&program, &reducer, &buffers).unwrap();
        }
        assert_eq!(output, [3; 8]);
        match &executor.streams.streams[1 - rank].as_ref().unwrap().stream {
            AnyStream::Tcp(stream) => stream.system_calls(),
            _ => unreachable!("it was inserted above"),
        }
    }

    #[test]
    fn a_short_message_takes_one_system_call_at_either_end() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let ends = [near, listener.accept().unwrap().0];
        let ranks = ends.map(|socket| Tcp::new(socket).unwrap()).into_iter().enumerate();
        let threads: Vec<_> =
            ranks.map(|(rank, end)| thread::spawn(move || add(rank, end))).collect();
        for thread in threads {
            let calls = thread.join().unwrap();
            assert_eq!(calls.sending, CALLS);
            // Two messages that wait together are received together.
            assert!(calls.receiving <= CALLS, "{calls:?}");
        }
    }

    #[test]
    fn the_loss_of_any_stream_is_noticed() {
        for lost in [1, 2] {
            let error = gather_without(lost);
            let is_lost = error.peer == lost && matches!(error.error, LinkError::Lost(_));
            assert!(is_lost, "rank {lost} is lost, and the executor says {error:?}");
        }
    }
}
