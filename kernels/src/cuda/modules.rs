//! The compiled kernels, one module for each type and operation.

use super::driver::CudaError;
use crate::{BinaryOp, DataType};
use cudarc::driver::{CudaContext, CudaFunction, CudaModule};
use cudarc::nvrtc::Ptx;
use flate2::read::GzDecoder;
use std::collections::HashMap;
use std::io::Read;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

macro_rules! modules {
    ($($name:literal)*) => {
        Modules(&[$(($name, include_bytes!(concat!("../../cuda/ptx/", $name, ".ptx.gz")))),*])
    };
}

/// The header of the kernels. Its numbers are those that other crates launch them with.
#[doc(hidden)]
pub const PROGRAM_HEADER: &str = include_str!("../../cuda/program.h");

/// The modules of this crate.
pub const MODULES: Modules = modules! {
    "walk_f16_sum" "walk_f16_product" "walk_f16_min" "walk_f16_max"
    "walk_bf16_sum" "walk_bf16_product" "walk_bf16_min" "walk_bf16_max"
    "walk_f32_sum" "walk_f32_product" "walk_f32_min" "walk_f32_max"
    "walk_f64_sum" "walk_f64_product" "walk_f64_min" "walk_f64_max"
    "walk_i8_min" "walk_i8_max"
    "walk_i16_min" "walk_i16_max"
    "walk_i32_min" "walk_i32_max"
    "walk_i64_min" "walk_i64_max"
    "walk_u8_sum" "walk_u8_product" "walk_u8_min" "walk_u8_max"
    "walk_u8_and" "walk_u8_or" "walk_u8_xor"
    "walk_u16_sum" "walk_u16_product" "walk_u16_min" "walk_u16_max"
    "walk_u16_and" "walk_u16_or" "walk_u16_xor"
    "walk_u32_sum" "walk_u32_product" "walk_u32_min" "walk_u32_max"
    "walk_u32_and" "walk_u32_or" "walk_u32_xor"
    "walk_u64_sum" "walk_u64_product" "walk_u64_min" "walk_u64_max"
    "walk_u64_and" "walk_u64_or" "walk_u64_xor"
    "map_f16" "map_bf16" "map_f32" "map_f64"
    "map_i8" "map_i16" "map_i32" "map_i64"
    "map_u8" "map_u16" "map_u32" "map_u64"
};

/// Compiled kernels: the names of modules, and their compressed PTX.
///
/// ```
/// use maypole_kernels::cuda::{MODULES, walk_module};
/// use maypole_kernels::{BinaryOp, DataType};
/// let module = walk_module(DataType::F32, BinaryOp::Sum).unwrap();
/// assert!(MODULES.ptx(&module).unwrap().contains(".entry walk_f32_sum"));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Modules(&'static [(&'static str, &'static [u8])]);

impl Modules {
    /// Modules of these names. Each is PTX that was compressed by gzip.
    pub const fn new(modules: &'static [(&'static str, &'static [u8])]) -> Self {
        Self(modules)
    }

    /// Returns the PTX of a module; `None` if there is no module of that name.
    ///
    /// # Panics
    /// If the module was not compressed by gzip.
    pub fn ptx(self, module: &str) -> Option<String> {
        let (_, compressed) = self.0.iter().find(|(name, _)| *name == module)?;
        let mut text = String::new();
        GzDecoder::new(*compressed)
            .read_to_string(&mut text)
            .expect("the modules were compressed when they were made");
        Some(text)
    }

    /// Returns the kernel `kernel` of `module` in a context. If the module is not loaded there, the
    /// driver compiles it for the GPU, which takes a fraction of a second, and keeps the result in a
    /// cache of its own. While it loads, it may wait for all kernels of the GPU to end. It stays loaded as
    /// long as the process lives, because unloading it may wait, too.
    ///
    /// # Errors
    /// [`CudaError`] if the driver refuses the module.
    ///
    /// # Panics
    /// If there is no such module.
    pub fn load(
        self,
        context: &Arc<CudaContext>,
        module: &str,
        kernel: &str,
    ) -> Result<CudaFunction, CudaError> {
        let failed = |error| CudaError::new(format!("loading kernel '{kernel}'"), error);
        // The functions below use the context of the thread.
        context.bind_to_thread().map_err(failed)?;
        let function = self.load_module(context, module)?.load_function(kernel).map_err(failed)?;
        // The driver may put off loading until the kernel is needed: now.
        function.num_regs().map_err(failed)?;
        function.occupancy_max_active_blocks_per_multiprocessor(1, 0, None).map_err(failed)?;
        Ok(function)
    }

    fn load_module(
        self,
        context: &Arc<CudaContext>,
        name: &str,
    ) -> Result<Arc<CudaModule>, CudaError> {
        let key = (context.cu_ctx() as usize, name.to_owned());
        let mut loaded = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(module) = loaded.get(&key) {
            return Ok(Arc::clone(module));
        }
        let text = self.ptx(name).unwrap_or_else(|| panic!("there is no module '{name}'"));
        let module = context
            .load_module(Ptx::from_src(text))
            .map_err(|error| CudaError::new(format!("loading module '{name}'"), error))?;
        loaded.insert(key, Arc::clone(&module));
        Ok(module)
    }

    /// True if [`load`](Self::load) has loaded `module` in this context: then it does not wait.
    pub fn is_loaded(self, context: &CudaContext, module: &str) -> bool {
        let loaded = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
        loaded.contains_key(&(context.cu_ctx() as usize, module.to_owned()))
    }
}

/// Returns the name of the module, and of its kernel, that combines elements of `kind` by `op`;
/// `None` if the type has no such operation. Operations that treat the bits of signed and unsigned
/// integers alike share a module.
pub fn walk_module(kind: DataType, op: BinaryOp) -> Option<String> {
    if !op.supports(kind) {
        return None;
    }
    let (kind, op) = match (kind, op) {
        // A bool is a byte that is 0 or 1.
        (DataType::Bool, BinaryOp::Min) => (DataType::U8, BinaryOp::And),
        (DataType::Bool, BinaryOp::Max) => (DataType::U8, BinaryOp::Or),
        (DataType::Bool, op) => (DataType::U8, op),
        (kind, BinaryOp::Min | BinaryOp::Max) => (kind, op),
        (DataType::I8, op) => (DataType::U8, op),
        (DataType::I16, op) => (DataType::U16, op),
        (DataType::I32, op) => (DataType::U32, op),
        (DataType::I64, op) => (DataType::U64, op),
        (kind, op) => (kind, op),
    };
    Some(format!("walk_{}_{op:?}", kind.name()).to_lowercase())
}

/// Modules by context and name.
type Loaded = HashMap<(usize, String), Arc<CudaModule>>;

/// The modules of this process. Ranks that are threads share them.
static LOADED: LazyLock<Mutex<Loaded>> = LazyLock::new(Mutex::default);

/// Threads of a block of a kernel that walks programs.
pub const WALK_THREADS: u32 = 512;

/// The kernels of a module that combines elements of one type by one operation.
#[derive(Clone, Debug)]
pub struct WalkKernels {
    /// Walks programs: `kernels/cuda/walk.cu`.
    pub walk: CudaFunction,
    /// Makes short calls: `kernels/cuda/short.h`.
    pub short: CudaFunction,
    /// Blocks of any of them that run on a multiprocessor at the same time, at least one: the driver counts
    /// registers and memory.
    pub fitting: u32,
}

impl WalkKernels {
    /// Loads the kernels of `module`: as [`Modules::load`].
    ///
    /// # Errors
    /// [`CudaError`] if the driver refuses the module, or if there is no room.
    ///
    /// # Panics
    /// If there is no such module.
    pub fn load(context: &Arc<CudaContext>, module: &str) -> Result<Self, CudaError> {
        let what = || format!("loading the kernels of '{module}'");
        let load = |kernel| {
            let function = MODULES.load(context, module, kernel)?;
            let fitting =
                function.occupancy_max_active_blocks_per_multiprocessor(WALK_THREADS, 0, None);
            match fitting.map_err(|error| CudaError::new(what(), error))? {
                0 => {
                    let why = format!("a multiprocessor has no room for {WALK_THREADS} threads");
                    Err(CudaError::described(what(), why))
                }
                blocks => Ok((function, blocks)),
            }
        };
        let (walk, short) = (load(module)?, load("short_call")?);
        Ok(Self { walk: walk.0, short: short.0, fitting: walk.1.min(short.1) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_and_operation_has_a_kernel() {
        for kind in DataType::ALL {
            for op in BinaryOp::ALL {
                let Some(module) = walk_module(kind, op) else {
                    assert!(!op.supports(kind));
                    continue;
                };
                let text = MODULES.ptx(&module).unwrap();
                assert!(text.contains(&format!(".entry {module}(")), "{module}");
            }
        }
    }

    /// What a thread indexes at run time lies in memory of its own, which is as far away as the memory of the
    /// GPU; and what another rank writes must not come from a cache that is never refreshed.
    #[test]
    fn no_kernel_uses_local_memory_or_the_read_only_cache() {
        for (module, _) in MODULES.0 {
            let text = MODULES.ptx(module).unwrap();
            for banned in ["ld.local", "st.local", ".local .align", "ld.global.nc", "ldu."] {
                assert!(!text.contains(banned), "{module} has {banned}");
            }
        }
    }

    /// All sources of a fold are on their way before the first one is combined, up to eight.
    #[test]
    fn loads_are_under_way_together() {
        for (module, combine) in [("walk_f32_sum", "add.rn.f32"), ("walk_f64_sum", "add.rn.f64")] {
            let text = MODULES.ptx(module).unwrap();
            let (_, walk) = text.split_once(&format!(".entry {module}(")).unwrap();
            let loads = |code: &str| code.matches("@p ld.global.v2.u64").count();
            let mut runs: Vec<usize> = walk.split(combine).map(loads).collect();
            runs.retain(|loads| *loads > 0);
            // Eight rows of one source and of two, four of up to four, two of up to eight.
            assert_eq!(runs[..3], [8 + 16, 4 * 4, 2 * 8], "{module}: {runs:?}");
        }
    }

    /// The lines of all other ranks are on their way before the first one is looked at, and an await has one
    /// ordered look before its loop and one behind.
    #[test]
    fn lines_are_read_together_and_polls_have_no_order() {
        for module in ["walk_f32_sum", "walk_u8_max", "walk_bf16_sum"] {
            let text = MODULES.ptx(module).unwrap();
            let of = |name: &str| {
                let mut kernels = text.split(".entry ");
                kernels.find(|kernel| kernel.starts_with(name)).expect("the module has it")
            };
            for (kernel, most) in [("short_call", 0), (module, 9)] {
                let ordered = of(kernel).matches("ld.acquire.sys").count();
                assert!(ordered <= most, "{module}: {ordered} of at most {most}");
            }
            let lines: Vec<&str> = of("short_call").split("ld.relaxed.sys.global.v2").collect();
            assert_eq!(lines.len(), 9, "a load for each of eight ranks");
            let between = lines[1..8].iter().any(|code| code.contains("ld.relaxed.sys.global.u"));
            assert!(!between, "nothing is awaited between them");
        }
    }
}
