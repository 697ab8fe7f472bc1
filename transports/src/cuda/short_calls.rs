//! Calls of few bytes, which need no program: `kernels/cuda/short.h`.

use super::board::DeviceBoard;
use super::error::{DeviceError, Result};
use super::launch::{DeviceCall, start};
use super::layout::{SHORT_BLOCKS, SHORT_THREADS};
use super::order::CallStream;
use super::short_launch::ShortLaunch;
use cudarc::driver::CudaFunction;

/// Most bytes of a rank in a short call.
const MOST_SHORT_BYTES: usize = SHORT_BLOCKS * SHORT_THREADS * 8;

/// The operation of a short call. Its numbers are those of `program.h`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ShortKind {
    /// Every rank gets the combination of all inputs.
    Combine = 0,
    /// Every rank gets all inputs, side by side.
    Gather = 1,
    /// Every rank gets its block of each input, side by side.
    Exchange = 2,
}

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
}
