//! Arguments that are whole numbers. An error names the argument.

use crate::error::{invalid, invalid_type};
use pyo3::prelude::*;
use std::time::Duration;

/// The number that is passed as `name`.
fn whole<T: TryFrom<i128>>(value: &Bound<'_, PyAny>, name: &str) -> PyResult<T> {
    let is_whole = value.hasattr("__index__")?;
    if !is_whole {
        return Err(invalid_type(format!("{name} is {}: pass a whole number", value.repr()?)));
    }
    let number = value.extract::<i128>().ok().and_then(|number| T::try_from(number).ok());
    let bits = 8 * size_of::<T>();
    number.ok_or_else(|| {
        invalid(format!("{name} is {value}: pass a number of at least 0, in {bits} bits"))
    })
}

macro_rules! numbers {
    ($($name:ident: $kind:ty),* $(,)?) => {
        $(
            #[doc = concat!("The argument `", stringify!($name), "`.")]
            pub(crate) fn $name(value: &Bound<'_, PyAny>) -> PyResult<$kind> {
                whole(value, stringify!($name))
            }
        )*
    };
}

numbers!(rank: usize, world: usize, root: usize, to: usize, nbytes: usize, tag: u32);

/// The argument `source`.
pub(crate) fn source(value: &Bound<'_, PyAny>) -> PyResult<Option<usize>> {
    (!value.is_none()).then(|| whole(value, "source")).transpose()
}

/// The argument `color`.
pub(crate) fn color(value: &Bound<'_, PyAny>) -> PyResult<Option<u64>> {
    (!value.is_none()).then(|| whole(value, "color")).transpose()
}

/// The lengths of blocks, such as `counts`.
pub(crate) fn counts(value: &Bound<'_, PyAny>) -> PyResult<Option<Vec<usize>>> {
    if value.is_none() {
        return Ok(None);
    }
    let items = value.try_iter().map_err(|_| {
        invalid_type(format!("counts is {value}: pass a list with one number for each rank"))
    })?;
    items.map(|item| whole(&item?, "counts")).collect::<PyResult<_>>().map(Some)
}

/// Seconds of Python, passed as `name`, as a duration.
pub(crate) fn seconds(value: f64, name: &str) -> PyResult<Duration> {
    Duration::try_from_secs_f64(value)
        .ok()
        .filter(|it| !it.is_zero())
        .ok_or_else(|| invalid(format!("{name} is {value}: pass a positive number of seconds")))
}
