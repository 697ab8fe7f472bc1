//! Calls of few bytes, whose programs are one exchange: `kernels/cuda/short.h`.

use super::Result;
use super::board::DeviceBoard;
use super::code::refused;
use super::launch::{DeviceCall, ShortLaunch, start};
use super::layout::SHORT_THREADS;
use super::order::CallStream;
use cudarc::driver::CudaFunction;
use maypole_kernels::packed::{MOST_SHORT_BYTES, ShortProgram};

impl DeviceBoard {
    /// The most bytes of each publication of a [short](Self::launch_short) call: no more than others in lines have, and
    /// its blocks are no more than are reserved for the group, because they wait for those of other ranks. `None` if
    /// the group makes no such calls.
    pub fn longest_short_call(&self) -> Option<u64> {
        // Each thread has eight bytes.
        let reserved = u64::from(self.shapes().most_blocks()) * 8 * SHORT_THREADS as u64;
        let lines = self.shapes().groups[0].bytes as u64;
        self.locals.short.map(|_| reserved.min(MOST_SHORT_BYTES).min(lines))
    }

    /// Starts a call of one exchange, as [`launch`](Self::launch) starts others, by the program of this rank.
    ///
    /// # Errors
    /// [`CudaError`](maypole_kernels::cuda::CudaError) if a buffer is too short, or if the driver refuses the
    /// launch.
    ///
    /// # Panics
    /// If the group [makes no such calls](Self::longest_short_call) of so many bytes, or if it is the program of
    /// another rank.
    pub fn launch_short(
        &mut self,
        on: &CallStream<'_>,
        kernel: &CudaFunction,
        call: &DeviceCall<'_>,
        program: &ShortProgram,
    ) -> Result<()> {
        let bytes = u64::from(program.bytes);
        assert!(self.longest_short_call().is_some_and(|most| bytes <= most), "it is no short call");
        let common = self.locals.short.expect("lines");
        let of = |program: &ShortProgram| (program.ranks, program.me);
        assert_eq!(of(program), of(&common.program), "it is of this rank");
        let [input, output] = program.needs();
        if call.input.bytes() < input || call.output.bytes() < output {
            let why = format!("it needs {input} bytes of input and {output} of output");
            return Err(refused(why));
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
        self.order.count(None);
        let lines = program.bytes.div_ceil(8).max(1);
        let threads = lines.next_multiple_of(32).clamp(32, SHORT_THREADS as u32);
        let blocks = lines.div_ceil(SHORT_THREADS as u32);
        // SAFETY: the kernel takes `ShortLaunch` by value; the buffers have the stated lengths.
        unsafe { start(on, kernel, (blocks, threads), &launch) }
    }
}
