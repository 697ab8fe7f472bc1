//! One rank's state for calls on a GPU: mailboxes, kernels and programs.

use super::courier::CourierThread;
use super::load;
use super::place::MailboxPlace;
use super::plan::{CallPrices, LAUNCH_NS};
use super::programs::{Captured, KeptPrograms, MessagePrograms, Prepared, Way};
use crate::algorithms::Algorithm;
use crate::comm::Communicator;
use crate::element::{DataType, ReduceOp};
use crate::engine::calls::call::{CollectiveCall, Scaling};
use crate::engine::device::DeviceMachine;
use crate::error::{Error, Result};
use crate::topology::DeviceLinks;
use cudarc::driver::{CudaContext, CudaFunction, CudaStream, DriverError};
use maypole_kernels::BinaryOp;
use maypole_kernels::cuda::{MapKernels, WalkKernels, walk_module};
use maypole_transports::cuda::{
    CallStream, DeviceBoard, DeviceCall, DeviceError, DeviceScratch, Lent, LentFactor, ProgramCall,
    ReservedBlocks, copies,
};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// The result of a GPU's operation, or its error.
pub(super) type Made<T> = std::result::Result<T, String>;

/// Calls that use mailboxes are made where there are some, and no call is made while a rank leaves.
pub(super) const IS_CONNECTED: &str = "the rank has mailboxes";

/// The types whose sums are loaded when the group is made.
const LOADED_AHEAD: [DataType; 7] = {
    use DataType::{BF16, F16, F32, F64, I32, I64, U8};
    [F32, BF16, F16, F64, I64, I32, U8]
};

/// Why a factor in the memory of a GPU cannot be used.
const NO_HOST_FACTOR: &str = "bytes go through the host, which does not read a factor of a GPU's \
                              memory: pass a number";

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
    /// `Err`: why bytes go through the host, or that the rank has left.
    pub(super) connected: Made<Connected>,
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
    pub(super) fn new(
        comm: Communicator,
        connected: Made<Connected>,
        stream: Arc<CudaStream>,
    ) -> Self {
        // Calls that go through the host do not read the links.
        let apart = |_: &String| DeviceLinks::apart(comm.world());
        let links = connected.as_ref().map_or_else(apart, |connected| connected.links.clone());
        let place = connected.as_ref().map_or(MailboxPlace::Gpus, |it| it.place);
        let CallPrices { costs, unit, .. } =
            CallPrices::of(place, &comm.engine.get().conditions.prices());
        let (boards, start) =
            (place.boards(comm.hosts(), comm.boards().sites()), (unit, LAUNCH_NS));
        let machine = DeviceMachine::new(comm.engine.get(), boards, costs, start, links);
        let scratch = DeviceScratch::new(&stream);
        let staging = DeviceScratch::new(&stream);
        Self {
            comm,
            connected,
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

    pub(super) fn board_mut(&mut self) -> &mut DeviceBoard {
        &mut self.connected.as_mut().expect(IS_CONNECTED).board
    }

    /// The type whose kernel moves the bytes of messages.
    pub(super) const BYTES: DataType = DataType::U8;

    /// A GPU cannot do this rank's part in `operation`.
    pub(super) fn fail(&mut self, operation: &str, why: String) -> Error {
        self.comm.engine.get_mut().health.device_failed(operation.to_owned(), why)
    }

    /// The kernels of messages and of trainers' sums: loading one later may wait for kernels that run.
    pub(super) fn load_ahead(
        context: &Arc<CudaContext>,
    ) -> std::result::Result<HashMap<String, WalkKernels>, DeviceError> {
        let sums = LOADED_AHEAD.iter().filter_map(|kind| walk_module(*kind, BinaryOp::Sum));
        let load = |module: String| Ok((module.clone(), load::walks(context, &module)?));
        sums.chain([Self::byte_module()]).map(load).collect()
    }

    pub(super) fn byte_kernel(&mut self) -> std::result::Result<CudaFunction, DeviceError> {
        Ok(self.kernels(Self::byte_module())?.walk)
    }

    pub(super) fn byte_module() -> String {
        walk_module(Self::BYTES, BinaryOp::Max).expect("bytes have an order")
    }

    /// Nanoseconds of a wait in a call that begins.
    pub(super) fn patience(&self) -> u64 {
        let patience = patience(self.comm.engine.get().limits.allowed().time);
        self.patience.store(patience, Ordering::Relaxed);
        patience
    }

    /// Makes everything that `call` needs to start on a stream: its kernel, its program, and working memory.
    /// May wait until kernels have ended, but starts none.
    pub(super) fn make_ready(
        &mut self,
        on: &Arc<CudaStream>,
        call: CollectiveCall,
        (op, factor_at): (ReduceOp, Option<Lent<'_>>),
    ) -> Result<Option<Arc<Prepared>>> {
        self.check_kernels()?;
        let name = call.collective.name();
        let on = self.entered(on, name)?;
        if self.connected.is_err() {
            return match (on.is_captured(), factor_at) {
                (true, _) => Err(self.uncapturable(name)),
                (_, Some(_)) => Err(self.comm.invalid(name, NO_HOST_FACTOR.to_owned())),
                _ => Ok(None),
            };
        }
        let (call, _) = self.placed(call, op, factor_at)?;
        self.prepared(call, on.is_captured()).map(Some)
    }

    /// Starts `call` on a stream, with the resources that [`make_ready`](Self::make_ready) has made
    /// for it on the same stream. The elements are combined by `op`, or by a sum of products with
    /// the element at `factor`.
    pub(super) fn start_ready(
        &mut self,
        on: &Arc<CudaStream>,
        (call, prepared): (CollectiveCall, Option<&Prepared>),
        (op, factor_at): (ReduceOp, Option<Lent<'_>>),
        (input, output): (Lent<'_>, Lent<'_>),
    ) -> Result<()> {
        self.check_kernels()?;
        let name = call.collective.name();
        let on = self.entered(on, name)?;
        let Some(prepared) = prepared else {
            return self.call_through_host(&on, call, op, input, output);
        };
        let (call, scaling) = self.placed(call, op, factor_at)?;
        self.last = Some(prepared.lowered.algorithm);
        let number = self.comm.engine.get_mut().begin_on_device(&prepared.lowered.record)?;
        let scaling = (scaling, factor_at);
        let started = self.start(&on, prepared, call, number, scaling, (input, output));
        let engine = self.comm.engine.get_mut();
        match started {
            Ok(()) => {
                engine.health.exit();
                Ok(())
            }
            Err(why) => Err(engine.health.device_failed(call.to_string(), why)),
        }
    }

    /// `call` as it runs, and how its input is scaled: by `op`, unless it is by the element at `factor_at`.
    fn placed(
        &self,
        call: CollectiveCall,
        op: ReduceOp,
        factor_at: Option<Lent<'_>>,
    ) -> Result<(CollectiveCall, Option<Scaling>)> {
        match factor_at {
            Some(_) => Ok((CollectiveCall { in_place: false, ..call }, None)),
            None => call.scaled(op, (self.comm.rank(), self.comm.world())),
        }
    }

    /// The algorithm that `call` runs by.
    pub(super) fn algorithm(&self, call: CollectiveCall) -> Result<Algorithm> {
        let (plan, _) = self.comm.engine.get().plan_on_device(call, &self.machine)?;
        Ok(plan.algorithm)
    }

    /// Drops the plans of calls, because they may have others now.
    pub(super) fn forget_programs(&mut self) {
        self.captured.forget();
        self.programs.drop_all();
    }

    /// Fails if a kernel of an earlier call aborted.
    pub(super) fn check_kernels(&mut self) -> Result<()> {
        let connected = self.connected.as_ref().ok();
        let report = connected.and_then(|connected| connected.board.words().report());
        let Some(report) = report else { return Ok(()) };
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
            let engine = self.comm.engine.get_mut();
            let operation = engine.health.activity.title();
            engine.health.device_failed(operation, format!("the driver reports {error:?}"))
        })
    }

    /// True if all work of the rank is done.
    pub(super) fn is_drained(&self) -> bool {
        self.connected.as_ref().map_or(true, |connected| connected.board.is_drained())
    }

    pub(super) fn uncapturable(&self, operation: &'static str) -> Error {
        let why = format!(
            "bytes go through the host, which a graph cannot do, because {}",
            self.connected.as_ref().err().map_or("", String::as_str)
        );
        self.comm.invalid(operation, why)
    }

    /// The stream of a call, and whether it captures a graph. An error is that of the caller's
    /// stream, so the group does not fail.
    pub(super) fn entered<'s>(
        &self,
        on: &'s Arc<CudaStream>,
        operation: &'static str,
    ) -> Result<CallStream<'s>> {
        CallStream::new(on).map_err(|error| self.comm.invalid(operation, error.to_string()))
    }

    /// The kernels of `call`. Calls that combine nothing take those that are likely to be loaded.
    pub(super) fn kernels_of(
        &mut self,
        call: CollectiveCall,
    ) -> std::result::Result<WalkKernels, DeviceError> {
        let op = if call.collective.reduces() { call.op.binary() } else { None };
        let op = op.unwrap_or(BinaryOp::Sum);
        let module = walk_module(call.kind, op).or_else(|| walk_module(call.kind, BinaryOp::Max));
        self.kernels(module.expect("the type was checked to have the operation"))
    }

    fn kernels(&mut self, module: String) -> std::result::Result<WalkKernels, DeviceError> {
        let Connected { walks, fitting, .. } = self.connected.as_mut().expect(IS_CONNECTED);
        if let Some(kernels) = walks.get(&module) {
            return Ok(kernels.clone());
        }
        let kernels = load::walks(self.stream.context(), &module)?;
        if kernels.fitting < *fitting {
            // Blocks that do not run at the same time would wait for one another.
            let why =
                format!("a multiprocessor has room for less than {fitting} blocks of {module}");
            return Err(DeviceError::Program(why));
        }
        walks.insert(module, kernels.clone());
        Ok(kernels)
    }

    pub(super) fn map(&mut self, kind: DataType) -> std::result::Result<(), DeviceError> {
        if !self.maps.contains_key(&kind) {
            self.maps.insert(kind, load::maps(self.stream.context(), kind)?);
        }
        Ok(())
    }

    fn start(
        &mut self,
        on: &CallStream<'_>,
        prepared: &Prepared,
        call: CollectiveCall,
        number: u32,
        (scaling, factor_at): (Option<Scaling>, Option<Lent<'_>>),
        (input, output): (Lent<'_>, Lent<'_>),
    ) -> Made<()> {
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
            let factor = match scaling {
                Some(Scaling::Times(scalar)) => Some(LentFactor::Value(scalar)),
                _ => factor_at.map(LentFactor::At),
            };
            match (factor, scaling) {
                (Some(factor), _) => copies::scale(on, &maps[&call.kind], from, input, factor)?,
                (_, Some(Scaling::Over(by))) => {
                    copies::divide(on, &maps[&call.kind], from, input, by)?;
                }
                _ if stages => copies::copy(on, from, input)?,
                _ => {}
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
                Some(divisor) => copies::divide(on, &maps[&call.kind], output, output, divisor),
                None => Ok(()),
            }
        });
        started.map_err(|error| error.to_string())
    }
}

/// Nanoseconds of a wait.
fn patience(allowed: Duration) -> u64 {
    u64::try_from(allowed.as_nanos()).unwrap_or(u64::MAX)
}
