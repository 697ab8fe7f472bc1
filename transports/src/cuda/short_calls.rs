//! Calls of few bytes, whose programs are one exchange: `kernels/cuda/short.h`.

use super::board::DeviceBoard;
use super::error::{DeviceError, Result};
use super::launch::{DeviceCall, ShortLaunch, start};
use super::layout::SHORT_THREADS;
use super::order::CallStream;
use cudarc::driver::CudaFunction;
use maypole_kernels::packed::{MOST_SHORT_BYTES, ShortProgram};

impl DeviceBoard {
    /// True if a call whose publications have `bytes` each can be [short](Self::launch_short): its blocks are no
    /// more than are reserved for the group, because they wait for those of other ranks.
    pub fn makes_short_calls(&self, bytes: u64) -> bool {
        self.locals.short.is_some()
            && bytes <= MOST_SHORT_BYTES
            //             && blocks_of(bytes as u32) <= self.shapes().most_blocks()            && blocks_of(bytes as u32) <= self.shapes().most_blocks() blocks_of(bytes as u32) <= self.shapes().most_blocks()
    }

    /// Starts a call of one exchange, as [`launch`](Self::launch) starts others, by the program of this rank.
    ///
    /// # Errors
    /// [`DeviceError::Program`] if a buffer is too short; [`DeviceError::Driver`] if the driver refuses
    /// the launch.
    ///
    /// # Panics
    /// If the group [makes no such calls](Self::makes_short_calls) of so many bytes, or if it is the program of
    /// another rank.
    pub fn launch_short(
        &mut self,
        on: &CallStream<'_>,
        kernel: &CudaFunction,
        call: &DeviceCall<'_>,
        program: &ShortProgram,
    ) -> Result<()> {
        assert!(self.makes_short_calls(u64::from(program.bytes)), "the group makes no such calls");
        let common = self.locals.short.expect("lines");
        let of = |program: &ShortProgram| (program.ranks, program.me);
        assert_eq!(of(program), of(&common.program), "it is of this rank");
        let [input, output] = program.needs();
        if call.input.bytes() < input || call.output.bytes() < output {
            let why = format!("it needs {input} bytes of input and {output} of output");
            return Err(DeviceError::Program(why));
        }
        let launch = ShortLaunch {
            input: call.input.address(),
            output: call.output.address(),
            patience: call.patience,
            fingerprint: call.fingerprint,
            number: call.number,
            program: *program,
            ..common
        };
        let lines = program.bytes.div_ceil(8).max(1);
        let threads = lines.next_multiple_of(32).clamp(32, SHORT_THREADS as u32);
        let blocks = blocks_of(program.bytes);
        // SAFETY: the kernel takes `ShortLaunch` by value; the buffers have the stated lengths.
        unsafe { start(on, kernel, (blocks, threads), &launch) }
    }
}

/// Blocks of a call whose publications have `bytes` each: a thread has eight of them.
fn blocks_of(bytes: u32) -> u32 {
    bytes.div_ceil(8 * SHORT_THREADS as u32).max(1)
}
