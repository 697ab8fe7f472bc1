//! The driver of NVIDIA's GPUs, looked for at run time.

use cudarc::driver::sys::{
    CUdevice, CUresult, CUstream, CUstreamCaptureStatus, cuDriverGetVersion,
};
use cudarc::driver::{CudaContext, DriverError};
use libloading::Library;
use std::ffi::{CStr, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock};

/// Why there is no GPU to compute on.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Unavailable {
    /// There is no driver.
    #[error("no driver of NVIDIA's GPUs is installed ({0})")]
    NoDriver(String),
    /// The driver is older than the kernels.
    #[error(
        "the driver is for CUDA {}.{}, and the kernels need {}.{}; install driver {OLDEST} or a \
         later one",
        .0 / 1000, .0 % 1000 / 10, OLDEST_CUDA / 1000, OLDEST_CUDA % 1000 / 10
    )]
    Old(i32),
    /// The driver is installed, and reports that it cannot work.
    #[error("the driver does not start: {0}")]
    NoStart(String),
    /// There are fewer GPUs.
    #[error("there is no GPU {ordinal}: this process sees {count} of them")]
    NoDevice {
        /// The requested GPU.
        ordinal: usize,
        /// How many there are.
        count: usize,
    },
}

/// A call of the driver failed.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{what}: {why}")]
pub struct CudaError {
    what: String,
    why: String,
}

impl CudaError {
    /// The error of the operation `what`.
    pub fn new(what: impl Into<String>, error: DriverError) -> Self {
        Self { what: what.into(), why: describe(error.0) }
    }

    /// Maps an error of the driver to the error of `what`.
    pub fn of(what: impl Into<String>) -> impl FnOnce(DriverError) -> Self {
        |error| Self::new(what, error)
    }

    /// The error of `what`, which failed for another reason than one of the driver's.
    pub fn described(what: impl Into<String>, why: impl Into<String>) -> Self {
        Self { what: what.into(), why: why.into() }
    }
}

/// The driver's name of an error, and its sentence.
fn describe(code: CUresult) -> String {
    let error = DriverError(code);
    let text = |text: Result<&CStr, DriverError>| {
        text.map(|text| text.to_string_lossy().into_owned()).unwrap_or_default()
    };
    // The names are functions of the driver, too, which are looked up when they are called.
    let named =
        catch_unwind(AssertUnwindSafe(|| (text(error.error_name()), text(error.error_string()))));
    match named {
        Ok((name, sentence)) if !name.is_empty() => format!("{name} ({sentence})"),
        _ => format!("error {} of the driver", code as u32),
    }
}

/// The names under which the driver is looked for.
const LIBRARIES: [&str; 2] = ["libcuda.so.1", "libcuda.so"];
/// The driver that came with the version of CUDA whose compiler made the kernels.
const OLDEST: &str = "530";
const OLDEST_CUDA: i32 = 12_010;

/// A driver that works.
#[derive(Clone, Copy, Debug)]
pub struct Driver {
    version: i32,
    devices: usize,
}

/// Returns the driver, which is looked for once in a process.
///
/// ```
/// match maypole_kernels::cuda::driver() {
///     Ok(driver) => println!("{} GPUs", driver.devices()),
///     Err(why) => println!("CUDA unavailable: {why}"),
/// }
/// ```
///
/// # Errors
/// [`Unavailable`] names the missing part and the remedy.
pub fn driver() -> Result<Driver, Unavailable> {
    static DRIVER: OnceLock<Result<Driver, Unavailable>> = OnceLock::new();
    DRIVER.get_or_init(find).clone()
}

fn find() -> Result<Driver, Unavailable> {
    open()?;
    let mut version = 0;
    // SAFETY: the pointer is valid. A version that cannot be read is too old.
    let _ = unsafe { cuDriverGetVersion(&mut version) };
    if version < OLDEST_CUDA {
        return Err(Unavailable::Old(version));
    }
    let devices =
        CudaContext::device_count().map_err(|error| Unavailable::NoStart(describe(error.0)))?;
    Ok(Driver { version, devices: usize::try_from(devices).unwrap_or(0) })
}

fn open() -> Result<Library, Unavailable> {
    // SAFETY: the driver's library may be loaded by any program; its initialisation affects only
    // itself.
    let found = LIBRARIES.map(|name| unsafe { Library::new(name) });
    let mut why = String::new();
    for library in found {
        match library {
            Ok(library) => return Ok(library),
            Err(error) => why = error.to_string(),
        }
    }
    Err(Unavailable::NoDriver(why))
}

/// A function of the driver that cudarc may lack. The library stays open as long as the process.
///
/// # Safety
/// `F` is the type of the function that the driver's manual declares.
unsafe fn function<F: Copy>(name: &str) -> Option<F> {
    let library = Box::leak(Box::new(open().ok()?));
    // SAFETY: passed on to our caller.
    unsafe { library.get::<F>(name.as_bytes()) }.ok().map(|it| *it)
}

/// `cuDeviceGetUuid_v2`: where the 16 bytes go, and the device.
type DeviceUuid = unsafe extern "C" fn(*mut u8, CUdevice) -> CUresult;

/// The name that a GPU has in all processes. Of a part of a GPU (MIG) it is the name of the part.
///
/// cudarc calls the first version of this function if it was built against CUDA 12, and that one names
/// whole GPUs alone.
///
/// # Errors
/// [`CudaError`] if the driver's query fails.
pub fn uuid_of(context: &CudaContext) -> Result<[u8; 16], CudaError> {
    static FUNCTION: OnceLock<Option<DeviceUuid>> = OnceLock::new();
    let function = FUNCTION.get_or_init(|| {
        // SAFETY: the type is the declaration of the driver's manual.
        unsafe { function("cuDeviceGetUuid_v2") }
    });
    let mut uuid = [0; 16];
    let code = function.map_or(CUresult::CUDA_ERROR_NOT_FOUND, |function| {
        // SAFETY: the place has 16 bytes; a device that is not there is an error.
        unsafe { function(uuid.as_mut_ptr(), context.cu_device()) }
    });
    code.result().map_err(CudaError::of("naming a GPU"))?;
    Ok(uuid)
}

/// `cuStreamGetCaptureInfo_v2`: of the stream, the status, the number of the capture; the graph, its
/// dependencies and how many there are may be left out.
type CaptureInfo = unsafe extern "C" fn(
    CUstream,
    *mut CUstreamCaptureStatus,
    *mut u64,
    *mut c_void,
    *mut c_void,
    *mut c_void,
) -> CUresult;

/// Whether a stream captures a graph, and the number of that capture, which no other one has.
///
/// cudarc has this function only for programs that are built against the version of CUDA that it came
/// with; drivers have it since that version.
///
/// # Errors
/// The driver's error.
///
/// # Safety
/// `stream` is a stream of the current context, and alive.
pub unsafe fn capture_of(stream: CUstream) -> Result<(CUstreamCaptureStatus, u64), DriverError> {
    static FUNCTION: OnceLock<Option<CaptureInfo>> = OnceLock::new();
    let function = FUNCTION.get_or_init(|| {
        // SAFETY: the type is the declaration of the driver's manual.
        unsafe { function("cuStreamGetCaptureInfo_v2") }
    });
    let function = function.ok_or(DriverError(CUresult::CUDA_ERROR_NOT_FOUND))?;
    let mut status = CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
    let (mut number, none) = (0, std::ptr::null_mut());
    // SAFETY: the stream is alive, as the caller vouches for, and the pointers are valid or null.
    unsafe { function(stream, &mut status, &mut number, none, none, none) }.result()?;
    Ok((status, number))
}

impl Driver {
    /// How many GPUs this process sees.
    pub fn devices(&self) -> usize {
        self.devices
    }

    /// The version of CUDA that the driver is for: 1000 times the major number, and 10 times the
    /// minor one.
    pub fn version(&self) -> i32 {
        self.version
    }

    /// Returns the primary context of GPU `ordinal`, which all libraries of a process share.
    ///
    /// # Errors
    /// [`Unavailable`] if there is no such GPU, or if it cannot be used.
    pub fn context(&self, ordinal: usize) -> Result<Arc<CudaContext>, Unavailable> {
        if ordinal >= self.devices {
            return Err(Unavailable::NoDevice { ordinal, count: self.devices });
        }
        CudaContext::new(ordinal).map_err(|error| Unavailable::NoStart(describe(error.0)))
    }
}
