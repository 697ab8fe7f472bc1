//! Quotients and products of the elements of a buffer, as [`divide`](crate::divide) and
//! [`scale`](crate::scale) compute them.

use super::driver::CudaError;
use super::modules::MODULES;
use crate::{DataType, Scalar};
use cudarc::driver::sys::CUdeviceptr;
use cudarc::driver::{CudaContext, CudaFunction, CudaStream, LaunchConfig, PushKernelArg};
use std::sync::Arc;

/// The factor of elements.
#[derive(Clone, Copy, Debug)]
pub enum ScaleFactor {
    /// This number.
    Value(Scalar),
    /// The element at this address of the GPU's memory, as it is when the kernel runs.
    At(CUdeviceptr),
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

    /// Divides the `count` elements from `from` on by `by` into those from `into` on, when all
    /// earlier work of `stream` is done.
    ///
    /// # Errors
    /// [`CudaError`] if the driver refuses the launch.
    ///
    /// # Panics
    /// If `by` is zero.
    ///
    /// # Safety
    /// Both have `count` elements of the kernels' type in the memory of the context, are the same
    /// memory or do not overlap, and nothing but this work touches them until it is done.
    pub unsafe fn divide(
        &self,
        stream: &CudaStream,
        into: CUdeviceptr,
        from: CUdeviceptr,
        count: u64,
        by: u64,
    ) -> Result<(), CudaError> {
        assert!(by != 0, "cannot divide {} elements by zero", self.kind.name());
        if count == 0 {
            return Ok(());
        }
        // SAFETY: the kernel has these parameters; the caller vouches for the memory.
        let launched = unsafe {
            let mut launch = stream.launch_builder(&self.divide);
            launch.arg(&into).arg(&from).arg(&count).arg(&by).launch(grid(count))
        };
        launched.map(drop).map_err(|error| CudaError::new("dividing elements", error))
    }

    /// Multiplies the `count` elements from `from` on by `factor` into those from `into` on, when
    /// all earlier work of `stream` is done.
    ///
    /// # Errors
    /// [`CudaError`] if the driver refuses the launch.
    ///
    /// # Panics
    /// If `factor` has another type than the kernels.
    ///
    /// # Safety
    /// Both have `count` elements of the kernels' type in the memory of the context, are the same
    /// memory or do not overlap, and nothing but this work touches them until it is done.
    pub unsafe fn scale(
        &self,
        stream: &CudaStream,
        into: CUdeviceptr,
        from: CUdeviceptr,
        count: u64,
        factor: ScaleFactor,
    ) -> Result<(), CudaError> {
        let (bits, at) = match factor {
            ScaleFactor::At(address) => ([0; 8], address),
            ScaleFactor::Value(factor) => {
                assert_eq!(factor.kind(), self.kind, "the factor has the type of the elements");
                let mut bits = [0; 8];
                bits[..factor.bytes().len()].copy_from_slice(factor.bytes());
                (bits, 0)
            }
        };
        if count == 0 {
            return Ok(());
        }
        let factor = u64::from_le_bytes(bits);
        // SAFETY: the kernel has these parameters; the caller vouches for the memory.
        let launched = unsafe {
            let mut launch = stream.launch_builder(&self.scale);
            launch.arg(&into).arg(&from).arg(&count).arg(&factor).arg(&at).launch(grid(count))
        };
        launched.map(drop).map_err(|error| CudaError::new("scaling an input", error))
    }
}

fn grid(count: u64) -> LaunchConfig {
    let blocks = count.div_ceil(u64::from(THREADS)).min(MOST_BLOCKS) as u32;
    LaunchConfig { grid_dim: (blocks, 1, 1), block_dim: (THREADS, 1, 1), shared_mem_bytes: 0 }
}
