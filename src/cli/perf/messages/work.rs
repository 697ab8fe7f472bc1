//! The messages of one rank, with their buffers.

use super::MessageTest;
use crate::perf::benchmark::{BenchmarkPoint, CallParameters};
use crate::perf::check::oracle::{Oracle, POISON};
use crate::perf::measure::batch::{CallBatch, NO_TIMES, SampledWork, Times};
use crate::perf::measure::workload::WorkloadBuffers;
use maypole::schedule::collective::Collective;
use maypole::{CallPath, Communicator, DataType, ReduceOp, Result};
use maypole_transports::clock::monotonic_ns;

/// Tags: of messages, and of those to the rank before in a ring; of confirmations.
const TAG: u32 = 1;
const BACK: u32 = 2;
const CONFIRM: u32 = 3;

/// What a rank does in a test.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum MessageRole {
    /// It waits until the others are done.
    Idle,
    /// It begins, or replies. `leads` is true for the rank that begins.
    Pair { peer: usize, leads: bool },
    /// It has two neighbours.
    Ring { before: usize, next: usize },
}

impl MessageRole {
    /// The role of `rank` where `pairs` send at the same time, the first of each leading.
    pub(crate) fn in_pairs(rank: usize, pairs: &[(usize, usize)]) -> Self {
        let role = |(first, second): &(usize, usize)| match rank {
            _ if rank == *first => Some(Self::Pair { peer: *second, leads: true }),
            _ if rank == *second => Some(Self::Pair { peer: *first, leads: false }),
            _ => None,
        };
        pairs.iter().find_map(role).unwrap_or(Self::Idle)
    }

    pub(crate) fn in_ring(rank: usize, world: usize) -> Self {
        Self::Ring { before: (rank + world - 1) % world, next: (rank + 1) % world }
    }
}

/// The contents of messages, sent and expected: the same numbers as a broadcast from their sender.
pub(crate) fn oracle(world: usize, offset: usize) -> Oracle {
    let (kind, op) = (DataType::U8, ReduceOp::Sum);
    let parameters = CallParameters { kind, op, world, offset };
    Oracle::new(parameters, Collective::Broadcast { root: 0 })
}

/// The messages of one rank in one test at one size.
pub(crate) struct MessageWork<'a> {
    test: MessageTest,
    bytes: usize,
    role: MessageRole,
    rank: usize,
    oracle: &'a Oracle,
    /// The input is what is sent.
    pub(crate) buffers: WorkloadBuffers,
}

impl<'a> MessageWork<'a> {
    /// Makes the buffers.
    ///
    /// # Errors
    ///
    /// If there is no memory for them.
    pub(crate) fn new(
        test: MessageTest,
        bytes: usize,
        role: MessageRole,
        rank: usize,
        offset: usize,
        oracle: &'a Oracle,
    ) -> anyhow::Result<Self> {
        let window = bytes * test.window(bytes);
        let lengths = match (test, role) {
            (_, MessageRole::Idle) => (0, 0),
            (MessageTest::Bandwidth, MessageRole::Pair { leads: true, .. }) => (window, 0),
            (MessageTest::Bandwidth, _) => (0, window),
            (MessageTest::Exchange, _) => (window, 2 * window),
            _ => (window, window),
        };
        let buffers = WorkloadBuffers::new(None, lengths, offset)?;
        Ok(Self { test, bytes, role, rank, oracle, buffers })
    }

    /// True if this rank's clock times the test: that of the rank that begins, and of all ranks
    /// where all do the same.
    fn is_timed(&self) -> bool {
        match self.role {
            MessageRole::Idle => false,
            MessageRole::Pair { leads, .. } => leads || self.test == MessageTest::Bidirectional,
            MessageRole::Ring { .. } => true,
        }
    }

    /// The ranks whose data this rank has received, in the order of its buffer.
    fn senders(&self) -> Vec<usize> {
        match self.role {
            MessageRole::Idle => Vec::new(),
            MessageRole::Pair { leads: true, .. } if self.test == MessageTest::Bandwidth => {
                Vec::new()
            }
            MessageRole::Pair { peer, .. } => vec![peer],
            MessageRole::Ring { before, .. } if self.test == MessageTest::SendRecv => vec![before],
            MessageRole::Ring { before, next } => vec![before, next],
        }
    }

    fn wrong_in(&self, received: &[u8], batch: u64) -> u64 {
        let senders = self.senders();
        let part = received.len() / senders.len().max(1);
        let parts = received.chunks_exact(part.max(1)).zip(senders);
        let wrong = |(bytes, root): (&[u8], usize)| {
            let collective = Collective::Broadcast { root };
            let (algorithm, count, shares) = (None, bytes.len(), None);
            let point = BenchmarkPoint { collective, algorithm, count, shares };
            self.oracle.wrong(&point, self.rank, batch, bytes)
        };
        parts.map(wrong).sum()
    }
}

impl SampledWork for MessageWork<'_> {
    fn fill(&mut self, batch: &CallBatch) -> Result<()> {
        let input = self.buffers.input.bytes_mut();
        let sent = input.len();
        self.oracle.write(input, self.rank, batch.number, 0..sent);
        self.buffers.each_output(batch, |bytes| bytes.fill(POISON));
        self.buffers.upload()
    }

    fn run(&mut self, comm: &mut Communicator, batch: &CallBatch) -> Result<Times> {
        if self.role == MessageRole::Idle {
            return Ok(NO_TIMES);
        }
        let (test, role, bytes) = (self.test, self.role, self.bytes);
        #[cfg(feature = "cuda")]
        if let Some(device) = &mut self.buffers.device {
            let times = device.run(batch, |mut calls| call(test, role, &mut calls))?;
            return Ok(if self.is_timed() { times } else { NO_TIMES });
        }
        let WorkloadBuffers { input, often, once, .. } = &mut self.buffers;
        let from = input.bytes();
        let start = monotonic_ns();
        for index in 0..batch.calls {
            if batch.begins(index) {
                let into = if index == batch.checked { &mut *once } else { &mut *often };
                let into = into.bytes_mut();
                call(test, role, &mut HostCalls { comm: &mut *comm, from, into, bytes })?;
            }
        }
        let end = monotonic_ns();
        Ok(if self.is_timed() { (start, end) } else { NO_TIMES })
    }

    fn wrong(&mut self, batch: &CallBatch) -> Result<u64> {
        self.buffers.download()?;
        Ok(self.buffers.wrong(batch, true, |received| self.wrong_in(received, batch.number)))
    }

    fn kind(&self) -> Option<(&'static str, CallPath)> {
        Some(("messages", CallPath::Staged))
    }

    fn parts(&self) -> f64 {
        self.test.parts(self.bytes)
    }
}

/// The messages of one call, in the memory of hosts or of GPUs. Peers have tags.
pub(super) trait MessageCalls {
    /// Sends all messages of the window to each of `to`, and receives as many from each of `from`,
    /// concurrently.
    fn together(&mut self, to: &[(usize, u32)], from: &[(usize, u32)]) -> Result<()>;

    /// Sends the confirmation of a window to `peer`, or receives it.
    fn confirm(&mut self, peer: usize, sends: bool) -> Result<()>;
}

/// Makes one call of `test` in this role.
#[inline]
pub(super) fn call(
    test: MessageTest,
    role: MessageRole,
    calls: &mut impl MessageCalls,
) -> Result<()> {
    match (role, test) {
        (MessageRole::Idle, _) => Ok(()),
        (MessageRole::Pair { peer, leads }, MessageTest::Bandwidth) => {
            match leads {
                true => calls.together(&[(peer, TAG)], &[])?,
                false => calls.together(&[], &[(peer, TAG)])?,
            }
            calls.confirm(peer, !leads)
        }
        (MessageRole::Pair { peer, .. }, MessageTest::Bidirectional) => {
            calls.together(&[(peer, TAG)], &[(peer, TAG)])
        }
        (MessageRole::Pair { peer, leads }, _) => {
            if leads {
                calls.together(&[(peer, TAG)], &[])?;
            }
            calls.together(&[], &[(peer, TAG)])?;
            if leads { Ok(()) } else { calls.together(&[(peer, TAG)], &[]) }
        }
        (MessageRole::Ring { before, next }, MessageTest::Exchange) => {
            calls.together(&[(next, TAG), (before, BACK)], &[(before, TAG), (next, BACK)])
        }
        (MessageRole::Ring { before, next }, _) => calls.together(&[(next, TAG)], &[(before, TAG)]),
    }
}

/// The messages of one call in the memory of hosts, of `bytes` bytes each.
struct HostCalls<'a> {
    comm: &'a mut Communicator,
    from: &'a [u8],
    into: &'a mut [u8],
    bytes: usize,
}

impl MessageCalls for HostCalls<'_> {
    #[inline]
    fn together(&mut self, to: &[(usize, u32)], from: &[(usize, u32)]) -> Result<()> {
        let (sent, into, bytes) = (self.from, &mut *self.into, self.bytes);
        let room = (into.len() / from.len().max(1)).max(1);
        let done = self.comm.group(|group| {
            for (room, (peer, tag)) in into.chunks_exact_mut(room).zip(from) {
                let mut messages = room.chunks_exact_mut(bytes);
                messages.try_for_each(|message| group.recv(message, *peer, *tag))?;
            }
            to.iter().try_for_each(|(peer, tag)| {
                let mut messages = sent.chunks_exact(bytes);
                messages.try_for_each(|message| group.send(message, *peer, *tag))
            })
        });
        done.map(drop)
    }

    fn confirm(&mut self, peer: usize, sends: bool) -> Result<()> {
        match sends {
            true => self.comm.send(&[1u8], peer, CONFIRM),
            false => self.comm.recv(&mut [0u8], peer, CONFIRM),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Wrong bytes that all ranks find in a batch of five calls, of which one may be left out.
    fn wrong(world: usize, test: MessageTest, out: Option<u64>) -> u64 {
        let found = Communicator::run_local(world, |mut comm| {
            let rank = comm.rank();
            let role = if test.is_of_pairs() {
                MessageRole::in_pairs(rank, &[(world - 1, 0)])
            } else {
                MessageRole::in_ring(rank, world)
            };
            let oracle = oracle(world, 16);
            let mut work = MessageWork::new(test, 5000, role, rank, 16, &oracle).unwrap();
            let (number, calls, checked, before, is_slow) = (7, 5, 3, 0, false);
            let batch = CallBatch { number, calls, checked, before, leave_out: out, is_slow };
            work.fill(&batch).unwrap();
            let times = work.run(&mut comm, &batch).unwrap();
            assert_eq!(times == NO_TIMES, !work.is_timed());
            work.wrong(&batch).unwrap()
        });
        found.into_iter().sum()
    }

    #[test]
    fn every_message_brings_what_its_sender_wrote() {
        for test in MessageTest::ALL {
            for world in [2, 3] {
                assert_eq!(wrong(world, test, None), 0, "{test:?} of {world}");
            }
        }
    }

    #[test]
    fn a_message_left_out_is_noticed() {
        for test in MessageTest::ALL {
            assert!(wrong(3, test, Some(4)) > 4000, "{test:?}");
        }
    }
}
