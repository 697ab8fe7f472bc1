//! Loading kernels while calls run.
//!
//! The driver may wait for all kernels of the GPU then, and delay the launches that these kernels
//! wait for. So a module that is new to the process is loaded while no call of a group runs.

use crate::element::DataType;
use cudarc::driver::CudaContext;
use maypole_kernels::cuda::{CudaError, MODULES, MapKernels, WalkKernels};
use maypole_transports::cuda::{BesideCapture, ContextWork};
use std::sync::Arc;
use std::time::Duration;

/// How long a module waits for the kernels of other groups to end. Then the driver decides.
const LONGEST: Duration = Duration::from_secs(10);

/// The result of work on a GPU.
pub(super) type OnGpu<T> = Result<T, CudaError>;

/// The kernels of calls in `module`.
pub(super) fn walks(context: &Arc<CudaContext>, module: &str) -> OnGpu<WalkKernels> {
    loaded(context, module, || WalkKernels::load(context, module))
}

/// The kernels of products and quotients of elements of `kind`.
pub(super) fn maps(context: &Arc<CudaContext>, kind: DataType) -> OnGpu<MapKernels> {
    let module = format!("map_{}", kind.name());
    loaded(context, &module, || MapKernels::load(context, kind))
}

fn loaded<T>(
    context: &Arc<CudaContext>,
    module: &str,
    load: impl FnOnce() -> OnGpu<T>,
) -> OnGpu<T> {
    let _beside = BesideCapture::begin();
    // Another thread may load the module meanwhile, and its call may already wait for this one.
    let is_loaded = || MODULES.is_loaded(context, module);
    match is_loaded() {
        true => load(),
        false => ContextWork::of(context).when_idle(LONGEST, is_loaded, load),
    }
}
