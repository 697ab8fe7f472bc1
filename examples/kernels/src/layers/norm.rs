//! Layer and RMS normalisation. Rows have as many numbers as there are weights. A norm without a
//! bias is an RMS norm.

use super::call::DeviceSlice;
use super::elements::{columns, rows};
use super::machine::{Float, Launch, Machine};
use maypole_kernels::cuda::CudaError;

/// Threads of a block that computes one row, as in `sums.h`.
pub(super) const ROW_THREADS: u32 = 128;

/// The input of a norm, and the other arguments of its backward pass.
#[derive(Clone, Copy, Debug)]
pub struct NormSlices<T> {
    /// The input.
    pub x: DeviceSlice<T>,
    /// Mean and 1 / deviation of each row; of an RMS norm 1 / root mean square alone.
    pub stats: DeviceSlice<T>,
    /// The weights.
    pub w: DeviceSlice<T>,
}

/// The gradients that a norm's backward pass adds to.
#[derive(Clone, Copy, Debug)]
pub struct NormGradients<T> {
    /// Of the input.
    pub dx: DeviceSlice<T>,
    /// Of the weights.
    pub dw: DeviceSlice<T>,
    /// Of the bias, if there is one.
    pub db: Option<DeviceSlice<T>>,
}

impl<T> NormSlices<T> {
    /// Returns the number of rows, each of which has so many statistics.
    fn rows(self, each: usize) -> usize {
        let rows = rows(self.x.len(), self.w.len());
        assert_eq!(self.stats.len(), each * rows, "statistics of {rows} rows");
        rows
    }
}

/// Computes `y` and `stats` from `x`. `epsilon` is added to variances or mean squares.
///
/// # Errors
/// As [`Machine::launch`].
///
/// # Panics
/// If the shapes do not fit together.
pub fn forward<T: Float>(
    machine: &mut dyn Machine,
    y: DeviceSlice<T>,
    slices: NormSlices<T>,
    b: Option<DeviceSlice<T>>,
    epsilon: f64,
) -> Result<(), CudaError> {
    let NormSlices { x, stats, w } = slices;
    assert!(y.len() == x.len() && b.is_none_or(|b| b.len() == w.len()));
    let (kernel, rows) = match b {
        Some(_) => ("layer_norm", slices.rows(2)),
        None => ("rms_norm", slices.rows(1)),
    };
    let launch = Launch::new::<T>(kernel, rows, ROW_THREADS).slice(y).slice(stats);
    let launch = b.into_iter().fold(launch.slice(x).slice(w), Launch::slice);
    launch.count(w.len()).number(epsilon).on(machine)
}

/// Accumulates in `gradients` those of `dy`, the gradient of the result.
///
/// # Errors
/// As [`Machine::launch`].
///
/// # Panics
/// If the shapes do not fit together.
pub fn backward<T: Float>(
    machine: &mut dyn Machine,
    gradients: NormGradients<T>,
    dy: DeviceSlice<T>,
    before: NormSlices<T>,
) -> Result<(), CudaError> {
    let NormGradients { dx, dw, db } = gradients;
    let NormSlices { x, stats, w } = before;
    let width = w.len();
    assert_eq!([dx.len(), dy.len()], [x.len(); 2]);
    assert!(dw.len() == width && db.is_none_or(|db| db.len() == width));
    let (of_input, of_weights, rows) = match db {
        Some(_) => ("layer_norm_backward", "layer_norm_backward_weights", before.rows(2)),
        None => ("rms_norm_backward", "rms_norm_backward_weights", before.rows(1)),
    };
    let launch = Launch::new::<T>(of_input, rows, ROW_THREADS).slice(dx).slice(dy).slice(x);
    launch.slice(stats).slice(w).count(width).on(machine)?;
    let launch = columns::<T>(of_weights, width).slice(dw);
    let launch = db.into_iter().fold(launch, Launch::slice);
    launch.slice(dy).slice(x).slice(stats).count(rows).count(width).on(machine)
}
