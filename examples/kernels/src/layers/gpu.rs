//! A GPU as a machine for layers, by its driver.

use super::MODULES;
use super::machine::{Launch, Machine};
use cudarc::driver::{
    CudaContext, CudaFunction, CudaSlice, CudaStream, DevicePtr, LaunchConfig, PinnedHostSlice,
    PushKernelArg,
};
use maypole_kernels::cuda::{CudaError, Unavailable, driver};
use std::collections::HashMap;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

/// Memory is allocated in multiples of this many bytes, so that slowly growing calls rarely allocate.
const PIECE: usize = 2 << 20;

/// One GPU, with a stream of work and memory of its own.
///
/// The memory, and the host's copy of it in pinned memory, are as large as the largest call so
/// far. They grow when a larger call comes, and nothing else is allocated during a call. Dropping
/// waits for work in flight.
pub struct Gpu {
    ordinal: usize,
    stream: Arc<CudaStream>,
    functions: HashMap<(&'static str, &'static str), CudaFunction>,
    memory: Option<GpuMemory>,
    /// True if a copy from or to the host's buffer may be in flight.
    copying: bool,
}

/// A GPU's memory, and the host's copy of it, of equal lengths.
struct GpuMemory {
    device: CudaSlice<u8>,
    staging: PinnedHostSlice<u8>,
}

impl fmt::Debug for Gpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gpu").field("ordinal", &self.ordinal).finish_non_exhaustive()
    }
}

impl Gpu {
    /// The GPU with this number, as this process counts them.
    ///
    /// # Errors
    /// [`Unavailable`] if there is no driver or no such GPU, or if it cannot be used.
    pub fn open(ordinal: usize) -> Result<Self, Unavailable> {
        let context = driver()?.context(ordinal)?;
        let unusable = |error| Unavailable::NoStart(CudaError::new("a stream", error).to_string());
        let stream = context.new_stream().map_err(unusable)?;
        Ok(Self { ordinal, stream, functions: HashMap::new(), memory: None, copying: false })
    }

    /// The number of the GPU.
    pub fn ordinal(&self) -> usize {
        self.ordinal
    }

    /// The name of the GPU, from its driver.
    ///
    /// # Errors
    /// [`CudaError`] if the driver does not return it.
    pub fn name(&self) -> Result<String, CudaError> {
        let name = self.context().name();
        name.map_err(|error| CudaError::new(format!("the name of GPU {}", self.ordinal), error))
    }

    fn context(&self) -> &Arc<CudaContext> {
        self.stream.context()
    }

    /// Bytes of the memory.
    fn capacity(&self) -> usize {
        self.memory.as_ref().map_or(0, |memory| memory.device.len())
    }

    /// Where the memory begins on the GPU.
    fn address(&self) -> u64 {
        self.memory.as_ref().map_or(0, |memory| memory.device.device_ptr(&self.stream).0)
    }

    fn wait(&mut self) -> Result<(), CudaError> {
        let what = || format!("waiting for GPU {}", self.ordinal);
        self.stream.synchronize().map_err(|error| CudaError::new(what(), error))?;
        self.copying = false;
        Ok(())
    }

    /// The error message when an allocation of `bytes` bytes fails.
    fn too_much(&self, bytes: usize, whose: &str) -> String {
        let mib = |bytes: usize| bytes.div_ceil(1 << 20);
        let free = self.context().mem_get_info();
        let free =
            free.map_or(String::new(), |(free, _)| format!(", and {} MiB are free", mib(free)));
        format!(
            "GPU {}: a layer needs {} MiB of {whose} memory{free}: compute fewer rows at a time, \
             or a smaller model",
            self.ordinal,
            mib(bytes)
        )
    }

    fn allocate(&self, bytes: usize) -> Result<GpuMemory, CudaError> {
        // SAFETY: every byte may have any value, and kernels read only bytes that were copied or written
        // before.
        let device = unsafe { self.stream.alloc::<u8>(bytes) }
            .map_err(|error| CudaError::new(self.too_much(bytes, "its"), error))?;
        // SAFETY: the system allocates pinned memory, which it initialises.
        let staging = unsafe { self.context().alloc_pinned_with_flags::<u8>(bytes, 0) }
            .map_err(|error| CudaError::new(self.too_much(bytes, "pinned"), error))?;
        Ok(GpuMemory { device, staging })
    }

    /// The function of a kernel, which is loaded when it is first needed.
    fn function(&mut self, launch: &Launch) -> Result<CudaFunction, CudaError> {
        let key = (launch.module(), launch.kernel());
        if let Some(function) = self.functions.get(&key) {
            return Ok(function.clone());
        }
        let function = MODULES.load(self.context(), launch.module(), launch.kernel())?;
        self.functions.insert(key, function.clone());
        Ok(function)
    }
}

impl Machine for Gpu {
    fn reserve(&mut self, bytes: usize) -> Result<(), CudaError> {
        if bytes <= self.capacity() {
            return Ok(());
        }
        self.wait()?;
        // First the old memory goes, because there may not be enough for both.
        self.memory = None;
        self.wait()?;
        self.memory = Some(self.allocate(bytes.next_multiple_of(PIECE))?);
        Ok(())
    }

    fn staging(&mut self) -> Result<&mut [u8], CudaError> {
        if self.copying {
            self.wait()?;
        }
        let Some(memory) = &mut self.memory else { return Ok(&mut []) };
        let staging = memory.staging.as_mut_slice();
        staging.map_err(|error| CudaError::new("the host's copy of a GPU's memory", error))
    }

    fn upload(&mut self, bytes: Range<usize>) -> Result<(), CudaError> {
        let Some(memory) = self.memory.as_mut().filter(|_| !bytes.is_empty()) else {
            return Ok(());
        };
        let GpuMemory { device, staging } = memory;
        let failed = |error| CudaError::new("copying to a GPU", error);
        let staging = &staging.as_slice().map_err(failed)?[bytes.clone()];
        // `staging` lends the host's copy again only when this copy is done.
        self.copying = true;
        self.stream.memcpy_htod(staging, &mut device.slice_mut(bytes)).map_err(failed)
    }

    fn launch(&mut self, launch: &Launch) -> Result<(), CudaError> {
        let capacity = self.capacity();
        launch.assert_within(capacity);
        let function = self.function(launch)?;
        let memory = self.address();
        let words: Vec<u64> = launch.words().iter().map(|word| word.bits(memory)).collect();
        let grid = LaunchConfig {
            grid_dim: (launch.blocks(), 1, 1),
            block_dim: (launch.threads(), 1, 1),
            shared_mem_bytes: 0,
        };
        let mut builder = self.stream.launch_builder(&function);
        for word in &words {
            builder.arg(word);
        }
        // SAFETY: every parameter of these kernels has eight bytes, and launches are made by the
        // functions of this module, with the words of their kernels. The kernels stay within the
        // places among the words, and these are within the memory.
        let launched = unsafe { builder.launch(grid) };
        let what = || format!("kernel '{}' on GPU {}", launch.kernel(), self.ordinal);
        launched.map(drop).map_err(|error| CudaError::new(what(), error))
    }

    fn download(&mut self, bytes: Range<usize>) -> Result<(), CudaError> {
        if let Some(memory) = self.memory.as_mut().filter(|_| !bytes.is_empty()) {
            let GpuMemory { device, staging } = memory;
            let failed = |error| CudaError::new("copying from a GPU", error);
            let staging = &mut staging.as_mut_slice().map_err(failed)?[bytes.clone()];
            self.copying = true;
            self.stream.memcpy_dtoh(&device.slice(bytes), staging).map_err(failed)?;
        }
        self.wait()
    }
}

impl Drop for Gpu {
    fn drop(&mut self) {
        // The host's buffer is freed now, so no copy may be in flight. A GPU that has failed copies
        // no more.
        let _ = self.wait();
    }
}
