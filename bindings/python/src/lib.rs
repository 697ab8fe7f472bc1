//! Maypole for Python. The classes here take arrays, make byte slices of them, and call the type-erased
//! entry of the library. The interpreter's lock is released in every call that may wait.

mod arrays;
mod communicator;
mod error;
mod interrupt;
mod raw;
mod request;

use pyo3::prelude::*;

/// The native part of the package `maypole`.
#[pymodule]
fn _maypole(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add("MaypoleError", module.py().get_type::<error::MaypoleError>())?;
    module.add_class::<communicator::Communicator>()?;
    module.add_class::<communicator::Memory>()?;
    module.add_class::<request::Request>()?;
    module.add_function(wrap_pyfunction!(communicator::_leave, module)?)?;
    Ok(())
}
