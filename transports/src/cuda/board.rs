//! One rank's mailboxes and those of the others, and the launch of programs over them.

use super::Result;
use super::arena::Reached;
use super::code::{ProgramCall, refused};
use super::copies;
use super::gpu_slots::SlotArena;
use super::launch::{self, EACH, KernelLaunch, Launches, Lent, MOST_LAUNCHES, Protocol};
use super::layout::{Room, Shapes};
use super::locals::Locals;
use super::memory::LentMemory;
use super::order::{BesideCapture, CallStream, WorkOrder};
use super::use_table::UseTable;
use super::words::{ABORTED, ReportWords};
use cudarc::driver::{CudaFunction, CudaStream};
use maypole_kernels::cuda::WALK_THREADS;
use std::sync::Arc;

/// One rank's view of the mailboxes of a group on GPUs.
///
/// # Obligations of the ranks of a board
/// As on a [`Board`](crate::Board): all ranks launch programs that were lowered from one call, in
/// the same order. A kernel whose wait times out aborts, and [`words`](Self::words) hold the reason.
#[derive(Debug)]
pub struct DeviceBoard {
    pub(super) order: WorkOrder,
    pub(super) memory: LentMemory,
    /// The ranks that still use it, if some are other processes.
    pub(super) table: Option<Arc<UseTable>>,
    /// A stream on which nothing waits for a kernel.
    pub(super) aside: Arc<CudaStream>,
    pub(super) others: Vec<Reached>,
    /// If slots are in the memory of GPUs and all else in that of hosts.
    pub(super) slots: Option<SlotArena>,
    pub(super) words: Arc<ReportWords>,
    pub(super) shapes: Shapes,
    pub(super) locals: Locals,
}

impl DeviceBoard {
    /// The words by which kernels report an abort, and by which the host requests one.
    pub fn words(&self) -> &Arc<ReportWords> {
        &self.words
    }

    /// The mailboxes.
    pub fn shapes(&self) -> &Shapes {
        &self.shapes
    }

    /// Orders the work that `work` starts on the stream after all earlier work of the rank on any
    /// stream, and before all later work.
    ///
    /// # Errors
    /// [`CudaError`](maypole_kernels::cuda::CudaError) if the driver refuses it; else as `work`.
    pub fn in_order<T>(
        &mut self,
        on: &CallStream<'_>,
        work: impl FnOnce(&mut Self) -> Result<T>,
    ) -> Result<T> {
        let context = self.order.work();
        let _started = context.started();
        self.order.enter(on)?;
        let done = work(self);
        self.order.leave(on)?;
        done
    }

    /// [`in_order`](Self::in_order) on the stream that the board was made with.
    ///
    /// # Errors
    /// As there.
    pub fn at_home<T>(&mut self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let home = Arc::clone(&self.order.home);
        self.in_order(&CallStream { stream: &home, graph: None }, |_| work())
    }

    /// True if all work of the rank is done, or has failed.
    pub fn is_drained(&self) -> bool {
        self.order.is_drained()
    }

    /// Starts `kernel` on `calls`, when all earlier work of the stream is done: within
    /// [`in_order`](Self::in_order). Beside the calls it copies each of `copied` from the first place to
    /// the second. One launch has 16 of both. They run concurrently as far as blocks are reserved for them,
    /// and else in their order, which must be one order on all ranks: calls of two ranks follow one
    /// another in the same way on both.
    ///
    /// # Errors
    /// [`CudaError`](maypole_kernels::cuda::CudaError) if a buffer is too short for its program, or if the driver
    /// refuses the launch.
    pub fn launch(
        &mut self,
        on: &CallStream<'_>,
        kernel: &CudaFunction,
        calls: &[ProgramCall<'_>],
        copied: &[(Lent<'_>, Lent<'_>)],
    ) -> Result<()> {
        let described = calls.iter().map(|call| Ok((Some(call.room), self.describe(call)?)));
        let mut all = described.collect::<Result<Vec<_>>>()?;
        all.extend(copied.iter().map(|(from, into)| (None, self.describe_copy(*from, *into))));
        calls.iter().for_each(|call| self.order.count(call.room.message()));
        for part in all.chunks(MOST_LAUNCHES) {
            let (blocks, launches) = placed(part, self.shapes.most_blocks());
            // SAFETY: the kernel takes `Launches` by value. Programs were checked when they were
            // loaded, and `describe` checks that their buffers are long enough; both ends of a copy
            // are as long as it is. No launch has more lanes than there are blocks.
            unsafe { launch::start(on, kernel, (blocks, WALK_THREADS), &launches)? };
        }
        Ok(())
    }

    /// A launch without ranks, which copies as much of `from` as `into` has room for.
    fn describe_copy(&self, from: Lent<'_>, into: Lent<'_>) -> KernelLaunch {
        let bytes = from.bytes().min(into.bytes());
        let shape = self.shapes.groups.last().expect("a group has mailboxes");
        KernelLaunch {
            input: from.address(),
            output: into.address(),
            slot_bytes: bytes,
            lanes: shape.lanes_of(bytes),
            ..KernelLaunch::default()
        }
    }

    fn describe(
        &self,
        ProgramCall { room, code, longest, scratch, call }: &ProgramCall<'_>,
    ) -> Result<KernelLaunch> {
        let shape = self.shapes.of(*room);
        let parts = self.locals.parts[self.shapes.index(*room, self.others.len())];
        let (needs, header) = (code.needs, &code.header);
        let lanes = shape.lanes_of(*longest);
        let part = needs.publication.div_ceil(16).div_ceil(u64::from(lanes)) * 16;
        let enough = needs.input <= call.input.bytes()
            && needs.output <= call.output.bytes()
            && needs.scratch <= scratch.bytes()
            && part <= shape.piece() as u64;
        if !enough || header.ranks as usize != parts.members {
            let why = format!("it needs {needs:?}, which its buffers do not have");
            return Err(refused(why));
        }
        let local = self.locals.memory.address();
        let [abort, report, gone] = self.words.addresses();
        let tells_late =
            shape.protocol == Protocol::LowLatency && needs.publications <= u64::from(shape.slots);
        Ok(KernelLaunch {
            program: code.address,
            mailboxes: local + parts.mailboxes as u64,
            ours: parts.ours,
            published: local + parts.published as u64,
            audiences: local + parts.audiences as u64,
            input: call.input.address(),
            output: call.output.address(),
            scratch: scratch.address(),
            abort,
            report,
            gone,
            failed: self.locals.failed,
            patience: call.patience,
            slot_bytes: shape.slot_bytes() as u64,
            slots: shape.slots,
            protocol: shape.protocol as u32,
            fingerprint: call.fingerprint,
            bytes: header.bytes as u32,
            ranks: header.ranks,
            me: header.me,
            lanes,
            room: shape.lanes,
            first: 0,
            other: room.message().map_or(EACH, |(rank, _)| rank as u32),
            tells_late: u32::from(tells_late),
            number: call.number,
        })
    }

    /// Makes all kernels of the rank that begin after this end immediately, also those of graphs.
    /// Waits until all earlier work of the rank is done.
    ///
    /// # Errors
    /// [`CudaError`](maypole_kernels::cuda::CudaError) if the driver refuses it.
    pub fn refuse_walks(&mut self) -> Result<()> {
        self.drain();
        let word = ABORTED.to_ne_bytes();
        let place = Lent::of_owner(self.locals.failed, word.len() as u64);
        let _beside = BesideCapture::begin();
        copies::write(&self.aside, place, &word)?;
        self.order.forget_graphs();
        Ok(())
    }

    /// Waits until all work of the rank is done, or has failed.
    pub fn drain(&self) {
        // A kernel that failed leaves an error here, which its calls have reported.
        let _ = self.order.drain();
    }
}

/// The blocks of a launch of these, at most `most`, and which of them are the lanes of which. Two calls over the
/// same mailboxes have the same blocks, so that they follow one another.
fn placed(of: &[(Option<Room>, KernelLaunch)], most: u32) -> (u32, Launches) {
    let total: u32 = of.iter().map(|(_, launch)| launch.lanes).sum();
    let blocks = total.min(most);
    let mut all = [KernelLaunch::default(); MOST_LAUNCHES];
    let mut next = 0;
    for (at, (room, launch)) in of.iter().enumerate() {
        let earlier = of[..at].iter().position(|(other, _)| room.is_some() && other == room);
        let first = earlier.map_or(next % blocks, |earlier| all[earlier].first);
        all[at] = KernelLaunch { first, ..*launch };
        next += launch.lanes;
    }
    (blocks, Launches { count: of.len() as u32, unused: 0, of: all })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn firsts(of: &[(Option<Room>, u32)], most: u32) -> (u32, Vec<u32>) {
        let launch = |(room, lanes): &(_, u32)| {
            (*room, KernelLaunch { lanes: *lanes, ..KernelLaunch::default() })
        };
        let of: Vec<_> = of.iter().map(launch).collect();
        let (blocks, launches) = placed(&of, most);
        assert!(of.iter().all(|(_, launch)| launch.lanes <= blocks && blocks <= most));
        (blocks, launches.of[..of.len()].iter().map(|launch| launch.first).collect())
    }

    /// A group of messages is one launch: beside one another as far as there are blocks, which is never
    /// more than are reserved.
    #[test]
    fn a_launch_has_no_more_blocks_than_are_reserved() {
        let [to, from] = [Some(Room::To(1)), Some(Room::From(1))];
        assert_eq!(firsts(&[(to, 2), (from, 2), (None, 1)], 48), (5, vec![0, 2, 4]));
        assert_eq!(firsts(&[(to, 40), (from, 40)], 48), (48, vec![0, 40]));
        assert_eq!(firsts(&[(to, 48), (from, 48), (None, 3)], 48), (48, vec![0, 0, 0]));
        assert_eq!(firsts(&[(to, 1), (from, 1)], 1), (1, vec![0, 0]));
        let twice = firsts(&[(to, 3), (from, 3), (to, 5), (from, 1)], 48);
        assert_eq!(twice, (12, vec![0, 3, 0, 3]), "two messages of one room follow one another");
    }
}
