//! Registered memory as an array.

use maypole::RegisteredBuffer;
use pyo3::ffi;
use pyo3::prelude::*;
use std::ffi::c_int;
use std::sync::{Mutex, PoisonError};

/// Registered memory, with the buffer protocol.
#[pyclass(frozen, module = "maypole")]
pub(crate) struct Memory {
    buffer: Mutex<RegisteredBuffer<u8>>,
    nbytes: usize,
}

impl Memory {
    /// The object of `buffer`, which has `nbytes` bytes.
    pub(crate) fn new(buffer: RegisteredBuffer<u8>, nbytes: usize) -> Self {
        Self { buffer: Mutex::new(buffer), nbytes }
    }
}

#[pymethods]
impl Memory {
    /// True if other ranks reach the memory in place; false where ranks share no memory.
    #[getter]
    fn is_registered(&self) -> bool {
        self.buffer.lock().unwrap_or_else(PoisonError::into_inner).is_registered()
    }

    fn __len__(&self) -> usize {
        self.nbytes
    }

    fn __repr__(&self) -> String {
        let kind = if self.is_registered() { "registered" } else { "not registered" };
        format!("<maypole.Memory: {} bytes, {kind}>", self.nbytes)
    }

    /// # Safety
    /// Called by the interpreter, with a view to fill.
    unsafe fn __getbuffer__(
        this: Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        let start = {
            let memory = this.get();
            let mut buffer = memory.buffer.lock().unwrap_or_else(PoisonError::into_inner);
            buffer.as_mut_ptr()
        };
        let len = this.get().nbytes as ffi::Py_ssize_t;
        // SAFETY: the view keeps `this`, and `this` keeps the memory, which never moves.
        let filled =
            unsafe { ffi::PyBuffer_FillInfo(view, this.as_ptr(), start.cast(), len, 0, flags) };
        if filled == 0 { Ok(()) } else { Err(PyErr::fetch(this.py())) }
    }
}
