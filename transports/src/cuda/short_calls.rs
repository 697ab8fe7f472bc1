//! Calls of few bytes, whose programs are one exchange: `kernels/cuda/short.h`.

use super::board::DeviceBoard;
use super::error::{DeviceError, Result};
use super::launch::{DeviceCall, ShortLaunch, start};
use super::layout::SHORT_THREADS;
use super::order::CallStream;
use cudarc::driver::CudaFunction;
use maypole_kernels::packed::{MOST_SHORT_BYTES, ShortProgram};

impl DeviceBoard {
    /// True if calls can be [short](Self::launch_short).
    pub fn makes_short_calls(&self) -> bool {
        self.locals.short.is_some()
    }

    /// Starts a call of one exchange, as [`launch`](Self::launch) starts others, by the program of this rank.
    ///
    /// # Errors
    /// [`DeviceError::Program`] if a buffer is too short; [`DeviceError::Driver`] if the driver refuses
    /// the launch.
    ///
    /// # Panics
    /// If the group [makes no such calls](Self::makes_short_calls), if it is the program of another rank, or if
    /// its bytes are too many.
    pub fn launch_short(
        &mut self,
        on: &CallStream<'_>,
        kernel: &CudaFunction,
        call: &DeviceCall<'_>,
        program: &ShortProgram,
    ) -> Result<()> {
        let common = self.locals.short.expect("the group makes short calls");
        let of = |program: &ShortProgram| (program.ranks, program.me);
        assert_eq!(of(program), of(&common.program), "it is of this rank");
        assert!(u64::from(program.bytes) <= MOST_SHORT_BYTES, "they are few");
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
        let blocks = lines.div_ceil(SHORT_THREADS as u32);
        // SAFETY: the kernel takes `ShortLaunch` by value; the buffers have the stated lengths.
        unsafe { start(on, kernel, (blocks, threads), &launch) }
    }
}
