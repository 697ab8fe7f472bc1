//! The errors of a program where CUDA is unavailable.

use crate::check;
use crate::raw::context;
use crate::spawn::{World, say};
use maypole_kernels::cuda;

crate::roles! {
    find;
    ask;
    load;
}

fn find() {
    match cuda::driver() {
        Ok(driver) => say("found", format!("{} {}", driver.devices(), driver.version())),
        Err(why) => say("why", why),
    }
}

fn ask() {
    say("why", cuda::driver().unwrap().context(2).unwrap_err());
}

fn load() {
    let loaded = cuda::MODULES.load(&context(0), "walk_f32_sum", "walk_f32_product");
    say("why", loaded.unwrap_err());
}

#[test]
fn a_machine_without_driver_says_so_emulated() {
    let folder = tempfile::tempdir().unwrap();
    let broken = folder.path().join("libcuda.so.1");
    std::fs::write(&broken, "no library").unwrap();
    std::fs::write(folder.path().join("libcuda.so"), "no library").unwrap();
    let world = World::new("find", 1).set("LD_LIBRARY_PATH", folder.path().to_str().unwrap());
    let ended = world.start().succeed().pop().unwrap();
    let why = ended.said("why")[0];
    assert!(why.starts_with("no driver of NVIDIA's GPUs is installed ("), "{why}");
}

#[test]
fn a_driver_that_cannot_be_used_says_why_emulated() {
    for (role, variables, tag, text) in [
        ("find", &[("FAKE_CUDA_DEVICES", "3")][..], "found", "3 12080"),
        (
            "find",
            &[("FAKE_CUDA_VERSION", "11040")],
            "why",
            "the driver is for CUDA 11.4, and the kernels need 12.1; install driver 530 or a \
             later one",
        ),
        (
            "find",
            &[("FAKE_CUDA_DEVICES", "0")],
            "why",
            "the driver does not start: CUDA_ERROR_NO_DEVICE (no CUDA-capable device is detected)",
        ),
        (
            "find",
            &[("FAKE_CUDA_FAIL", "cuInit:0:999")],
            "why",
            "the driver does not start: CUDA_ERROR_UNKNOWN (unknown error)",
        ),
        ("ask", &[], "why", "there is no GPU 2: this process sees 2 of them"),
        (
            "ask",
            &[("FAKE_CUDA_DEVICES", "3"), ("FAKE_CUDA_FAIL", "cuDevicePrimaryCtxRetain:1")],
            "why",
            "the driver does not start: CUDA_ERROR_OUT_OF_MEMORY (out of memory)",
        ),
        (
            "load",
            &[],
            "why",
            "loading kernel 'walk_f32_product': CUDA_ERROR_NOT_FOUND (named symbol not found)",
        ),
    ] {
        let Some(ended) = check(role, variables) else { return };
        assert_eq!(ended.said(tag), [text], "{variables:?}");
    }
}
