//! Products of matrices by cuBLAS, which is looked for at run time.

use super::machine::Float;
use super::product::{MatrixPlace, Product};
use cudarc::cublas::sys::cublasOperation_t;
use cudarc::cublas::{CudaBlas, result};
use cudarc::driver::CudaStream;
use libloading::Library;
use maypole_kernels::cuda::CudaError;
use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock};

/// The names under which cuBLAS is looked for, in the order of cudarc.
const LIBRARIES: [&str; 3] = ["libcublas.so", "libcublas.so.13", "libcublas.so.12"];
/// Functions that are called, or that cudarc calls for us. cudarc panics where one is missing.
const FUNCTIONS: [&str; 5] = [
    "cublasCreate_v2",
    "cublasDestroy_v2",
    "cublasDgemmStridedBatched",
    "cublasSetStream_v2",
    "cublasSgemmStridedBatched",
];

/// cuBLAS on one stream. Numbers are multiplied and added in their own type: no TF32.
pub(super) struct Blas(CudaBlas);

/// A factor as cuBLAS takes it, which counts elements column by column.
struct BlasFactor {
    operation: cublasOperation_t,
    leading: c_int,
}

impl Blas {
    /// cuBLAS, if it is installed and works on the GPU of `stream`.
    pub(super) fn find(stream: &Arc<CudaStream>) -> Option<Self> {
        static PRESENT: OnceLock<bool> = OnceLock::new();
        if !*PRESENT.get_or_init(is_present) {
            return None;
        }
        let stream = Arc::clone(stream);
        // cudarc may find another library of these names than the one that was looked at.
        let made = catch_unwind(AssertUnwindSafe(|| CudaBlas::new(stream)));
        made.ok()?.ok().map(Self)
    }

    /// True if cuBLAS can compute `product`: one step of each factor is 1, and no length is too
    /// large.
    pub(super) fn takes(&self, product: &Product) -> bool {
        let Product { batch, c, a, b, .. } = product;
        let counts = [c.rows, c.columns, a.columns, c.row, batch.inner];
        let small = counts.iter().all(|count| c_int::try_from(*count).is_ok());
        let some = counts.iter().all(|count| *count > 0);
        small && some && c.row >= c.columns && factor(a).is_some() && factor(b).is_some()
    }

    /// Starts `product` in a memory that begins at `memory`.
    ///
    /// # Safety
    /// The matrices lie within the memory, and [`takes`](Self::takes) is true of the product.
    pub(super) unsafe fn multiply(&self, product: &Product, memory: u64) -> Result<(), CudaError> {
        (0..product.batch.outer).try_for_each(|nth| {
            // SAFETY: as the caller vouches.
            let done = unsafe { self.multiply_row(product, memory, nth) };
            done.map_err(|error| CudaError::described("a product by cuBLAS", error.to_string()))
        })
    }

    /// Row `nth` of the batch.
    ///
    /// # Safety
    /// As [`multiply`](Self::multiply).
    unsafe fn multiply_row(
        &self,
        product: &Product,
        memory: u64,
        nth: usize,
    ) -> Result<(), result::CublasError> {
        let Product { c, a, b, .. } = product;
        let handle = *self.0.handle();
        let [left, right] = [b, a].map(|place| factor(place).expect("the product is taken"));
        let int = |count: usize| count as c_int;
        let step = |place: &MatrixPlace| place.inner as i64;
        let single = product.module == f32::MODULE;
        let size = if single { size_of::<f32>() } else { size_of::<f64>() };
        let at = |place: &MatrixPlace| memory + (place.start + nth * place.outer * size) as u64;
        let beta = if product.accumulates { 1.0 } else { 0.0 };
        // cuBLAS counts columns where this module counts rows: it computes the transpose of c,
        // from the transposes of b and a, whose elements lie where cuBLAS expects them.
        macro_rules! call {
            ($function:ident, $number:ty) => {
                // SAFETY: the pointers are to the memory of the GPU, but for the two factors,
                // which live until the call returns. The matrices lie in that memory, as the
                // caller vouches.
                unsafe {
                    result::$function(
                        handle,
                        left.operation,
                        right.operation,
                        int(c.columns),
                        int(c.rows),
                        int(a.columns),
                        &(product.scale as $number),
                        at(b) as *const $number,
                        left.leading,
                        step(b),
                        at(a) as *const $number,
                        right.leading,
                        step(a),
                        &(beta as $number),
                        at(c) as *mut $number,
                        int(c.row),
                        step(c),
                        int(product.batch.inner),
                    )
                }
            };
        }
        match single {
            true => call!(sgemm_strided_batched, f32),
            false => call!(dgemm_strided_batched, f64),
        }
    }
}

/// A factor whose elements lie densely along its rows, or along its columns.
fn factor(place: &MatrixPlace) -> Option<BlasFactor> {
    let leading =
        |step: usize, least: usize| c_int::try_from(step).ok().filter(|_| step >= least.max(1));
    let along_rows = (place.column == 1).then(|| leading(place.row, place.columns)).flatten();
    let along_columns = || (place.row == 1).then(|| leading(place.column, place.rows)).flatten();
    match along_rows {
        Some(leading) => Some(BlasFactor { operation: cublasOperation_t::CUBLAS_OP_N, leading }),
        None => along_columns()
            .map(|leading| BlasFactor { operation: cublasOperation_t::CUBLAS_OP_T, leading }),
    }
}

fn is_present() -> bool {
    // SAFETY: the library may be loaded by any program; its initializers affect only itself.
    let found = LIBRARIES.iter().find_map(|name| unsafe { Library::new(name) }.ok());
    // SAFETY: the symbols are not used, so their type does not matter.
    let has = |library: &Library, name: &str| unsafe {
        library.get::<*const std::ffi::c_char>(name.as_bytes()).is_ok()
    };
    found.is_some_and(|library| FUNCTIONS.iter().all(|name| has(&library, name)))
}
