//! One rank's mailboxes and those of the others, and the launch of programs over them.

use super::arena::Reached;
use super::code::ProgramCall;
use super::copies;
use super::error::{DeviceError, Result};
use super::launch::{self, EACH, KernelLaunch, Launches, Lent, MOST_LAUNCHES, Protocol};
use super::layout::Shapes;
use super::lent_memory::LentMemory;
use super::locals::Locals;
use super::order::{BesideCapture, CallStream, WorkOrder};
use super::use_table::UseTable;
use super::words::{CLOSED, ReportWords};
use cudarc::driver::{CudaFunction, CudaStream};
use maypole_kernels::cuda::WALK_THREADS;
use std::sync::Arc;

/// One rank's view of the mailboxes of a group on GPUs.
///
/// # Obligations of the ranks of a board
/// As on a [`Board`](crate::Board): all ranks launch programs that were lowered from one call, in
/// the same order. A kernel whose wait times out aborts, and [`words`](Self::words) hold the
/// reason.
#[derive(Debug)]
pub struct DeviceBoard {
    pub(super) order: WorkOrder,
    pub(super) memory: LentMemory,
    /// The ranks that still use it, if some are other processes.
    pub(super) table: Option<Arc<UseTable>>,
    /// A stream on which nothing waits for a kernel.
    pub(super) aside: Arc<CudaStream>,
    pub(super) others: Vec<Reached>,
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
    /// [`DeviceError::Driver`] if the driver refuses it; else as `work`.
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
        self.order.at_home(work)
    }

    /// True if all work of the rank is done, or has failed.
    pub fn is_drained(&self) -> bool {
        self.order.is_drained()
    }

    /// Starts `kernel` on `calls` concurrently, when all earlier work of the stream is done: within
    /// [`in_order`](Self::in_order). Calls of one launch use different rooms with equally many
    /// lanes.
    ///
    /// # Errors
    /// [`DeviceError::Program`] if a buffer is too short for its program; [`DeviceError::Driver`]
    /// if the driver refuses the launch.
    ///
    /// # Panics
    /// If there are no calls, or more than 16.
    pub fn launch(
        &mut self,
        on: &CallStream<'_>,
        kernel: &CudaFunction,
        calls: &[ProgramCall<'_>],
    ) -> Result<()> {
        assert!((1..=MOST_LAUNCHES).contains(&calls.len()), "a launch has 1 to 16 calls");
        let lanes = self.shapes.of(calls[0].room).lanes;
        let mut launches =
            Launches { lanes, unused: 0, of: [KernelLaunch::default(); MOST_LAUNCHES] };
        for (launch, call) in launches.of.iter_mut().zip(calls) {
            *launch = self.describe(call)?;
        }
        let grid = (lanes * calls.len() as u32, WALK_THREADS);
        // SAFETY: the kernel takes `Launches` by value. Programs were checked when they were
        // loaded, and `describe` checks that their buffers are long enough.
        unsafe { launch::start(on, kernel, grid, &launches) }
    }

    fn describe(
        &self,
        ProgramCall { room, code, scratch, call }: &ProgramCall<'_>,
    ) -> Result<KernelLaunch> {
        let shape = self.shapes.of(*room);
        let parts = self.locals.parts[self.shapes.index(*room, self.others.len())];
        let (needs, header) = (code.needs, &code.header);
        let enough = needs.input <= call.input.bytes()
            && needs.output <= call.output.bytes()
            && needs.scratch <= scratch.bytes()
            && needs.publication <= shape.bytes as u64;
        if !enough || header.ranks as usize != parts.members {
            let why = format!("it needs {needs:?}, which its buffers do not have");
            return Err(DeviceError::Program(why));
        }
        let local = self.locals.memory.address();
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
            abort: self.words.abort_address(),
            report: self.words.report_address(),
            gone: self.words.gone_address(),
            failed: self.locals.failed,
            patience: call.patience,
            slot_bytes: shape.slot_bytes() as u64,
            slots: shape.slots,
            protocol: shape.protocol.number(),
            fingerprint: call.fingerprint,
            bytes: header.bytes as u32,
            ranks: header.ranks,
            me: header.me,
            element: header.element,
            other: room.other().map_or(EACH, |rank| rank as u32),
            tells_late: u32::from(tells_late),
            number: call.number,
        })
    }

    /// Makes all kernels of the rank that begin after this end immediately, also those of graphs.
    /// Waits until all earlier work of the rank is done.
    ///
    /// # Errors
    /// [`DeviceError::Driver`] if the driver refuses it.
    pub fn refuse_walks(&mut self) -> Result<()> {
        self.drain();
        let word = CLOSED.to_ne_bytes();
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
