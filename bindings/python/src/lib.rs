//! Maypole for Python. The classes here take arrays, make byte slices of them, and pass these to the
//! library with the type of their elements. The interpreter's lock is released in every call that may wait.

mod addresses;
mod arrays;
mod busy;
mod calls;
mod communicator;
mod error;
mod interrupt;
mod memory;
mod messages;
mod names;
mod network;
mod numbers;
mod raw;
mod request;
mod shared;

use pyo3::prelude::*;

/// The native part of the package `maypole`.
#[pymodule]
fn _maypole(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add("_IS_OPTIMIZED", cfg!(not(debug_assertions)))?;
    module.add_class::<communicator::Communicator>()?;
    module.add_class::<memory::Memory>()?;
    module.add_class::<messages::MessageRequest>()?;
    module.add_class::<request::Request>()?;
    module.add_function(wrap_pyfunction!(shared::_leave, module)?)?;
    module.add_function(wrap_pyfunction!(addresses::_call, module)?)?;
    module.add_function(wrap_pyfunction!(addresses::_start, module)?)?;
    module.add_function(wrap_pyfunction!(messages::_start_message, module)?)?;
    module.add_function(wrap_pyfunction!(network::_network_addresses, module)?)?;
    module.add_function(wrap_pyfunction!(network::_check_join, module)?)?;
    Ok(())
}
