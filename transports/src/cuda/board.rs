//! One rank's mailboxes and those of the others, and the launch of programs over them.

use super::arena::{MailboxMemory, Offer, ProcessName, Reached};
use super::error::DeviceError;
use super::launch::{
    DeviceCall, DirectDeviceCall, DirectKind, DirectLaunch, EACH, KernelLaunch, Launches, Lent,
    MOST_LAUNCHES, MOST_SHORT_BYTES, Mailbox, Protocol, ShortDeviceCall, ShortLaunch,
};
use super::layout::{
    ALIGNMENT, MOST_SHORT_RANKS, MailboxLayout, Parts, SHORT_BLOCKS, SHORT_THREADS, Shapes,
};
use super::lent_memory::{LentMemory, free_what_was_left};
use super::memory::DeviceMemory;
use super::order::{CallStream, WorkOrder};
use super::words::ReportWords;
use cudarc::driver::sys::CUdeviceptr;
use cudarc::driver::{CudaFunction, CudaStream, LaunchConfig, PushKernelArg, result};
use maypole_kernels::Scalar;
use maypole_kernels::cuda::{CudaError, MapKernels, ScaleFactor, WALK_THREADS};
use std::sync::Arc;

/// The least bytes of a direct call for which one more lane pays.
const BYTES_OF_DIRECT_LANE: u64 = 8 << 10;

/// A board that the other ranks do not reach yet.
#[derive(Debug)]
pub struct PendingBoard {
    stream: Arc<CudaStream>,
    order: WorkOrder,
    lent: LentMemory,
    offer: Offer,
    words: Arc<ReportWords>,
    shapes: Shapes,
    layout: MailboxLayout,
    ranks: usize,
}

impl PendingBoard {
    /// Allocates the mailboxes of one of `ranks` ranks on the GPU of `stream`.
    ///
    /// # Errors
    /// [`DeviceError::Driver`] if there is no memory for them.
    ///
    /// # Panics
    /// If a shape has more than [`MOST_SLOTS`](maypole_kernels::packed::MOST_SLOTS) slots, or a number
    /// that is no power of two.
    pub fn new(
        stream: &Arc<CudaStream>,
        shapes: &Shapes,
        ranks: usize,
    ) -> Result<Self, DeviceError> {
        let layout = MailboxLayout::new(shapes, ranks);
        free_what_was_left();
        let MailboxMemory { memory, offer } = MailboxMemory::new(stream, layout.bytes)?;
        let lent = LentMemory::new(memory);
        let words = Arc::new(ReportWords::new(stream.context())?);
        let order = WorkOrder::new(stream)?;
        let (stream, shapes) = (Arc::clone(stream), shapes.clone());
        Ok(Self { stream, order, lent, offer, words, shapes, layout, ranks })
    }

    /// How the other ranks reach it.
    pub fn offer(&self) -> Offer {
        self.offer
    }

    /// Connects rank `me` with the ranks that made `offers`, by rank.
    ///
    /// # Errors
    /// [`DeviceError::Unreachable`] if this GPU does not reach the memory of some rank, and the memory
    /// of this rank, which others may have opened.
    ///
    /// # Panics
    /// If there is not one offer a rank.
    pub fn connect(
        self,
        me: usize,
        offers: &[Offer],
    ) -> Result<DeviceBoard, (DeviceError, LentMemory)> {
        match self.reach(me, offers) {
            Err(error) => Err((error, self.lent)),
            Ok((others, locals)) => {
                let here = ProcessName::current();
                let mine = &offers[me];
                let others_here = offers.iter().enumerate().filter(|(rank, _)| *rank != me);
                let mut others_here = others_here.filter(|(_, offer)| offer.process == here);
                Ok(DeviceBoard {
                    order: self.order,
                    lent: self.lent,
                    words: self.words,
                    shapes: self.shapes,
                    locals,
                    has_processes: offers.iter().any(|offer| offer.process != here),
                    shares_gpu: others_here.any(|(_, offer)| offer.uuid == mine.uuid),
                    others,
                })
            }
        }
    }

    fn reach(&self, me: usize, offers: &[Offer]) -> Result<(Vec<Reached>, Locals), DeviceError> {
        assert_eq!(offers.len(), self.ranks, "one offer a rank");
        let reach = |(rank, offer): (usize, &Offer)| {
            let enough = offer.bytes >= self.offer.bytes;
            assert!(enough, "all ranks have mailboxes of the same shapes");
            Reached::new(self.stream.context(), rank, offer)
        };
        let others: Vec<Reached> =
            offers.iter().enumerate().map(reach).collect::<Result<_, _>>()?;
        let mine = &offers[me];
        let alike = |offer: &Offer| (offer.process, offer.uuid) == (mine.process, mine.uuid);
        let locals = Locals::new(self, me, &others, offers.iter().all(alike))?;
        Ok((others, locals))
    }
}

/// What a rank's kernels alone read and write: for each room, the addresses of all mailboxes, the
/// counts of each lane, and the audiences of each slot; for all rooms, whether the rank has failed.
#[derive(Debug)]
struct Locals {
    memory: DeviceMemory,
    parts: Vec<LocalParts>,
    /// Not zero there: the rank has failed.
    failed: CUdeviceptr,
    /// What all short calls have in common, if the group makes some.
    short: Option<ShortLaunch>,
    /// What all direct calls have in common, if the group makes some.
    direct: Option<DirectLaunch>,
}

#[derive(Clone, Copy, Debug)]
struct LocalParts {
    mailboxes: usize,
    published: usize,
    audiences: usize,
    /// Ranks that meet in the room.
    members: usize,
    /// The mailbox of this rank.
    ours: Mailbox,
}

impl Locals {
    fn new(
        board: &PendingBoard,
        me: usize,
        others: &[Reached],
        reads_directly: bool,
    ) -> Result<Self, DeviceError> {
        let mut end = 0;
        let mut take = |bytes: usize| {
            let start = end;
            end += bytes.next_multiple_of(ALIGNMENT);
            start
        };
        let mut parts = Vec::new();
        let mut tables = Vec::new();
        for room in board.shapes.rooms(board.ranks) {
            let shape = board.shapes.of(room);
            let members = board.layout.members(room, me, board.ranks);
            let lanes = shape.lanes as usize;
            let mailbox = |(rank, parts): &(usize, Parts)| Mailbox::of(&others[*rank], parts);
            let ours = members.iter().find(|(rank, _)| *rank == me).map(mailbox);
            parts.push(LocalParts {
                mailboxes: take(members.len() * size_of::<Mailbox>()),
                published: take(lanes * (members.len() + 2) * size_of::<u64>()),
                audiences: take(lanes * shape.slots as usize * size_of::<u64>()),
                members: members.len(),
                ours: ours.expect("this rank is one of them"),
            });
            tables.push(members.iter().map(mailbox).collect::<Vec<_>>());
        }
        let counts = take(SHORT_BLOCKS * size_of::<u64>());
        let lanes = board.shapes.groups.iter().map(|shape| shape.lanes as usize).max();
        let direct_counts = take(lanes.unwrap_or(0) * size_of::<u64>());
        let failed = others[me].address() + board.layout.failed as u64;
        let memory = DeviceMemory::new(&board.stream, end)?;
        let short = board.layout.short.map(|lines| {
            let mut short = ShortLaunch {
                counts: memory.address() + counts as u64,
                abort: board.words.abort_address(),
                report: board.words.report_address(),
                gone: board.words.gone_address(),
                failed,
                ranks: others.len() as u32,
                me: me as u32,
                ..ShortLaunch::default()
            };
            let announced = board.layout.announced();
            for (rank, other) in others.iter().enumerate() {
                short.lines[rank] = other.address() + lines as u64;
                short.announced[rank] = other.address() + announced as u64;
            }
            short
        });
        let direct = short.filter(|_| reads_directly).map(|short| {
            let at = |offset: usize| {
                let mut all = [0; MOST_SHORT_RANKS];
                let places = others.iter().map(|other| other.address() + offset as u64);
                all.iter_mut().zip(places).for_each(|(place, address)| *place = address);
                all
            };
            DirectLaunch {
                words: at(board.layout.direct),
                announced: short.announced,
                fails: at(board.layout.failed),
                counts: memory.address() + direct_counts as u64,
                abort: short.abort,
                report: short.report,
                gone: short.gone,
                failed,
                ranks: short.ranks,
                me: short.me,
                ..DirectLaunch::default()
            }
        });
        let mut bytes = vec![0; end];
        for (local, table) in parts.iter().zip(&tables) {
            let table = bytemuck::cast_slice(table);
            bytes[local.mailboxes..][..table.len()].copy_from_slice(table);
        }
        memory.write(&board.stream, 0, &bytes)?;
        Ok(Self { memory, parts, failed, short, direct })
    }
}

impl Mailbox {
    fn of(other: &Reached, parts: &Parts) -> Self {
        Self {
            slots: other.address() + parts.slots as u64,
            arrived: other.address() + parts.arrived as u64,
            consumed: other.address() + parts.consumed as u64,
            announced: other.address() + parts.announced as u64,
        }
    }
}

/// What the elements of an input are multiplied by.
#[derive(Clone, Copy, Debug)]
pub enum LentFactor<'a> {
    /// This number.
    Value(Scalar),
    /// The element that is there when the kernel runs.
    At(Lent<'a>),
}

/// One rank's view of the mailboxes of a group on GPUs.
///
/// # What the ranks of a board owe each other
/// As on a [`Board`](crate::Board): all ranks launch programs that were lowered from one call, in
/// the same order. A kernel that waits in vain gives up, and [`words`](Self::words) say why.
#[derive(Debug)]
pub struct DeviceBoard {
    order: WorkOrder,
    lent: LentMemory,
    others: Vec<Reached>,
    words: Arc<ReportWords>,
    shapes: Shapes,
    locals: Locals,
    /// Some rank is another process, whose kernels may still read the arena when this rank is done.
    has_processes: bool,
    /// Some other rank is a thread of this process, on the same GPU.
    shares_gpu: bool,
}

impl DeviceBoard {
    /// The words by which kernels say that they gave up, and by which the host asks for it.
    pub fn words(&self) -> &Arc<ReportWords> {
        &self.words
    }

    /// The mailboxes.
    pub fn shapes(&self) -> &Shapes {
        &self.shapes
    }

    /// True if some rank is another process.
    pub fn has_processes(&self) -> bool {
        self.has_processes
    }

    /// True if some other rank is a thread of this process, on the same GPU.
    pub fn shares_gpu(&self) -> bool {
        self.shares_gpu
    }

    /// What `work` starts on the stream comes after everything that the rank has started, on whichever
    /// stream, and before everything that it starts later.
    ///
    /// # Errors
    /// [`DeviceError::Driver`] if the driver refuses it; else as `work`.
    pub fn in_order<T>(
        &mut self,
        on: &CallStream<'_>,
        work: impl FnOnce(&mut Self) -> Result<T, DeviceError>,
    ) -> Result<T, DeviceError> {
        self.order.enter(on)?;
        let done = work(self);
        self.order.leave(on)?;
        done
    }

    /// [`in_order`](Self::in_order) on the stream that the board was made with.
    ///
    /// # Errors
    /// As there.
    pub fn at_home<T>(
        &mut self,
        work: impl FnOnce() -> Result<T, DeviceError>,
    ) -> Result<T, DeviceError> {
        self.order.at_home(work)
    }

    /// Waits until everything that the rank has started is done.
    ///
    /// # Errors
    /// [`DeviceError::Driver`] if some of it has failed.
    pub fn drain(&self) -> Result<(), DeviceError> {
        self.order.drain()
    }

    /// True if everything that the rank has started is done, or has failed.
    pub fn is_drained(&self) -> bool {
        self.order.is_drained()
    }

    /// Starts `kernel` on `calls` at once, when all earlier work of the stream is done: within
    /// [`in_order`](Self::in_order). Calls of one launch use different rooms with equally many lanes.
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
        calls: &[DeviceCall<'_>],
    ) -> Result<(), DeviceError> {
        assert!((1..=MOST_LAUNCHES).contains(&calls.len()), "a launch has 1 to 16 calls");
        let lanes = self.shapes.of(calls[0].room).lanes;
        let mut launches =
            Launches { lanes, unused: 0, of: [KernelLaunch::default(); MOST_LAUNCHES] };
        for (launch, call) in launches.of.iter_mut().zip(calls) {
            *launch = self.describe(call)?;
        }
        let grid = (lanes * calls.len() as u32, 1, 1);
        let config =
            LaunchConfig { grid_dim: grid, block_dim: (WALK_THREADS, 1, 1), shared_mem_bytes: 0 };
        // SAFETY: the kernel takes `Launches` by value. Programs were checked when they were
        // loaded, and `describe` checks that their buffers are long enough.
        let launched = unsafe { on.stream().launch_builder(kernel).arg(&launches).launch(config) };
        launched.map_err(|error| CudaError::new("starting a kernel on a GPU", error))?;
        Ok(())
    }

    /// True if a call of so many bytes a rank can be [short](Self::launch_short).
    pub fn makes_short_calls(&self, bytes: usize) -> bool {
        self.locals.short.is_some() && bytes <= MOST_SHORT_BYTES
    }

    /// Starts a short call, as [`launch`](Self::launch) starts others. All ranks do so for the same calls.
    ///
    /// # Errors
    /// [`DeviceError::Program`] if the output is too short; [`DeviceError::Driver`] if the driver refuses
    /// the launch.
    ///
    /// # Panics
    /// If the group makes no short calls of so many bytes.
    pub fn launch_short(
        &mut self,
        on: &CallStream<'_>,
        kernel: &CudaFunction,
        call: &ShortDeviceCall<'_>,
    ) -> Result<(), DeviceError> {
        let bytes = call.input.bytes();
        assert!(self.makes_short_calls(bytes as usize), "{bytes} bytes are few");
        let common = self.locals.short.expect("the group makes short calls");
        let blocks = if call.gathers { u64::from(common.ranks) } else { 1 };
        if call.output.bytes() < bytes * blocks {
            let why = format!("{} bytes of output are too few", call.output.bytes());
            return Err(DeviceError::Program(why));
        }
        let launch = ShortLaunch {
            input: call.input.address(),
            output: call.output.address(),
            patience: call.patience,
            bytes: bytes as u32,
            fingerprint: call.fingerprint,
            number: call.number,
            gathers: u32::from(call.gathers),
            ..common
        };
        let lines = bytes.div_ceil(8).max(1) as u32;
        let threads = lines.next_multiple_of(32).clamp(32, SHORT_THREADS as u32);
        let blocks = lines.div_ceil(SHORT_THREADS as u32);
        let config = LaunchConfig {
            grid_dim: (blocks, 1, 1),
            block_dim: (threads, 1, 1),
            shared_mem_bytes: 0,
        };
        // SAFETY: the kernel takes `ShortLaunch` by value; the buffers are as long as it says.
        let launched = unsafe { on.stream().launch_builder(kernel).arg(&launch).launch(config) };
        launched.map_err(|error| CudaError::new("starting a kernel on a GPU", error))?;
        Ok(())
    }

    /// True if ranks of the group read one another's buffers in [direct](Self::launch_direct) calls.
    pub fn makes_direct_calls(&self) -> bool {
        self.locals.direct.is_some()
    }

    /// Starts a direct call, as [`launch`](Self::launch) starts others. All ranks do so for the same calls.
    ///
    /// # Errors
    /// [`DeviceError::Program`] if a buffer is too short; [`DeviceError::Driver`] if the driver refuses the
    /// launch.
    ///
    /// # Panics
    /// If the group makes no direct calls.
    pub fn launch_direct(
        &mut self,
        on: &CallStream<'_>,
        kernel: &CudaFunction,
        call: &DirectDeviceCall<'_>,
    ) -> Result<(), DeviceError> {
        let common = self.locals.direct.expect("the group makes direct calls");
        let (input, output) = (call.input.bytes(), call.output.bytes());
        let ranks = u64::from(common.ranks);
        let is_me = |root: usize| root == common.me as usize;
        let (bytes, enough) = match call.kind {
            DirectKind::AllReduce => (input, output >= input),
            DirectKind::AllGather => (input, output >= input * ranks),
            DirectKind::ReduceScatter => (output, input >= output * ranks),
            DirectKind::Broadcast(root) => (output, !is_me(root) || input >= output),
        };
        if !enough {
            let why = format!("{input} and {output} bytes are too few for {:?}", call.kind);
            return Err(DeviceError::Program(why));
        }
        let root = if let DirectKind::Broadcast(root) = call.kind { root as u32 } else { 0 };
        let launch = DirectLaunch {
            input: call.input.address(),
            output: call.output.address(),
            patience: call.patience,
            bytes,
            fingerprint: call.fingerprint,
            number: call.number,
            kind: call.kind.number(),
            root,
            ..common
        };
        let most = self.shapes.groups.iter().map(|shape| shape.lanes).max().unwrap_or(1);
        // A lane costs as much as it moves within a microsecond.
        let lanes = (bytes / BYTES_OF_DIRECT_LANE).clamp(1, u64::from(most)) as u32;
        let config = LaunchConfig {
            grid_dim: (lanes, 1, 1),
            block_dim: (WALK_THREADS, 1, 1),
            shared_mem_bytes: 0,
        };
        // SAFETY: the kernel takes `DirectLaunch` by value; the buffers are as long as it says, and those
        // of the other ranks, which are threads of this process, stay until this rank has ended the call.
        let launched = unsafe { on.stream().launch_builder(kernel).arg(&launch).launch(config) };
        launched.map_err(|error| CudaError::new("starting a kernel on a GPU", error))?;
        Ok(())
    }

    fn describe(&self, call: &DeviceCall<'_>) -> Result<KernelLaunch, DeviceError> {
        let shape = self.shapes.of(call.room);
        let parts = self.locals.parts[self.shapes.index(call.room, self.others.len())];
        let needs = call.code.needs;
        let enough = needs.input <= call.input.bytes()
            && needs.output <= call.output.bytes()
            && needs.scratch <= call.scratch.bytes()
            && needs.publication <= shape.bytes as u64;
        if !enough || call.code.header.ranks as usize != parts.members {
            let why = format!("it needs {needs:?}, which its buffers do not have");
            return Err(DeviceError::Program(why));
        }
        let local = self.locals.memory.address();
        let header = &call.code.header;
        let tells_late =
            shape.protocol == Protocol::LowLatency && needs.publications <= u64::from(shape.slots);
        Ok(KernelLaunch {
            program: call.code.address,
            mailboxes: local + parts.mailboxes as u64,
            ours: parts.ours,
            published: local + parts.published as u64,
            audiences: local + parts.audiences as u64,
            input: call.input.address(),
            output: call.output.address(),
            scratch: call.scratch.address(),
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
            other: call.room.other().map_or(EACH, |rank| rank as u32),
            tells_late: u32::from(tells_late),
            number: call.number,
        })
    }

    /// Makes all kernels of the rank end at once that begin after this, also those of graphs. Waits
    /// until all earlier work of the rank is done.
    ///
    /// # Errors
    /// [`DeviceError::Driver`] if the driver refuses it.
    pub fn refuse_walks(&mut self) -> Result<(), DeviceError> {
        let Self { order, locals, .. } = self;
        let word = 1u64.to_ne_bytes();
        let stream = Arc::clone(order.home().stream());
        let place = Lent::of_owner(locals.failed, word.len() as u64);
        order.at_home(|| Self::write(&stream, place, &word))
    }

    /// Copies `from` to `to`, when all earlier work of the stream is done.
    ///
    /// # Errors
    /// [`DeviceError::Driver`] if the driver refuses it.
    ///
    /// # Panics
    /// If the lengths differ.
    pub fn copy(on: &CallStream<'_>, to: Lent<'_>, from: Lent<'_>) -> Result<(), DeviceError> {
        assert_eq!(to.bytes(), from.bytes(), "as many bytes are copied as there are");
        if to.bytes() == 0 || to.address() == from.address() {
            return Ok(());
        }
        // SAFETY: both are lent memory of the same length.
        let copied = unsafe {
            result::memcpy_dtod_async(
                to.address(),
                from.address(),
                to.bytes() as usize,
                on.stream().cu_stream(),
            )
        };
        copied.map_err(|error| CudaError::new("copying on a GPU", error).into())
    }

    /// Copies `from` to the host, when all earlier work of the stream is done. Waits for that.
    ///
    /// # Errors
    /// [`DeviceError::Driver`] if the driver refuses it.
    pub fn read(stream: &CudaStream, from: Lent<'_>) -> Result<Vec<u8>, DeviceError> {
        let mut bytes = vec![0; from.bytes() as usize];
        if bytes.is_empty() {
            return Ok(bytes);
        }
        // SAFETY: the memory is lent and as long; the copy is done when the stream is.
        let copied =
            unsafe { result::memcpy_dtoh_async(&mut bytes, from.address(), stream.cu_stream()) };
        let done = copied.and_then(|()| stream.synchronize());
        done.map_err(|error| CudaError::new("copying from a GPU", error))?;
        Ok(bytes)
    }

    /// Copies `bytes` to `to`, when all earlier work of the stream is done. Waits for that.
    ///
    /// # Errors
    /// [`DeviceError::Driver`] if the driver refuses it.
    ///
    /// # Panics
    /// If the lengths differ.
    pub fn write(stream: &CudaStream, to: Lent<'_>, bytes: &[u8]) -> Result<(), DeviceError> {
        assert_eq!(to.bytes(), bytes.len() as u64, "as many bytes are copied as there are");
        if bytes.is_empty() {
            return Ok(());
        }
        // SAFETY: the memory is lent and as long; the source lives until the stream is
        // synchronized.
        let copied = unsafe { result::memcpy_htod_async(to.address(), bytes, stream.cu_stream()) };
        let done = copied.and_then(|()| stream.synchronize());
        Ok(done.map_err(|error| CudaError::new("copying to a GPU", error))?)
    }

    /// Divides the elements of `data` by `by`, when all earlier work of the stream is done.
    ///
    /// # Errors
    /// [`DeviceError::Driver`] if the driver refuses it.
    ///
    /// # Panics
    /// If `by` is zero.
    pub fn divide(
        on: &CallStream<'_>,
        kernels: &MapKernels,
        data: Lent<'_>,
        by: u64,
    ) -> Result<(), DeviceError> {
        let count = data.bytes() / kernels.kind().size() as u64;
        // SAFETY: the memory is lent, and as long.
        Ok(unsafe { kernels.divide(on.stream(), data.address(), count, by) }?)
    }

    /// Multiplies the elements of `from` by `factor` into `into`, when all earlier work of the
    /// stream is done.
    ///
    /// # Errors
    /// [`DeviceError::Driver`] if the driver refuses it.
    ///
    /// # Panics
    /// If the lengths differ, or if the factor has another type than the kernels.
    pub fn scale(
        on: &CallStream<'_>,
        kernels: &MapKernels,
        into: Lent<'_>,
        from: Lent<'_>,
        factor: LentFactor<'_>,
    ) -> Result<(), DeviceError> {
        assert_eq!(into.bytes(), from.bytes(), "as many elements are scaled as there are");
        let count = from.bytes() / kernels.kind().size() as u64;
        let (into, from) = (into.address(), from.address());
        let factor = match factor {
            LentFactor::Value(value) => ScaleFactor::Value(value),
            LentFactor::At(memory) => {
                assert_eq!(memory.bytes(), kernels.kind().size() as u64, "a factor is an element");
                ScaleFactor::At(memory.address())
            }
        };
        // SAFETY: both are lent memory of the same length, and a lent factor is one element.
        Ok(unsafe { kernels.scale(on.stream(), into, from, count, factor) }?)
    }

    /// Ends the board: waits for its kernels, and closes what it has opened of other processes.
    /// Returns the memory that others may have open.
    pub fn stop(self) -> LentMemory {
        let Self { order, lent, others, locals, words, .. } = self;
        // A kernel that failed leaves an error here, which its calls have reported.
        let _ = order.drain();
        drop((others, locals, words));
        lent
    }
}
