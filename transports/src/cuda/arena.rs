//! The memory of one rank that the others access.

use super::Result;
use super::memory::DeviceMemory;
use super::order::BesideCapture;
use super::registered_segment::RegisteredSegment;
use crate::lock;
use bytemuck::{Pod, Zeroable};
use cudarc::driver::sys::{
    CUdeviceptr, CUipcMem_flags, CUipcMemHandle, CUresult, cuCtxEnablePeerAccess,
    cuDeviceCanAccessPeer, cuIpcCloseMemHandle, cuIpcGetMemHandle, cuIpcOpenMemHandle_v2,
};
use cudarc::driver::{CudaContext, CudaStream, DriverError};
use maypole_kernels::cuda::CudaError;
use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, LazyLock, Mutex, OnceLock, Weak};

/// The name of a process: equal for two ranks exactly if they are threads of one process.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq, Pod, Zeroable)]
#[repr(C)]
pub struct ProcessName {
    number: u64,
    random: u64,
}

impl ProcessName {
    /// The number of the process in its namespace.
    pub(super) fn number(self) -> u32 {
        self.number as u32
    }

    /// The bytes to be compared in some order.
    pub fn to_bytes(&self) -> [u8; 16] {
        bytemuck::cast(*self)
    }

    /// The name of this process.
    pub fn current() -> Self {
        static RANDOM: OnceLock<u64> = OnceLock::new();
        // Without a source of random numbers, the number of the process must suffice.
        let random = RANDOM.get_or_init(|| crate::random::bytes().map_or(0, u64::from_le_bytes));
        Self { number: u64::from(std::process::id()), random: *random }
    }
}

/// How another rank reaches an arena: plain bytes, to be passed on.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct Offer {
    /// The process of the memory.
    pub process: ProcessName,
    /// The number of the GPU in its process.
    pub ordinal: u64,
    /// The PID namespace of the process; 0 if unknown.
    pub(super) namespace: u64,
    address: u64,
    /// Bytes of the arena.
    pub bytes: u64,
    /// 1 if the handle is valid.
    has_handle: u64,
    handle: [u8; 64],
}

/// Bytes of the blocks that the driver shares between processes.
const SHARED_BLOCK: usize = 2 << 20;

/// The namespace of this process's number.
fn pid_namespace() -> u64 {
    std::fs::metadata("/proc/self/ns/pid").map_or(0, |namespace| namespace.ino())
}

/// Memory by GPU and address.
type Arenas = HashMap<(usize, CUdeviceptr), Weak<DeviceMemory>>;

/// The arenas of this process: ranks that are threads share them.
static ARENAS: LazyLock<Mutex<Arenas>> = LazyLock::new(Mutex::default);

/// Makes an arena of `bytes` bytes for a rank of this process, and what it offers to the others.
pub(super) fn mailbox_memory(
    stream: &CudaStream,
    bytes: usize,
) -> Result<(Arc<DeviceMemory>, Offer)> {
    let context = stream.context();
    // The driver shares the whole block of memory in which an allocation lies.
    let memory = Arc::new(DeviceMemory::new(stream, bytes.next_multiple_of(SHARED_BLOCK))?);
    let mut handle = CUipcMemHandle { reserved: [0; 64] };
    // SAFETY: the address is that of an allocation of ours, and the handle is a plain struct.
    let has_handle = unsafe { cuIpcGetMemHandle(&mut handle, memory.address()) };
    let offer = Offer {
        process: ProcessName::current(),
        ordinal: context.ordinal() as u64,
        namespace: pid_namespace(),
        address: memory.address(),
        bytes: bytes as u64,
        has_handle: u64::from(has_handle == CUresult::CUDA_SUCCESS),
        handle: handle.reserved.map(|byte| byte as u8),
    };
    let mut arenas = lock(&ARENAS);
    arenas.retain(|_, memory| memory.strong_count() > 0);
    arenas.insert((context.ordinal(), memory.address()), Arc::downgrade(&memory));
    drop(arenas);
    Ok((memory, offer))
}

/// An arena of another rank, mapped for this rank's GPU.
#[derive(Debug)]
pub(super) enum Reached {
    /// Of this process.
    Here(Arc<DeviceMemory>),
    /// Of another process of this host.
    Opened(OpenedHandle),
    /// In memory of the host, so many bytes from its start on.
    InHost(Arc<RegisteredSegment>, u64),
}

/// Memory of another process, as the driver has mapped it.
#[derive(Debug)]
pub(super) struct OpenedHandle {
    context: Arc<CudaContext>,
    address: CUdeviceptr,
}

impl Reached {
    /// Reaches the arena that rank `rank` offers from the GPU of `context`.
    ///
    /// # Errors
    /// [`CudaError`]: the two GPUs are not joined, or the driver cannot map the
    /// memory.
    pub(super) fn new(context: &Arc<CudaContext>, rank: usize, offer: &Offer) -> Result<Self> {
        let unreachable = |why: String| {
            let gpu = context.ordinal();
            let what = format!("GPU {gpu} cannot reach the memory of rank {rank}");
            CudaError::described(what, why)
        };
        if offer.process == ProcessName::current() {
            let key = (offer.ordinal as usize, offer.address);
            let memory = lock(&ARENAS).get(&key).and_then(Weak::upgrade);
            let memory = memory.ok_or_else(|| unreachable("it is freed already".to_owned()))?;
            if offer.ordinal as usize != context.ordinal() {
                allow_access(context, offer.ordinal as usize).map_err(unreachable)?;
            }
            return Ok(Self::Here(memory));
        }
        if offer.has_handle == 0 {
            return Err(unreachable("the driver has no handle for it".to_owned()));
        }
        open(context, offer).map(Self::Opened).map_err(unreachable)
    }

    pub(super) fn address(&self) -> CUdeviceptr {
        match self {
            Self::Here(memory) => memory.address(),
            Self::Opened(opened) => opened.address,
            Self::InHost(memory, offset) => memory.address + offset,
        }
    }
}

/// Lets the GPU of `context` read and write the memory of GPU `other`.
fn allow_access(context: &Arc<CudaContext>, other: usize) -> Result<(), String> {
    let _beside = BesideCapture::begin();
    let failed = |error: DriverError| CudaError::new("joining two GPUs", error).to_string();
    let peer = CudaContext::new(other).map_err(failed)?;
    let mut able = 0;
    // SAFETY: both devices exist, and the pointer is valid.
    unsafe { cuDeviceCanAccessPeer(&mut able, context.cu_device(), peer.cu_device()) }
        .result()
        .map_err(failed)?;
    if able == 0 {
        return Err(format!("GPU {other} has no peer access with it"));
    }
    context.bind_to_thread().map_err(failed)?;
    // SAFETY: the context of the other GPU lives as long as its primary context is retained, which
    // the owner of the memory does.
    match unsafe { cuCtxEnablePeerAccess(peer.cu_ctx(), 0) } {
        CUresult::CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED => Ok(()),
        code => code.result().map_err(failed),
    }
}

fn open(context: &Arc<CudaContext>, offer: &Offer) -> Result<OpenedHandle, String> {
    let failed = |error| CudaError::new("opening the memory of another process", error).to_string();
    let _beside = BesideCapture::begin();
    context.bind_to_thread().map_err(failed)?;
    let handle = CUipcMemHandle { reserved: offer.handle.map(|byte| byte as _) };
    let flags = CUipcMem_flags::CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS as u32;
    let mut address = 0;
    // SAFETY: the handle is one that the driver of this host has made; another one is an error.
    unsafe { cuIpcOpenMemHandle_v2(&mut address, handle, flags) }.result().map_err(failed)?;
    Ok(OpenedHandle { context: Arc::clone(context), address })
}

impl Drop for OpenedHandle {
    fn drop(&mut self) {
        let _beside = BesideCapture::begin();
        if self.context.bind_to_thread().is_ok() {
            // SAFETY: the address is that of a handle which `open` has opened; no kernel of this
            // rank runs any more.
            let _ = unsafe { cuIpcCloseMemHandle(self.address) };
        }
    }
}
