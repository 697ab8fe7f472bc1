//! Modules that the driver refuses, and launches that do not fit.

use crate::raw::context;
use crate::{Role, check};
use cudarc::driver::sys::CUresult;
use cudarc::driver::{CudaContext, DriverError, LaunchConfig, PushKernelArg};
use cudarc::nvrtc::Ptx;
use maypole_kernels::cuda;
use std::sync::Arc;

pub(crate) const ROLES: &[(&str, Role)] =
    &[("loads modules", load), ("launches what does not fit", launch)];

fn load_text(context: &Arc<CudaContext>, text: &str) -> Result<(), DriverError> {
    context.load_module(Ptx::from_src(text)).map(drop)
}

fn load() {
    let context = context(0);
    let text = cuda::MODULES.ptx("walk_f32_sum").unwrap();
    let refused = |code| Err(DriverError(code));
    for broken in ["", "no PTX", &text.replace(".version", ".vers"), &text.replace(".target", "")] {
        let loaded = load_text(&context, broken);
        assert_eq!(loaded, refused(CUresult::CUDA_ERROR_INVALID_PTX));
    }
    let newer = text.replace(".version 8.1", ".version 9.0");
    let loaded = load_text(&context, &newer);
    assert_eq!(loaded, refused(CUresult::CUDA_ERROR_UNSUPPORTED_PTX_VERSION));
    assert_eq!(load_text(&context, &text), Ok(()));
    let error = cuda::MODULES.load(&context, "walk_f32_sum", "walk_f32_product").unwrap_err();
    let expected =
        "loading kernel 'walk_f32_product': CUDA_ERROR_NOT_FOUND (named symbol not found)";
    assert_eq!(error.to_string(), expected);
}

#[test]
fn broken_modules_and_missing_kernels_are_refused_emulated() {
    check("loads modules", &[]);
}

fn launch() {
    let context = context(0);
    let stream = context.new_stream().unwrap();
    let kernel = cuda::MODULES.load(&context, "walk_f32_sum", "walk_f32_sum").unwrap();
    assert_eq!(kernel.max_threads_per_block(), Ok(512));
    assert_eq!(kernel.occupancy_max_active_blocks_per_multiprocessor(512, 0, None), Ok(1));
    let (one, two) = (0u64, 0u64);
    let try_launch = |blocks, threads, cooperative| {
        let config = LaunchConfig {
            grid_dim: (blocks, 1, 1),
            block_dim: (threads, 1, 1),
            shared_mem_bytes: 0,
        };
        let mut builder = stream.launch_builder(&kernel);
        builder.arg(&one).arg(&two);
        // SAFETY: the driver refuses these launches, and no kernel runs.
        let launched = unsafe {
            match cooperative {
                true => builder.launch_cooperative(config),
                false => builder.launch(config),
            }
        };
        launched.unwrap_err().0
    };
    let too_large = CUresult::CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
    assert_eq!(try_launch(5, 512, true), too_large);
    assert_eq!(try_launch(1, 1024, false), CUresult::CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
    assert_eq!(try_launch(0, 512, false), CUresult::CUDA_ERROR_INVALID_VALUE);
}

#[test]
fn launches_that_do_not_fit_are_refused_emulated() {
    check("launches what does not fit", &[("FAKE_CUDA_PROCESSORS", "4")]);
}
