//! What one rank keeps for its calls on a GPU: mailboxes, kernels and programs.

use super::exchange::MessagePrograms;
use super::plan;
use super::programs::{Captured, Prepared};
use super::setup::Connected;
use crate::algorithms::Algorithm;
use crate::comm::Communicator;
use crate::comm::element::{DataType, Factor, ReduceOp};
use crate::comm::engine::agree::named_call;
use crate::comm::engine::calls::call::CollectiveCall;
use crate::comm::engine::device::{DeviceFault, DeviceLowered, DeviceMachine};
use crate::comm::error::{Error, Result};
use crate::lower::DeviceProgram;
use crate::topology::DeviceLinks;
use crate::tuner::Plan;
use cudarc::driver::sys::CUstreamCaptureStatus;
use cudarc::driver::{CudaFunction, CudaStream};
use lru::LruCache;
use maypole_kernels::BinaryOp;
use maypole_kernels::cuda::{MapKernels, load_kernel, walk_module};
use maypole_transports::cuda::{
    DeviceBoard, DeviceCall, DeviceCode, DeviceError, Lent, Reason, Report, Room, Workspace,
};
use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

/// What a GPU was asked for, or why it did not do that.
type Made<T> = std::result::Result<T, String>;

/// Most programs that are kept.
const MOST_PROGRAMS: NonZeroUsize = NonZeroUsize::new(256).expect("it is not zero");

/// One rank's side of the calls of a group on GPUs.
pub(super) struct DeviceRank {
    pub(super) comm: Communicator,
    /// Gone when the rank is dropped, or if bytes go through the host.
    pub(super) board: Option<DeviceBoard>,
    /// Why bytes go through the host.
    pub(super) host_reason: Option<String>,
    stream: Arc<CudaStream>,
    pub(super) machine: DeviceMachine,
    walks: HashMap<String, CudaFunction>,
    maps: HashMap<DataType, MapKernels>,
    /// The algorithm of the last call.
    pub(super) last: Option<Algorithm>,
    /// By call apart from its placement, which other ranks do not know: the programs apart and in
    /// place.
    programs: LruCache<CollectiveCall, [Arc<Prepared>; 2]>,
    pub(super) captured: Captured,
    scratch: Workspace,
    staging: Workspace,
    pub(super) messages: MessagePrograms,
    /// The communicator that the group was made from, if nobody else has it: dropping it tells the
    /// other ranks that this one leaves.
    pub(super) world: Option<Communicator>,
}

impl DeviceRank {
    pub(super) fn new(
        comm: Communicator,
        connected: Made<Connected>,
        stream: Arc<CudaStream>,
    ) -> Self {
        let host_reason = connected.as_ref().err().cloned();
        let (board, links) = connected.ok().map(|it| (it.board, it.links)).unzip();
        // The calls that go through the host do not ask for the links.
        let links = links.unwrap_or_else(|| DeviceLinks::apart(comm.world()));
        let machine = DeviceMachine::new(comm.engine.get(), plan::COSTS, plan::UNIT, links);
        let scratch = Workspace::new(&stream);
        let staging = Workspace::new(&stream);
        Self {
            comm,
            board,
            host_reason,
            stream,
            machine,
            walks: HashMap::new(),
            maps: HashMap::new(),
            last: None,
            programs: LruCache::new(MOST_PROGRAMS),
            captured: Captured::default(),
            scratch,
            staging,
            messages: MessagePrograms::new(),
            world: None,
        }
    }

    fn board(&self) -> &DeviceBoard {
        self.board.as_ref().expect("it is there until the rank is dropped")
    }

    pub(super) fn board_mut(&mut self) -> &mut DeviceBoard {
        self.board.as_mut().expect("it is there until the rank is dropped")
    }

    pub(super) fn stream(&self) -> &Arc<CudaStream> {
        &self.stream
    }

    /// The type whose kernel moves the bytes of messages.
    pub(super) const BYTES: DataType = DataType::U8;

    /// A GPU cannot do this rank's part in `operation`.
    pub(super) fn fail(&mut self, operation: &str, why: String) -> Error {
        self.comm.engine.get_mut().fail_on_device(operation.to_owned(), why)
    }

    /// The kernel that moves bytes.
    pub(super) fn byte_kernel(&mut self) -> std::result::Result<CudaFunction, DeviceError> {
        self.kernel(Self::BYTES, BinaryOp::Max)
    }

    /// Nanoseconds of a wait.
    pub(super) fn patience(&self) -> u64 {
        patience(self.comm.engine.get().limits().allowed())
    }

    /// Starts `call`, whose elements are combined by `op`.
    pub(super) fn call(
        &mut self,
        call: CollectiveCall,
        op: ReduceOp,
        input: Lent<'_>,
        output: Lent<'_>,
    ) -> Result<()> {
        self.check()?;
        let is_captured = self.is_captured(|| call.to_string())?;
        if self.board.is_none() {
            return match is_captured {
                true => Err(self.uncapturable(call.collective.name())),
                false => self.call_through_host(call, op, input, output),
            };
        }
        let factor = match op {
            ReduceOp::PreMulSum(factor) => Some(factor),
            _ => None,
        };
        // The product is in the staging buffer, so the call is not in place.
        let call = CollectiveCall { in_place: call.in_place && factor.is_none(), ..call };
        let prepared = self.prepared(call, is_captured)?;
        self.last = Some(prepared.algorithm);
        let number = self.comm.engine.get_mut().begin_on_device(&prepared.record)?;
        // Another rank that does not capture the call makes another one.
        let fingerprint = prepared.fingerprint ^ u32::from(is_captured);
        let name = (number, fingerprint);
        let started = self.start(&prepared, call, name, factor, (input, output));
        let engine = self.comm.engine.get_mut();
        match started {
            Ok(()) => {
                engine.end_on_device();
                Ok(())
            }
            Err(why) => Err(engine.fail_on_device(call.to_string(), why)),
        }
    }

    /// The algorithm that `call` runs by.
    pub(super) fn algorithm(&self, call: CollectiveCall) -> Result<Algorithm> {
        let (plan, _) = self.comm.engine.get().plan_on_device(call, &self.machine)?;
        Ok(plan.algorithm)
    }

    /// Forgets which plans calls had, because they may have others now.
    pub(super) fn forget_programs(&mut self) {
        self.programs.clear();
    }

    /// Refuses to go on if a kernel of an earlier call gave up.
    pub(super) fn check(&mut self) -> Result<()> {
        let Some(report) = self.report() else { return Ok(()) };
        self.comm.engine.get().health().check()?;
        Err(self.explain(report))
    }

    /// What the first kernel of this rank that gave up reports; `None` if none did.
    fn report(&self) -> Option<Report> {
        self.board.as_ref()?.words().report()
    }

    fn explain(&mut self, report: Report) -> Error {
        let fault = match report.reason {
            Reason::TimedOut(rank) => DeviceFault::TimedOut(rank),
            Reason::Mismatch(rank) => DeviceFault::Mismatch(rank),
            Reason::Overlap => DeviceFault::Overlap,
            _ => DeviceFault::Aborted,
        };
        self.comm.engine.get_mut().explain_on_device(report.number, fault)
    }

    /// Waits until everything that was started is done.
    pub(super) fn synchronize(&mut self) -> Result<()> {
        let done = self.stream.synchronize();
        self.check()?;
        done.map_err(|error| {
            let engine = self.comm.engine.get_mut();
            let operation = engine.health().title();
            engine.fail_on_device(operation, format!("the driver reports {error:?}"))
        })
    }

    pub(super) fn uncapturable(&self, operation: &'static str) -> Error {
        let why = format!(
            "bytes go through the host, which a graph cannot do, because {}",
            self.host_reason.as_deref().unwrap_or_default()
        );
        self.comm.invalid(operation, why)
    }

    pub(super) fn is_captured(&mut self, operation: impl FnOnce() -> String) -> Result<bool> {
        let status = self.stream.capture_status().map_err(|error| {
            let why = format!("the driver reports {error:?}");
            self.fail(&operation(), why)
        })?;
        Ok(status != CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE)
    }

    /// The program of `call`, made if the call is new. Then all ranks wait for one another: loading
    /// a kernel, allocating memory and freeing it may wait until no kernel runs on the GPU, so no
    /// rank starts one that waits for a rank which is not ready.
    fn prepared(&mut self, call: CollectiveCall, is_captured: bool) -> Result<Arc<Prepared>> {
        let key = CollectiveCall { in_place: false, ..call };
        if let Some(programs) = self.programs.get(&key) {
            let prepared = Arc::clone(&programs[usize::from(call.in_place)]);
            if is_captured {
                self.captured.keep_call(&prepared);
            }
            return Ok(prepared);
        }
        if is_captured {
            let why = "make this call once before it is captured in a graph: its program has to be \
                       copied to the GPU";
            return Err(self.comm.invalid(call.collective.name(), why.to_owned()));
        }
        let apart = Arc::new(self.prepare(key)?);
        let in_place = Arc::new(self.prepare(CollectiveCall { in_place: true, ..key })?);
        if self.programs.len() == MOST_PROGRAMS.get() {
            self.programs.pop_lru();
        }
        let ready = named_call(&format!("{call}, made ready"));
        self.comm.engine.get_mut().exchange(ready, Vec::new())?;
        let prepared = Arc::clone(if call.in_place { &in_place } else { &apart });
        self.programs.put(key, [apart, in_place]);
        Ok(prepared)
    }

    fn prepare(&mut self, call: CollectiveCall) -> Result<Prepared> {
        let engine = self.comm.engine.get();
        let (plan, longest) = engine.plan_on_device(call, &self.machine)?;
        let (room, slots) = plan::room(self.board().shapes(), longest);
        let plan = Plan { window: slots.bytes, ..plan };
        let lowered = engine.lower_on_device(call, plan, slots, &self.machine);
        let fingerprint = lowered.program.fingerprint;
        let made = self.load(call, room, lowered);
        let prepared =
            made.map_err(|why| self.comm.engine.get_mut().fail_on_device(call.to_string(), why))?;
        Ok(Prepared { fingerprint: (fingerprint ^ fingerprint >> 32) as u32, ..prepared })
    }

    fn load(&mut self, call: CollectiveCall, room: Room, lowered: DeviceLowered) -> Made<Prepared> {
        let program = &lowered.program;
        let me = self.comm.rank();
        let packed = DeviceProgram::new(program, me, lowered.places)
            .ok_or("its folds cut the same bytes into different parts")?;
        let kernel = self.walk(call).map_err(|error| error.to_string())?;
        let code = DeviceCode::load(&self.stream, packed.bytes()).map_err(|it| it.to_string())?;
        if lowered.divisor.is_some() || call.op.scales() {
            self.map(call.kind).map_err(|error| error.to_string())?;
        }
        let keeps = self.captured.has_calls();
        let scales = program.stages_input || call.op.scales();
        let staging = if scales { lowered.input } else { 0 };
        self.scratch.grow(program.scratch, keeps).map_err(|error| error.to_string())?;
        self.staging.grow(staging, keeps).map_err(|error| error.to_string())?;
        Ok(Prepared {
            code,
            room,
            kernel,
            stages_input: program.stages_input,
            input: lowered.input,
            divisor: lowered.divisor,
            record: lowered.record,
            fingerprint: (lowered.fingerprint ^ lowered.fingerprint >> 32) as u32,
            algorithm: lowered.algorithm,
        })
    }

    /// The kernel of `call`. Calls that combine nothing take one that every type has.
    fn walk(&mut self, call: CollectiveCall) -> std::result::Result<CudaFunction, DeviceError> {
        let op = if call.collective.reduces() { call.op.binary() } else { None };
        let op = op.unwrap_or(BinaryOp::Max);
        self.kernel(call.kind, op)
    }

    fn kernel(
        &mut self,
        kind: DataType,
        op: BinaryOp,
    ) -> std::result::Result<CudaFunction, DeviceError> {
        let module = walk_module(kind, op).expect("the type was checked to have the operation");
        if let Some(kernel) = self.walks.get(&module) {
            return Ok(kernel.clone());
        }
        let kernel = load_kernel(self.stream.context(), &module, &module)?;
        self.walks.insert(module, kernel.clone());
        Ok(kernel)
    }

    fn map(&mut self, kind: DataType) -> std::result::Result<(), DeviceError> {
        if !self.maps.contains_key(&kind) {
            self.maps.insert(kind, MapKernels::load(self.stream.context(), kind)?);
        }
        Ok(())
    }

    fn start(
        &mut self,
        prepared: &Prepared,
        call: CollectiveCall,
        (number, fingerprint): (u32, u32),
        factor: Option<Factor>,
        (input, output): (Lent<'_>, Lent<'_>),
    ) -> Made<()> {
        let said = |error: DeviceError| error.to_string();
        let patience = self.patience();
        let scratch = self.scratch.lend();
        let staging = self.staging.lend();
        let board = self.board.as_mut().expect("it is there until the rank is dropped");
        let mut from = input;
        if let Some(factor) = factor {
            from = staging.slice(0..prepared.input as u64);
            let scalar = factor.scalar(call.kind).ok_or_else(|| {
                format!("{} cannot hold the factor {}", call.kind.name(), factor.value())
            })?;
            board.scale(&self.maps[&call.kind], from, input, scalar).map_err(said)?;
        } else if prepared.stages_input {
            from = staging.slice(0..prepared.input as u64);
            board.copy(from, input).map_err(said)?;
        }
        let device_call = DeviceCall {
            room: prepared.room,
            code: &prepared.code,
            input: from,
            output,
            scratch,
            fingerprint,
            patience,
            number,
        };
        board.launch(&prepared.kernel, &[device_call]).map_err(said)?;
        if let Some(divisor) = prepared.divisor {
            board.divide(&self.maps[&call.kind], output, divisor).map_err(said)?;
        }
        Ok(())
    }
}

/// How long a rank that is dropped waits for the others, which may be in calls still.
const FAREWELL: Duration = Duration::from_secs(10);

impl Drop for DeviceRank {
    /// Waits for what was started. The memory that other processes reach is freed if they are done.
    fn drop(&mut self) {
        let Some(board) = self.board.take() else { return };
        if !self.comm.engine.get().health().is_in_own_process() {
            // A forked child has no GPU.
            std::mem::forget(board);
            return;
        }
        let done = self.stream.synchronize().is_ok() && board.words().report().is_none();
        let agrees =
            |comm: &mut Communicator| comm.within(FAREWELL).agree("dropping a cuda::Comm").is_ok();
        let others_are_done = done && board.has_processes() && agrees(&mut self.comm);
        board.close(others_are_done);
    }
}

/// Nanoseconds of a wait.
fn patience(allowed: Duration) -> u64 {
    u64::try_from(allowed.as_nanos()).unwrap_or(u64::MAX)
}
