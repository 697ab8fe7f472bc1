//! Quotients and products of the elements of a buffer, as [`divide`](crate::divide) and
//! [`scale`](crate::scale) compute them.

use super::driver::CudaError;
use super::modules::MODULES;
use crate::{DataType, Scalar};
use cudarc::driver::sys::CUdeviceptr;
use cudarc::driver::{CudaContext, CudaFunction, CudaStream, LaunchConfig, PushKernelArg};
use std::sync::Arc;

/// An operation on each element. `A` is the place of a factor in the memory of the GPU: its address, or lent memory.
#[derive(Clone, Copy, Debug)]
pub enum MapOp<A = CUdeviceptr> {
    /// Its product with this number.
    Times(Scalar),
    /// Its product with the element there, as it is when the kernel runs.
    TimesAt(A),
    /// Its quotient by this number.
    Over(u64),
}

/// Threads of a block.
const THREADS: u32 = 512;
/// Most blocks: enough for every GPU to be busy.
const MOST_BLOCKS: u64 = 1024;

/// The kernels for one type, in one context.
#[derive(Clone, Debug)]
pub struct MapKernels {
    kind: DataType,
    divide: CudaFunction,
    scale: CudaFunction,
}

impl MapKernels {
    /// Loads the kernels for elements of `kind`.
    ///
    /// # Errors
    /// [`CudaError`] if the driver refuses the module.
    ///
    /// # Panics
    /// If `kind` is [`DataType::Bool`], which has no arithmetic.
    pub fn load(context: &Arc<CudaContext>, kind: DataType) -> Result<Self, CudaError> {
        let module = format!("map_{}", kind.name());
        let divide = MODULES.load(context, &module, "divide_elements")?;
        let scale = MODULES.load(context, &module, "scale_elements")?;
        Ok(Self { kind, divide, scale })
    }

    /// The type of the elements.
    pub fn kind(&self) -> DataType {
        self.kind
    }

    /// Writes what `op` makes of each of the `count` elements from `from` on to those from `into` on, when all
    /// earlier work of `stream` is done.
    ///
    /// # Errors
    /// [`CudaError`] if the driver refuses the launch.
    ///
    /// # Panics
    /// If a factor has another type than the kernels, or if a divisor is zero.
    ///
    /// # Safety
    /// Both have `count` elements of the kernels' type in the memory of the context, are the same
    /// memory or do not overlap, and nothing but this work touches them until it is done. A factor in memory
    /// is one such element.
    pub unsafe fn apply(
        &self,
        stream: &CudaStream,
        into: CUdeviceptr,
        from: CUdeviceptr,
        count: u64,
        op: MapOp,
    ) -> Result<(), CudaError> {
        let (kernel, what, number, at) = match op {
            MapOp::Times(factor) => {
                assert_eq!(factor.kind(), self.kind, "the factor has the type of the elements");
                let mut bits = [0; 8];
                bits[..factor.bytes().len()].copy_from_slice(factor.bytes());
                (&self.scale, "scaling an input", u64::from_le_bytes(bits), Some(0))
            }
            MapOp::TimesAt(address) => (&self.scale, "scaling an input", 0, Some(address)),
            MapOp::Over(by) => {
                assert!(by != 0, "cannot divide {} elements by zero", self.kind.name());
                (&self.divide, "dividing elements", by, None)
            }
        };
        if count == 0 {
            return Ok(());
        }
        // SAFETY: both kernels have these parameters; the caller vouches for the memory.
        let launched = unsafe {
            let mut launch = stream.launch_builder(kernel);
            launch.arg(&into).arg(&from).arg(&count).arg(&number);
            if let Some(at) = &at {
                launch.arg(at);
            }
            launch.launch(grid(count))
        };
        launched.map(drop).map_err(CudaError::of(what))
    }
}

fn grid(count: u64) -> LaunchConfig {
    let blocks = count.div_ceil(u64::from(THREADS)).min(MOST_BLOCKS) as u32;
    LaunchConfig { grid_dim: (blocks, 1, 1), block_dim: (THREADS, 1, 1), shared_mem_bytes: 0 }
}
