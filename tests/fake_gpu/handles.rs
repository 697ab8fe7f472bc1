//! Memory that one process opens in another.

use crate::raw::{allocate, close, context, export, free, open, read, write};
use crate::spawn::{ranks, say};
use crate::{Role, check, world};
use cudarc::driver::sys::{CUipcMemHandle, CUresult};
use cudarc::driver::{CudaSlice, DevicePtr};
use std::path::PathBuf;
use std::time::{Duration, Instant};

pub(crate) const ROLES: &[(&str, Role)] = &[
    ("exchanges memory", exchange),
    ("is refused handles", be_refused),
    ("has no peers", have_no_peers),
    ("sees one device", see_one),
];

const LIMIT: Duration = Duration::from_secs(60);
const BYTES: usize = 100_000;

/// A folder of both processes, for notes to the other one.
fn note(name: &str) -> PathBuf {
    PathBuf::from(std::env::var_os("TEST_NOTES").unwrap()).join(name)
}

fn leave_note(name: &str, bytes: &[u8]) {
    let unfinished = note(&format!("{name}.unfinished"));
    std::fs::write(&unfinished, bytes).unwrap();
    std::fs::rename(unfinished, note(name)).unwrap();
}

fn await_note(name: &str) -> Vec<u8> {
    let end = Instant::now() + LIMIT;
    loop {
        match std::fs::read(note(name)) {
            Ok(bytes) => return bytes,
            Err(error) => assert!(Instant::now() < end, "no note '{name}': {error}"),
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn handle_in(bytes: &[u8]) -> CUipcMemHandle {
    let mut handle = CUipcMemHandle { reserved: [0; 64] };
    handle.reserved.iter_mut().zip(bytes).for_each(|(into, byte)| *into = *byte as _);
    handle
}

fn exchange() {
    match ranks()[0] {
        0 => lend(),
        _ => borrow(),
    }
}

/// Lends memory in which the other process changes something.
fn lend() {
    let _context = context(0);
    let address = allocate(BYTES).unwrap();
    write(address, &[7; BYTES]);
    // The handle of an address in the middle is that of the whole allocation.
    let handle = export(address + 512).unwrap();
    leave_note("handle", &handle.reserved.map(|byte| byte as u8));
    await_note("changed");
    assert_eq!(read(address + 1000, 3), [1, 2, 3]);
    assert_eq!(read(address, 1000), [7; 1000]);
    free(address).unwrap();
    // The handle of the freed memory is not that of the next one.
    let next = allocate(BYTES).unwrap();
    leave_note("freed", &[]);
    await_note("refused");
    free(next).unwrap();
}

fn borrow() {
    let _context = context(1);
    let handle = handle_in(&await_note("handle"));
    let address = open(handle).unwrap();
    assert_eq!(open(handle), Ok(address), "a second opening is of the same memory");
    assert_eq!(read(address, BYTES), [7; BYTES]);
    assert_eq!(export(address), Err(CUresult::CUDA_ERROR_INVALID_VALUE));
    write(address + 1000, &[1, 2, 3]);
    close(address).unwrap();
    assert_eq!(read(address + 1001, 1), [2]);
    close(address).unwrap();
    assert_eq!(close(address), Err(CUresult::CUDA_ERROR_INVALID_VALUE));
    leave_note("changed", &[]);
    await_note("freed");
    assert_eq!(open(handle), Err(CUresult::CUDA_ERROR_INVALID_HANDLE));
    leave_note("refused", &[]);
}

#[test]
fn two_processes_have_the_same_memory_emulated() {
    let notes = tempfile::tempdir().unwrap();
    let Some(world) = world("exchanges memory", 2) else { return };
    let world = world.set("TEST_NOTES", notes.path().to_str().unwrap());
    for ended in world.set("FAKE_CUDA_LEAKS", 1).start().succeed() {
        assert!(!ended.lines.iter().any(|line| line.contains("opened handles")));
    }
}

fn be_refused() {
    let context = context(0);
    let stream = context.default_stream();
    let slice: CudaSlice<u8> = stream.alloc_zeros(64).unwrap();
    let (pool, guard) = slice.device_ptr(&stream);
    assert_eq!(export(pool).map(drop), Err(CUresult::CUDA_ERROR_INVALID_VALUE));
    drop(guard);
    let address = allocate(64).unwrap();
    let handle = export(address).unwrap();
    assert_eq!(open(handle), Err(CUresult::CUDA_ERROR_INVALID_CONTEXT));
    assert_eq!(
        open(CUipcMemHandle { reserved: [0; 64] }),
        Err(CUresult::CUDA_ERROR_INVALID_HANDLE)
    );
    free(address).unwrap();
}

#[test]
fn memory_of_pools_and_of_the_same_process_is_refused_emulated() {
    check("is refused handles", &[]);
}

fn have_no_peers() {
    use cudarc::driver::sys;
    let (first, second) = (context(0), context(1));
    let mut can = -1;
    // SAFETY: the pointer is valid.
    crate::raw::result(unsafe { sys::cuDeviceCanAccessPeer(&mut can, 0, 1) }).unwrap();
    first.bind_to_thread().unwrap();
    // SAFETY: the context lives.
    let enable = || crate::raw::result(unsafe { sys::cuCtxEnablePeerAccess(second.cu_ctx(), 0) });
    if std::env::var("FAKE_CUDA_NO_PEERS").is_ok() {
        assert_eq!(can, 0);
        assert_eq!(enable(), Err(CUresult::CUDA_ERROR_PEER_ACCESS_UNSUPPORTED));
    } else {
        assert_eq!(can, 1);
        assert_eq!(enable(), Ok(()));
        assert_eq!(enable(), Err(CUresult::CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED));
    }
}

/// Device 2 of the machine is the only one that this process sees.
fn see_one() {
    let context = context(0);
    assert_eq!(maypole_kernels::cuda::driver().unwrap().devices(), 1);
    say("uuid", context.uuid().unwrap().bytes[15]);
}

#[test]
fn a_process_sees_the_devices_that_it_is_told_to_emulated() {
    let variables = [("FAKE_CUDA_DEVICES", "4"), ("CUDA_VISIBLE_DEVICES", "2,9,1")];
    let Some(ended) = check("sees one device", &variables) else { return };
    assert_eq!(ended.said("uuid"), ["3"]);
}

#[test]
fn peers_are_enabled_once_and_only_where_they_are_reachable_emulated() {
    check("has no peers", &[]);
    check("has no peers", &[("FAKE_CUDA_NO_PEERS", "0-1")]);
    check("has no peers", &[("FAKE_CUDA_NO_PEERS", "all")]);
}
