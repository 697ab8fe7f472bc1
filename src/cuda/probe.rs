//! Whether writes of one GPU arrive at another one.
//!
//! A driver may report that GPUs reach one another's memory where writes are lost: PCI's access
//! control (ACS) or an IOMMU redirects them. Kernels of a call would time out, and the rank at the
//! other end would be blamed. So before the first call each pair of ranks moves a few bytes in both
//! ways in which calls do. Mailboxes in memory of the host are tested in the same way, and slots that
//! adapters write, by each connection: a driver may export memory that an adapter writes elsewhere.

use super::links::Introduction;
use super::plan;
use crate::comm::Communicator;
use crate::engine::Engine;
use crate::lower::{BufferPlaces, DeviceProgram};
use cudarc::driver::CudaStream;
use maypole_kernels::cuda::{CudaError, WalkKernels};
use maypole_kernels::mix;
use maypole_kernels::packed::ShortProgram;
use maypole_transports::cuda::{
    CallStream, DeviceBoard, DeviceCall, DeviceCode, DeviceScratch, Lent, ProgramCall, Reason,
    Room, copies,
};
use std::sync::Arc;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(5);
/// Bytes that each rank publishes for others to read, and then writes to each other rank.
const BYTES: usize = 4096;
/// The identifier of a call of the probe: no other call has it.
const FINGERPRINT: u32 = 0x7072_6f62;

/// What the probe of a rank needs, made before any rank starts a kernel: allocations may wait for
/// all work of the device, so also for the kernel of another rank that uses it.
pub(super) struct ReachProbe {
    stream: Arc<CudaStream>,
    input: DeviceScratch,
    outputs: [DeviceScratch; 2],
    room: Room,
    code: DeviceCode,
    /// The same program for ranks that write their bytes to all others, if calls do.
    push: Option<ShortProgram>,
}

impl ReachProbe {
    /// For rank `me` of `all`. `None` where all ranks are threads on one GPU, which needs no probe.
    ///
    /// # Errors
    /// The driver's, if there is no memory.
    pub(super) fn new(
        all: &[Introduction],
        me: usize,
        board: &DeviceBoard,
        aside: &CudaStream,
    ) -> Result<Option<Self>, CudaError> {
        let world = all.len();
        if all.iter().all(|other| other.is_beside(&all[me])) {
            return Ok(None);
        }
        // A context's first stream waits for all its work in cudarc, a fork for that of `aside`.
        let stream = aside.fork().map_err(CudaError::of("making a stream"))?;
        let scratch = |bytes| {
            let mut scratch = DeviceScratch::new(&stream);
            scratch.grow(bytes).map(|()| scratch)
        };
        let (input, outputs) =
            (scratch(BYTES)?, [scratch(BYTES * world)?, scratch(BYTES * world)?]);
        let (room, slots) = plan::room(board.shapes(), usize::MAX);
        let program = Engine::lower_probe(BYTES, slots, (me, world));
        // Far enough from each other, wherever the output begins.
        let places = BufferPlaces { input: 0, output: usize::MAX / 2 };
        let pull = DeviceProgram::new(&program, me, places).expect("its folds move whole chunks");
        let push = DeviceProgram::exchange(&program, me, places);
        let push = push.filter(|it| board.longest_short_call() >= Some(u64::from(it.bytes)));
        let code = DeviceCode::load(&stream, pull.bytes())?;
        let bytes: Vec<u8> = (0..BYTES).map(|at| byte(me, at)).collect();
        copies::write(&stream, input.lend().slice(0..BYTES as u64), &bytes)?;
        Ok(Some(Self { stream, input, outputs, room, code, push }))
    }

    /// Moves bytes between all ranks over `board` by the kernels of bytes. All ranks of `comm` call
    /// it.
    ///
    /// # Errors
    /// Names the rank whose bytes do not arrive.
    pub(super) fn run(
        self,
        comm: &Communicator,
        board: &mut DeviceBoard,
        kernels: &WalkKernels,
    ) -> Result<(), String> {
        let moved =
            self.move_bytes(comm.world(), board, kernels).map_err(|error| error.to_string())?;
        let report = board.words().report();
        let failed = match report.map(|report| report.reason) {
            None => moved.into_iter().position(|is_right| !is_right),
            Some(Reason::TimedOut(rank) | Reason::Mismatch(rank) | Reason::Left(rank)) => {
                Some(rank)
            }
            Some(Reason::Aborted | Reason::Overlap) => {
                return Err("the probe was aborted".to_owned());
            }
        };
        let (me, seconds) = (comm.rank(), PATIENCE.as_secs());
        match failed {
            None => Ok(()),
            Some(rank) if !comm.hosts().together(me, rank) => Err(match report {
                None => format!(
                    "other bytes have arrived in the memory of the GPU of rank {me} than rank {rank} \
                     has written"
                ),
                Some(_) => format!(
                    "bytes between the hosts of ranks {me} and {rank} do not arrive within \
                     {seconds} s"
                ),
            }),
            Some(rank) => Err(format!(
                "the driver says that the GPUs of ranks {me} and {rank} reach the mailboxes of both, but \
                 what one writes does not arrive at the other within {seconds} s: PCI access control \
                 (ACS) or an IOMMU between them may drop it; switch ACS off for the bridges of the GPUs, \
                 and the IOMMU off or to passthrough (iommu=pt)"
            )),
        }
    }

    /// Lets each rank read and write the memory of all others. Returns whether the bytes of each
    /// rank are right.
    fn move_bytes(
        &self,
        world: usize,
        board: &mut DeviceBoard,
        kernels: &WalkKernels,
    ) -> Result<Vec<bool>, CudaError> {
        let on = CallStream::new(&self.stream)?;
        board.in_order(&on, |board| {
            let [output, pushed] = self.outputs.each_ref().map(DeviceScratch::lend);
            let call = DeviceCall {
                input: self.input.lend(),
                output,
                fingerprint: FINGERPRINT,
                patience: PATIENCE.as_nanos() as u64,
                number: 0,
            };
            let (room, code) = (self.room, &self.code);
            // Connections between hosts share the lanes.
            let longest = if board.has_slots_on_gpus() { u64::MAX } else { BYTES as u64 };
            let walk = ProgramCall { room, code, longest, scratch: Lent::EMPTY, call };
            board.launch(&on, &kernels.walk, &[walk], &[])?;
            let short = DeviceCall { output: pushed, ..call };
            let push = self.push.as_ref();
            push.map_or(Ok(()), |it| board.launch_short(&on, &kernels.short, &short, it))
        })?;
        let used = &self.outputs[..if self.push.is_some() { 2 } else { 1 }];
        let read = used.iter().map(|output| copies::read(&self.stream, output.lend()));
        let read = read.collect::<Result<Vec<_>, _>>()?;
        let is_right = |bytes: &[u8], rank: usize| {
            let block = &bytes[rank * BYTES..][..BYTES];
            block.iter().enumerate().all(|(at, is)| *is == byte(rank, at))
        };
        Ok((0..world).map(|rank| read.iter().all(|bytes| is_right(bytes, rank))).collect())
    }
}

/// Byte `at` of the message of rank `rank`.
fn byte(rank: usize, at: usize) -> u8 {
    mix((rank * BYTES + at) as u64 + 1) as u8
}
