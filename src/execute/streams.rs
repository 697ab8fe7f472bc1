//! The streams of one rank: the messages that are posted and not yet sent, and the message of each
//! peer that is expected.
//!
//! A stream keeps no pointers, so a posted message is recorded here as a range of one of the call's
//! buffers and offered again until it has left. A rank that waits for any peer moves bytes in both
//! directions on all streams of the program, so its progress does not depend on the awaited peer.

use super::peer_stream::{PeerStream, TOGETHER};
use super::{AnyStream, Buffers};
use crate::lower::Program;
use maypole_kernels::View;
use maypole_transports::{Fault, Sleep, Stream};

/// All streams of one rank.
#[derive(Debug, Default)]
pub struct PeerStreams {
    /// By rank.
    streams: Vec<Option<PeerStream>>,
    /// By index of the running program's streams: the rank at the other end.
    active: Vec<usize>,
    /// Bytes have moved since the last sleep. A rank sleeps only if none have: if the two ends of a
    /// stream slept in turn, each sleep would move at most the capacity of the stream.
    moved: bool,
    /// Room for messages that leave together.
    gathered: Vec<u8>,
}

impl PeerStreams {
    /// Adds the stream to `rank`.
    pub fn insert(&mut self, rank: usize, stream: AnyStream) {
        if self.streams.len() <= rank {
            self.streams.resize_with(rank + 1, || None);
        }
        self.gathered.resize(TOGETHER, 0);
        self.streams[rank] = Some(PeerStream::new(stream));
    }

    /// True if there is a stream to `rank`.
    pub fn contains(&self, rank: usize) -> bool {
        self.streams.get(rank).is_some_and(Option::is_some)
    }

    /// Finishes sending on all streams.
    pub fn finish(&mut self) {
        self.streams.iter_mut().flatten().for_each(|peer| peer.stream.finish());
    }

    /// Makes room for the staged messages of `program`. Returns false if there is no memory for
    /// them.
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
            stream.begin(program.longest_staged);
        }
    }

    /// The stream with this index in the running program.
    #[inline(always)]
    pub(super) fn at(&mut self, index: usize) -> &mut PeerStream {
        self.stream_and_room(index).0
    }

    #[inline(always)]
    fn stream_and_room(&mut self, index: usize) -> (&mut PeerStream, &mut [u8]) {
        let stream = self.streams[self.active[index]].as_mut();
        (stream.expect("checked by `begin`"), &mut self.gathered)
    }

    /// The rank at the other end.
    pub(super) fn peer(&self, index: usize) -> usize {
        self.active[index]
    }

    /// The first `len` bytes of the staging buffer.
    pub(super) fn staged(&self, index: usize, len: usize) -> View<'_> {
        self.streams[self.active[index]].as_ref().expect("checked by `begin`").staged(len)
    }

    /// Sends without waiting, on all streams of the program.
    pub(super) fn push(&mut self, buffers: &Buffers<'_>) {
        for index in 0..self.active.len() {
            let (stream, gathered) = self.stream_and_room(index);
            let pushed = stream.push(buffers, gathered);
            self.moved |= pushed;
        }
    }

    /// Sends and receives without waiting, on all streams of the program.
    pub(super) fn drive(&mut self, buffers: &Buffers<'_>) {
        for index in 0..self.active.len() {
            let (stream, gathered) = self.stream_and_room(index);
            let pushed = stream.push(buffers, gathered);
            let pulled = stream.pull(buffers);
            self.moved |= pushed | pulled;
        }
    }

    /// The rank of the first stream that is lost, if any, and its fault.
    pub(super) fn take_fault(&mut self) -> Option<(usize, Fault)> {
        let mut active = self.active.iter().copied();
        active.find_map(|rank| Some((rank, self.streams[rank].as_mut()?.fault.take()?)))
    }

    /// Takes the `sleep`, which ends early if a stream can progress, unless bytes are on the move.
    pub(super) fn sleep(&mut self, sleep: Sleep<'_>) {
        if std::mem::take(&mut self.moved) {
            return;
        }
        let streams = &mut self.streams;
        let is_quiet =
            |rank: &usize| streams[*rank].as_mut().is_none_or(|it| it.stream.prepare_to_sleep());
        if !sleep.is_in_background() && !self.active.iter().all(is_quiet) {
            return;
        }
        let active = self.active.iter().filter_map(|rank| self.streams[*rank].as_ref());
        sleep.take(active.filter_map(PeerStream::interest));
    }

    /// Makes closing the streams not flush.
    pub fn abandon(&mut self) {
        self.streams.iter_mut().flatten().for_each(|peer| peer.stream.abandon());
    }
}

#[cfg(test)]
mod tests {
    use crate::algorithms::Algorithm;
    use crate::execute::{AnyStream, Buffers, ExecuteError, Executor, LinkError};
    use crate::lower::{LoweringInput, Program, lower};
    use crate::schedule::collective::Collective;
    use crate::schedule::hosts::Boards;
    use crate::schedule::{Layout, Placement};
    use maypole_kernels::{BinaryOp, BuiltInReducer, DataType, Region, View, ViewMut};
    use maypole_transports::poll::PollFd;
    use maypole_transports::{Alarm, Fault, HEAD, Head, Mem, Stream, Tcp, Waiting, mem};
    use std::net::{TcpListener, TcpStream};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::thread;
    use std::time::Duration;

    const FINGERPRINT: u64 = 7;
    const CALLS: u64 = 50;
    /// Far above the detection time of a lost link.
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
        let mut executor = Executor::new(0, waiting, alarm, Arc::new(()));
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

    /// A stream over TCP, and how many of its calls have sent and received bytes: each is at most one
    /// system call.
    #[derive(Debug)]
    struct Counted(Tcp, Arc<[AtomicU64; 2]>);

    impl Stream for Counted {
        fn send(&mut self, head: &[u8; HEAD], body: View<'_>, skip: usize) -> Result<usize, Fault> {
            let sent = self.0.send(head, body, skip)?;
            self.1[0].fetch_add(u64::from(sent > 0), Ordering::Relaxed);
            Ok(sent)
        }

        fn receive(
            &mut self,
            head: &mut [u8; HEAD],
            body: ViewMut<'_>,
            skip: usize,
        ) -> Result<usize, Fault> {
            let received = self.0.receive(head, body, skip)?;
            self.1[1].fetch_add(u64::from(received > 0), Ordering::Relaxed);
            Ok(received)
        }

        fn interest(&self, reads: bool, writes: bool) -> Option<PollFd<'_>> {
            self.0.interest(reads, writes)
        }

        fn finish(&mut self) {
            self.0.finish();
        }
    }

    /// Runs the collective of eight bytes `CALLS` times on rank `rank`, over `streams`, which lead to
    /// all other ranks. Returns the result of the last call, and how many calls of each stream have sent
    /// and received.
    fn run_rank(
        rank: usize,
        (algorithm, collective): (Algorithm, Collective),
        streams: Vec<(usize, Tcp)>,
    ) -> ([u8; 8], Vec<[u64; 2]>) {
        let world = streams.len() + 1;
        let schedules = algorithm.schedules(collective, world).unwrap();
        let layout = Layout::even(8, schedules[0].chunks);
        let input = LoweringInput {
            collective,
            schedules: &schedules,
            layout: &layout,
            element: 1,
            boards: &Boards::separate(world),
            window: 1 << 20,
            fingerprint: FINGERPRINT,
        };
        let program = lower(&input, rank, Placement::Apart).unwrap();
        let alarm = Arc::new(Alarm::default());
        let waiting = Waiting::new(world, 2, TIMEOUT);
        let mut executor = Executor::new(rank, waiting, alarm, Arc::new(()));
        let mut calls = Vec::new();
        for (peer, stream) in streams {
            calls.push(Arc::<[AtomicU64; 2]>::default());
            let counted = Counted(stream, Arc::clone(&calls[calls.len() - 1]));
            executor.streams().insert(peer, AnyStream::Test(Box::new(counted)));
        }
        let mine = [1 + rank as u8; 8];
        let mut output = [0u8; 8];
        let scratch = Region::new(program.scratch);
        let contributed = match collective {
            Collective::AllGather => layout.range(rank).len(),
            _ => mine.len(),
        };
        let buffers = Buffers {
            input: View::of(&mine[..contributed]),
            output: ViewMut::of(&mut output),
            scratch: scratch.view(),
        };
        let reducer = BuiltInReducer::new(DataType::U8, BinaryOp::Sum).into();
        for _ in 0..CALLS {
            executor.run(&program, &reducer, &buffers).unwrap();
        }
        let numbers =
            |calls: &Arc<[AtomicU64; 2]>| calls.each_ref().map(|it| it.load(Ordering::Relaxed));
        (output, calls.iter().map(numbers).collect())
    }

    /// The results of `world` ranks, as threads over TCP.
    fn run_ranks(world: usize, call: (Algorithm, Collective)) -> Vec<([u8; 8], Vec<[u64; 2]>)> {
        let mut streams: Vec<Vec<(usize, Tcp)>> = (0..world).map(|_| Vec::new()).collect();
        for second in 0..world {
            for first in 0..second {
                let [here, there] = connection();
                streams[first].push((second, here));
                streams[second].push((first, there));
            }
        }
        let ranks = streams.into_iter().enumerate();
        let threads: Vec<_> = ranks
            .map(|(rank, streams)| thread::spawn(move || run_rank(rank, call, streams)))
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    }

    /// The two ends of a connection.
    fn connection() -> [Tcp; 2] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        [near, listener.accept().unwrap().0].map(|socket| Tcp::new(socket).unwrap())
    }

    #[test]
    fn a_short_message_takes_one_system_call_at_either_end() {
        for (output, calls) in run_ranks(2, (Algorithm::OneShot, Collective::AllReduce)) {
            assert_eq!(output, [3; 8]);
            assert_eq!(calls, [[CALLS; 2]]);
        }
    }

    /// In the second step each rank sends two blocks, its own and the one that it has received.
    #[test]
    fn blocks_of_one_step_leave_together() {
        for (output, calls) in run_ranks(4, (Algorithm::RecursiveDoubling, Collective::AllGather)) {
            assert_eq!(output, [1, 1, 2, 2, 3, 3, 4, 4]);
            let mut sending: Vec<u64> = calls.iter().map(|[sending, _]| *sending).collect();
            sending.sort_unstable();
            assert_eq!(sending, [0, CALLS, CALLS]);
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
