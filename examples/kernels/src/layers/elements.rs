//! Layers that work on each number alone, and biases.

use super::call::DeviceSlice;
use super::machine::{Float, Launch, Machine};
use maypole_kernels::cuda::CudaError;

/// Threads of a block of an element-wise kernel.
const THREADS: u32 = 256;
/// Columns that a block of a sum over rows adds up, as in `sums.h`.
const COLUMNS: usize = 32;
/// Threads of a block of a sum over rows, as in `sums.h`.
const COLUMN_THREADS: u32 = 256;

/// Blocks for `count` elements.
pub(super) fn each<T: Float>(kernel: &'static str, count: usize) -> Launch {
    Launch::new::<T>(kernel, count.div_ceil(THREADS as usize), THREADS)
}

/// Blocks for sums over rows of `width` numbers.
pub(super) fn columns<T: Float>(kernel: &'static str, width: usize) -> Launch {
    Launch::new::<T>(kernel, width.div_ceil(COLUMNS), COLUMN_THREADS)
}

/// Returns how many rows of `width` numbers `len` numbers are.
///
/// # Panics
/// If they are no whole number of rows.
pub(super) fn rows(len: usize, width: usize) -> usize {
    assert!(width > 0 && len.is_multiple_of(width), "{len} numbers are not whole rows of {width}");
    len / width
}

/// `y += b`, for every row of `b.len()` numbers.
///
/// # Errors
/// As [`Machine::launch`].
///
/// # Panics
/// If `y` is not a whole number of rows.
pub fn bias<T: Float>(
    machine: &mut dyn Machine,
    y: DeviceSlice<T>,
    b: DeviceSlice<T>,
) -> Result<(), CudaError> {
    rows(y.len(), b.len());
    each::<T>("bias", y.len()).slice(y).slice(b).count(y.len()).count(b.len()).on(machine)
}

/// `db +=` the sum of the rows of `dy`.
///
/// # Errors
/// As [`Machine::launch`].
///
/// # Panics
/// If `dy` is not a whole number of rows.
pub fn bias_backward<T: Float>(
    machine: &mut dyn Machine,
    db: DeviceSlice<T>,
    dy: DeviceSlice<T>,
) -> Result<(), CudaError> {
    let rows = rows(dy.len(), db.len());
    let launch = columns::<T>("bias_backward", db.len()).slice(db).slice(dy);
    launch.count(rows).count(db.len()).on(machine)
}

/// A `kernel` of one number of `x` for each number of `y`: `add` (`y += x`), `gelu` (`y` is the GELU of
/// `x`) or `gelu_backward` (`y` is multiplied by the slope at `x`).
///
/// # Errors
/// As [`Machine::launch`].
///
/// # Panics
/// If the slices are not equally long.
pub fn pairs<T: Float>(
    machine: &mut dyn Machine,
    kernel: &'static str,
    y: DeviceSlice<T>,
    x: DeviceSlice<T>,
) -> Result<(), CudaError> {
    assert_eq!(y.len(), x.len());
    each::<T>(kernel, y.len()).slice(y).slice(x).count(y.len()).on(machine)
}

/// `y = silu(gate) * up`.
///
/// # Errors
/// As [`Machine::launch`].
///
/// # Panics
/// If the slices are not equally long.
pub fn swiglu<T: Float>(
    machine: &mut dyn Machine,
    y: DeviceSlice<T>,
    [gate, up]: [DeviceSlice<T>; 2],
) -> Result<(), CudaError> {
    assert_eq!([y.len(); 2], [gate.len(), up.len()]);
    each::<T>("swiglu", y.len()).slice(y).slice(gate).slice(up).count(y.len()).on(machine)
}

/// The gradients of `gate` and `up`. On entry `dup` is the gradient of the result.
///
/// # Errors
/// As [`Machine::launch`].
///
/// # Panics
/// If the slices are not equally long.
pub fn swiglu_backward<T: Float>(
    machine: &mut dyn Machine,
    [dgate, dup]: [DeviceSlice<T>; 2],
    [gate, up]: [DeviceSlice<T>; 2],
) -> Result<(), CudaError> {
    let count = gate.len();
    assert_eq!([count; 3], [up.len(), dgate.len(), dup.len()]);
    let launch = each::<T>("swiglu_backward", count).slice(dgate).slice(dup);
    launch.slice(gate).slice(up).count(count).on(machine)
}

/// The angles by which tokens are turned.
#[derive(Clone, Copy, Debug)]
pub struct Turns<T> {
    /// The position of each token.
    pub positions: DeviceSlice<u32>,
    /// The cosine and the sine of every plane, for each position from 0 on.
    pub angles: DeviceSlice<T>,
    /// Planes of a head: half of its numbers.
    pub planes: usize,
}

/// Turns every head of every token of `x` by the angles of its position, `forth` or back. A token
/// whose position has no angles stays as it is.
///
/// # Errors
/// As [`Machine::launch`].
///
/// # Panics
/// If tokens are not a whole number of heads.
pub fn turn<T: Float>(
    machine: &mut dyn Machine,
    x: DeviceSlice<T>,
    turns: Turns<T>,
    forth: bool,
) -> Result<(), CudaError> {
    let Turns { positions, angles, planes } = turns;
    let tokens = positions.len();
    let width = rows(x.len(), tokens);
    rows(width, 2 * planes);
    let known = rows(angles.len(), 2 * planes);
    let launch = each::<T>("turn", x.len() / 2).slice(x).slice(positions).slice(angles);
    let launch = launch.count(known).count(tokens).count(width).count(planes);
    launch.number(if forth { 1.0 } else { -1.0 }).on(machine)
}
