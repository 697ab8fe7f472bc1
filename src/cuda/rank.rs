//! One rank's state for calls on a GPU: mailboxes, kernels and programs.

use super::agreed::Found;
use super::courier::CourierThread;
use super::load::{self, OnGpu};
use super::place::MailboxPlace;
use super::plan::{CallPrices, LAUNCH_NS};
use super::programs::{
    Captured, KeptPrograms, LentCall, MessagePrograms, Prepared, StartableCall, Way,
};
use crate::algorithms::Algorithm;
use crate::comm::Communicator;
use crate::element::DataType;
use crate::engine::calls::call::{CollectiveCall, Scaling};
use crate::engine::device::DeviceMachine;
use crate::error::{Error, Result};
use crate::topology::DeviceLinks;
use cudarc::driver::{CudaContext, CudaStream, DriverError};
use maypole_kernels::BinaryOp;
use maypole_kernels::cuda::{CudaError, MapKernels, MapOp, WalkKernels, walk_module};
use maypole_transports::cuda::{
    CallStream, DeviceBoard, DeviceCall, DeviceScratch, ProgramCall, ReservedBlocks, copies,
};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Calls that use mailboxes are made where there are some, and no call is made while a rank leaves.
pub(super) const IS_CONNECTED: &str = "the rank has mailboxes";

/// The types whose sums are loaded when the group is made.
const LOADED_AHEAD: [DataType; 7] = {
    use DataType::{BF16, F16, F32, F64, I32, I64, U8};
    [F32, BF16, F16, F64, I64, I32, U8]
};

/// The mailboxes of a rank, and the links of all GPUs.
pub(super) struct Connected {
    pub(super) board: DeviceBoard,
    pub(super) place: MailboxPlace,
    /// Why the mailboxes are in memory of the host, if they are.
    pub(super) in_host: Option<String>,
    /// Carries publications to ranks on other hosts, if there are some.
    pub(super) courier: Option<CourierThread>,
    /// Room for the blocks of the kernels.
    pub(super) _blocks: ReservedBlocks,
    /// Blocks of a kernel at most, equal on all ranks.
    pub(super) lanes: u32,
    /// Blocks of each kernel that a multiprocessor has room for.
    pub(super) fitting: u32,
    pub(super) links: DeviceLinks,
    /// Kernels that are loaded already: that of messages, and those of the usual calls.
    pub(super) walks: HashMap<String, WalkKernels>,
    pub(super) messages: MessagePrograms,
    /// For allocations and copies while a graph is captured.
    pub(super) aside: Arc<CudaStream>,
}

/// One rank's side of the calls of a group on GPUs.
pub(super) struct DeviceRank {
    pub(super) comm: Communicator,
    /// `None` once the rank has left.
    pub(super) connected: Option<Connected>,
    /// The rank's own stream, for allocations.
    pub(super) stream: Arc<CudaStream>,
    pub(super) machine: DeviceMachine,
    pub(super) maps: HashMap<DataType, MapKernels>,
    /// The algorithm of the last call.
    pub(super) last: Option<Algorithm>,
    pub(super) programs: KeptPrograms,
    pub(super) captured: Captured,
    pub(super) scratch: DeviceScratch,
    pub(super) staging: DeviceScratch,
    /// How long the last call may wait, in nanoseconds: for the thread that watches.
    pub(super) patience: Arc<AtomicU64>,
    /// The rank has aborted: it need not shut down in order.
    pub(super) aborted: Arc<AtomicBool>,
    /// The communicator that the group was made from, if it is the only handle: dropping it makes
    /// this rank leave.
    pub(super) world: Option<Communicator>,
}

impl DeviceRank {
    pub(super) fn new(comm: Communicator, connected: Connected, stream: Arc<CudaStream>) -> Self {
        let Connected { place, ref links, .. } = connected;
        let CallPrices { costs, unit, .. } =
            CallPrices::of(place, &comm.engine.get().conditions.prices());
        let (boards, start) = (place.boards(comm.hosts()), (unit, LAUNCH_NS));
        let machine = DeviceMachine::new(comm.engine.get(), boards, costs, start, links.clone());
        let scratch = DeviceScratch::new(&stream);
        let staging = DeviceScratch::new(&stream);
        Self {
            comm,
            connected: Some(connected),
            stream,
            machine,
            maps: HashMap::new(),
            last: None,
            programs: KeptPrograms::default(),
            captured: Captured::default(),
            scratch,
            staging,
            patience: Arc::default(),
            aborted: Arc::default(),
            world: None,
        }
    }

    pub(super) fn connected(&self) -> &Connected {
        self.connected.as_ref().expect(IS_CONNECTED)
    }

    pub(super) fn board(&self) -> &DeviceBoard {
        &self.connected().board
    }

    /// A GPU cannot do this rank's part in `operation`.
    pub(super) fn fail(&mut self, operation: &str, why: String) -> Error {
        self.comm.engine.get_mut().health.device_failed(operation.to_owned(), why)
    }

    /// The kernels of messages and of trainers' sums: loading one later may wait for kernels that run.
    pub(super) fn load_ahead(context: &Arc<CudaContext>) -> OnGpu<HashMap<String, WalkKernels>> {
        let sums = LOADED_AHEAD.iter().filter_map(|kind| walk_module(*kind, BinaryOp::Sum));
        let load = |module: String| Ok((module.clone(), load::walks(context, &module)?));
        sums.chain([Self::byte_module()]).map(load).collect()
    }

    pub(super) fn byte_module() -> String {
        walk_module(DataType::U8, BinaryOp::Max).expect("bytes have an order")
    }

    /// Nanoseconds of a wait in a call that begins.
    pub(super) fn patience(&self) -> u64 {
        let allowed = self.comm.engine.get().limits.allowed().time;
        let patience = u64::try_from(allowed.as_nanos()).unwrap_or(u64::MAX);
        self.patience.store(patience, Ordering::Relaxed);
        patience
    }

    /// Makes everything that `call` needs to start on a stream: its kernel, its program, and working memory.
    /// May wait until kernels have ended, but starts none.
    pub(super) fn make_ready(
        &mut self,
        on: &Arc<CudaStream>,
        lent: &LentCall<'_>,
    ) -> Result<Arc<Prepared>> {
        let on = self.entered(on, lent.call.collective.name())?;
        let (call, _) = self.placed(lent)?;
        self.prepared(call, on.is_captured())
    }

    /// Starts a call on a stream, with the resources that [`make_ready`](Self::make_ready) has made
    /// for it on the same stream.
    pub(super) fn start_ready(
        &mut self,
        on: &Arc<CudaStream>,
        StartableCall { lent, prepared }: &StartableCall<'_>,
    ) -> Result<()> {
        let on = self.entered(on, lent.call.collective.name())?;
        let placed = self.placed(lent)?;
        self.last = Some(prepared.lowered.algorithm);
        let number = self.comm.engine.get_mut().begin_on_device(&prepared.lowered.record)?;
        let started = self.start(&on, prepared, placed, lent, number);
        started.map_err(|why| self.fail(&placed.0.to_string(), why))?;
        self.comm.engine.get_mut().health.exit();
        Ok(())
    }

    /// The call as it runs, and how its input is scaled: by its operation, unless it is by an element in memory.
    fn placed(&self, lent: &LentCall<'_>) -> Result<(CollectiveCall, Option<Scaling>)> {
        let LentCall { call, op, factor, .. } = *lent;
        match factor {
            Some(_) => Ok((CollectiveCall { in_place: false, ..call }, None)),
            None => call.scaled(op, (self.comm.rank(), self.comm.world())),
        }
    }

    /// Drops the plans of calls, because they may have others now.
    pub(super) fn forget_programs(&mut self) {
        self.captured.forget();
        // All of them.
        self.programs.make_room(usize::MAX, 0);
    }

    /// Fails if a kernel of an earlier call aborted.
    pub(super) fn check_kernels(&mut self) -> Result<()> {
        let Some(report) = self.board().words().report() else { return Ok(()) };
        self.comm.engine.get().health.check()?;
        let engine = self.comm.engine.get_mut();
        Err(engine.explain_on_device(report))
    }

    /// Fails if the group has failed, on any rank.
    pub(super) fn check(&mut self) -> Result<()> {
        self.check_kernels()?;
        let engine = self.comm.engine.get_mut();
        let operation =
            if engine.health.is_alarmed() { engine.health.activity.title() } else { String::new() };
        engine.check_usable(|| operation)
    }

    /// The error of completed work on the stream, if any.
    pub(super) fn settle(&mut self, done: std::result::Result<(), DriverError>) -> Result<()> {
        self.check()?;
        done.map_err(|error| {
            let operation = self.comm.engine.get().health.activity.title();
            self.fail(&operation, format!("the driver reports {error:?}"))
        })
    }

    /// True if all work of the rank is done.
    pub(super) fn is_drained(&self) -> bool {
        self.connected.as_ref().is_none_or(|connected| connected.board.is_drained())
    }

    /// The stream of a call, and whether it captures a graph, unless a kernel of an earlier call aborted. An error
    /// of the caller's stream does not fail the group.
    pub(super) fn entered<'s>(
        &mut self,
        on: &'s Arc<CudaStream>,
        operation: &'static str,
    ) -> Result<CallStream<'s>> {
        self.check_kernels()?;
        CallStream::new(on).map_err(|error| self.comm.invalid(operation, error.to_string()))
    }

    /// The kernels of `call`. Calls that combine nothing take those that are likely to be loaded.
    pub(super) fn kernels_of(&mut self, call: CollectiveCall) -> OnGpu<WalkKernels> {
        let op = if call.collective.reduces() { call.op.binary() } else { None };
        let op = op.unwrap_or(BinaryOp::Sum);
        let module = walk_module(call.kind, op).or_else(|| walk_module(call.kind, BinaryOp::Max));
        self.kernels(module.expect("the type was checked to have the operation"))
    }

    pub(super) fn kernels(&mut self, module: String) -> OnGpu<WalkKernels> {
        let Connected { walks, fitting, .. } = self.connected.as_mut().expect(IS_CONNECTED);
        if let Some(kernels) = walks.get(&module) {
            return Ok(kernels.clone());
        }
        let kernels = load::walks(self.stream.context(), &module)?;
        if kernels.fitting < *fitting {
            // Blocks that do not run at the same time would wait for one another.
            let why =
                format!("a multiprocessor has room for less than {fitting} blocks of {module}");
            return Err(CudaError::described("the program cannot run", why));
        }
        walks.insert(module, kernels.clone());
        Ok(kernels)
    }

    pub(super) fn map(&mut self, kind: DataType) -> OnGpu<()> {
        if !self.maps.contains_key(&kind) {
            self.maps.insert(kind, load::maps(self.stream.context(), kind)?);
        }
        Ok(())
    }

    fn start(
        &mut self,
        on: &CallStream<'_>,
        prepared: &Prepared,
        (call, scaling): (CollectiveCall, Option<Scaling>),
        lent: &LentCall<'_>,
        number: u32,
    ) -> Found<()> {
        let LentCall { factor, input, output, .. } = *lent;
        let lowered = &prepared.lowered;
        let patience = self.patience();
        let walks = matches!(prepared.way, Way::Walk { .. });
        let (rank, world) = (self.comm.rank(), self.comm.world());
        let stages = call.stages_scaled(world) || (walks && lowered.stages_input);
        let Connected { board, aside, .. } = self.connected.as_mut().expect(IS_CONNECTED);
        let (staging, scratch) = match on.is_captured() {
            true => {
                // Both begin as aligned as the whole.
                let staged = if stages { lowered.input.next_multiple_of(256) } else { 0 } as u64;
                let bytes = staged as usize + lowered.scratch;
                let made = self.captured.make_memory(bytes, aside);
                let memory = made.map_err(|error| error.to_string())?;
                (memory.slice(0..staged), memory.slice(staged..memory.bytes()))
            }
            false => (self.staging.lend(), self.scratch.lend()),
        };
        let maps = &self.maps;
        let from = match scaling {
            _ if stages => staging.slice(0..lowered.input as u64),
            Some(_) => output,
            None => input,
        };
        let started = board.in_order(on, |board| {
            let op = match scaling {
                Some(Scaling::Times(scalar)) => Some(MapOp::Times(scalar)),
                Some(Scaling::Over(by)) => Some(MapOp::Over(by)),
                None => factor.map(MapOp::TimesAt),
            };
            match op {
                Some(op) => copies::map(on, &maps[&call.kind], from, input, op)?,
                None if stages => copies::copy(on, from, input)?,
                None => {}
            }
            // Another rank that does not capture the call makes another one.
            let fingerprint = lowered.fingerprint ^ u32::from(on.is_captured());
            let made = DeviceCall { input: from, output, fingerprint, patience, number };
            match &prepared.way {
                Way::Walk { code, room, longest } => {
                    let (room, longest) = (*room, *longest);
                    let made = ProgramCall { room, code, longest, scratch, call: made };
                    board.launch(on, &prepared.kernel, &[made], &[])?;
                }
                Way::Short(program) => board.launch_short(on, &prepared.kernel, &made, program)?,
            }
            match call.output_divisor(rank, world) {
                Some(by) => copies::map(on, &maps[&call.kind], output, output, MapOp::Over(by)),
                None => Ok(()),
            }
        });
        started.map_err(|error| error.to_string())
    }
}
