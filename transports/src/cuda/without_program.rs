//! Calls that need no program: those of few bytes, and those of ranks that read one another's buffers.

use super::board::DeviceBoard;
use super::error::{DeviceError, Result};
use super::launch::{DeviceCall, start};
use super::layout::SHORT_THREADS;
use super::order::CallStream;
use super::short_and_direct::{DirectKind, DirectLaunch, MOST_SHORT_BYTES, ShortKind, ShortLaunch};
use cudarc::driver::CudaFunction;
use maypole_kernels::cuda::WALK_THREADS;

impl DeviceBoard {
    /// True if a call in which a rank has so many bytes for another one can be [short](Self::launch_short).
    pub fn makes_short_calls(&self, bytes: usize) -> bool {
        self.locals.short.is_some() && bytes <= MOST_SHORT_BYTES
    }

    /// Starts a short call, as [`launch`](Self::launch) starts others: of so few bytes that the board
    /// [makes short calls](Self::makes_short_calls) of them, equally many on all ranks. All ranks pass the
    /// same `kind`.
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
        call: &DeviceCall<'_>,
        kind: ShortKind,
    ) -> Result<()> {
        let common = self.locals.short.expect("the group makes short calls");
        let ranks = u64::from(common.ranks);
        let bytes = call.input.bytes() / if kind == ShortKind::Exchange { ranks } else { 1 };
        assert!(self.makes_short_calls(bytes as usize), "{bytes} bytes are few");
        let blocks = if kind == ShortKind::Combine { 1 } else { ranks };
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
            kind: kind as u32,
            ..common
        };
        let lines = bytes.div_ceil(8).max(1) as u32;
        let threads = lines.next_multiple_of(32).clamp(32, SHORT_THREADS as u32);
        let blocks = lines.div_ceil(SHORT_THREADS as u32);
        // SAFETY: the kernel takes `ShortLaunch` by value; the buffers have the stated lengths.
        unsafe { start(on, kernel, (blocks, threads), &launch) }
    }

    /// True if ranks of the group read one another's buffers in [direct](Self::launch_direct) calls.
    pub fn makes_direct_calls(&self) -> bool {
        self.locals.direct.is_some()
    }

    /// Starts a direct call, as [`launch`](Self::launch) starts others: a long one of ranks that share one GPU
    /// and one process, which read the input of one another, and the output. All ranks do so for the same calls.
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
        call: &DeviceCall<'_>,
        kind: DirectKind,
    ) -> Result<()> {
        let common = self.locals.direct.expect("the group makes direct calls");
        let (input, output) = (call.input.bytes(), call.output.bytes());
        let ranks = u64::from(common.ranks);
        let is_me = |root: usize| root == common.me as usize;
        let (bytes, enough) = match kind {
            DirectKind::AllReduce => (input, output >= input),
            DirectKind::AllGather => (input, output >= input * ranks),
            DirectKind::ReduceScatter => (output, input >= output * ranks),
            DirectKind::Broadcast(root) => (output, !is_me(root) || input >= output),
        };
        if !enough {
            let why = format!("{input} and {output} bytes are too few for {kind:?}");
            return Err(DeviceError::Program(why));
        }
        let root = if let DirectKind::Broadcast(root) = kind { root as u32 } else { 0 };
        let launch = DirectLaunch {
            input: call.input.address(),
            output: call.output.address(),
            patience: call.patience,
            bytes,
            fingerprint: call.fingerprint,
            number: call.number,
            kind: kind.number(),
            root,
            ..common
        };
        let shape = self.shapes.groups.last().expect("a group has mailboxes");
        let lanes = shape.lanes_of(bytes);
        // SAFETY: the kernel takes `DirectLaunch` by value; the buffers have the stated lengths,
        // and those of the other ranks, which are threads of this process, stay until this rank has
        // ended the call.
        unsafe { start(on, kernel, (lanes, WALK_THREADS), &launch) }
    }
}
