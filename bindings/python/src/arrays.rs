//! Arrays of Python as memory: by the buffer protocol (PEP 3118) or by DLPack.

use crate::error::invalid;
use maypole::DataType;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;
use pyo3::{PyAny, ffi};
use std::ffi::{CStr, c_char, c_void};

/// The elements of an array, and what keeps them.
pub(crate) struct ArrayMemory {
    pub(crate) start: *mut u8,
    /// Bytes.
    pub(crate) len: usize,
    pub(crate) data_type: DataType,
    #[expect(dead_code, reason = "it keeps the memory until it is dropped")]
    keeper: ArrayKeeper,
}

// SAFETY: a pointer and what keeps its memory; the keeper takes the interpreter's lock to let go.
unsafe impl Send for ArrayMemory {}
// SAFETY: nothing is done through a shared reference.
unsafe impl Sync for ArrayMemory {}

enum ArrayKeeper {
    View { _view: BufferView },
    Object { _object: Py<PyAny> },
}

/// A view of the buffer protocol, released when it is dropped.
struct BufferView(Box<ffi::Py_buffer>);

impl Drop for BufferView {
    fn drop(&mut self) {
        // SAFETY: the view was filled by PyObject_GetBuffer and is released once, under the lock.
        // Without an interpreter there is nothing to release.
        Python::try_attach(|_| unsafe { ffi::PyBuffer_Release(&mut *self.0) });
    }
}

impl ArrayMemory {
    /// The memory of `array`, which a call writes if `writes`. `name` is what the caller calls it.
    pub(crate) fn of(array: &Bound<'_, PyAny>, name: &str, writes: bool) -> PyResult<Self> {
        // SAFETY: a reference to a living object.
        if unsafe { ffi::PyObject_CheckBuffer(array.as_ptr()) } == 1 {
            return Self::of_buffer(array, name, writes);
        }
        if array.hasattr("__dlpack__")? {
            return Self::of_dlpack(array, name);
        }
        Err(PyTypeError::new_err(format!(
            "{name} is no array: pass an object with the buffer protocol or __dlpack__, such as an \
             array of NumPy or a tensor of PyTorch"
        )))
    }

    /// # Safety
    /// Nobody else may write the array until the slice is dropped.
    pub(crate) unsafe fn bytes<'a>(&self) -> &'a [u8] {
        match self.len {
            0 => &[],
            // SAFETY: an array of `len` bytes, which the keeper keeps.
            len => unsafe { std::slice::from_raw_parts(self.start, len) },
        }
    }

    /// # Safety
    /// Nobody else may use the array until the slice is dropped.
    pub(crate) unsafe fn bytes_mut<'a>(&self) -> &'a mut [u8] {
        match self.len {
            0 => &mut [],
            // SAFETY: a writable array of `len` bytes, which the keeper keeps.
            len => unsafe { std::slice::from_raw_parts_mut(self.start, len) },
        }
    }

    fn of_buffer(array: &Bound<'_, PyAny>, name: &str, writes: bool) -> PyResult<Self> {
        let mut view = Box::new(ffi::Py_buffer::new());
        let access = if writes { ffi::PyBUF_WRITABLE } else { 0 };
        let flags = ffi::PyBUF_FORMAT | ffi::PyBUF_STRIDES | access;
        // SAFETY: a living object, and a place for the view, under the lock.
        let failed = unsafe { ffi::PyObject_GetBuffer(array.as_ptr(), &mut *view, flags) } != 0;
        if failed {
            let why = PyErr::fetch(array.py());
            return Err(invalid(format!("{name} cannot be used: {}", why.value(array.py()))));
        }
        let view = BufferView(view);
        // SAFETY: the view is filled.
        if unsafe { ffi::PyBuffer_IsContiguous(&*view.0, b'C' as c_char) } == 0 {
            return Err(strided(name));
        }
        let format = match view.0.format.is_null() {
            true => "B".to_owned(),
            // SAFETY: a string that lives as long as the view.
            false => unsafe { CStr::from_ptr(view.0.format) }.to_string_lossy().into_owned(),
        };
        let data_type = of_format(&format, view.0.itemsize as usize).ok_or_else(|| {
            invalid(format!("{name} has elements of the unknown format '{format}'"))
        })?;
        let (start, len) = (view.0.buf.cast(), view.0.len as usize);
        Ok(Self { start, len, data_type, keeper: ArrayKeeper::View { _view: view } })
    }

    fn of_dlpack(array: &Bound<'_, PyAny>, name: &str) -> PyResult<Self> {
        let capsule = array.call_method0("__dlpack__")?;
        let capsule = capsule.cast_into::<PyCapsule>().map_err(PyErr::from)?;
        // SAFETY: a capsule of this name holds a DLManagedTensor, as the protocol says.
        let tensor = unsafe {
            let held = ffi::PyCapsule_GetPointer(capsule.as_ptr(), c"dltensor".as_ptr());
            held.cast::<DlManagedTensor>().as_ref()
        };
        let Some(DlManagedTensor { tensor }) = tensor else {
            return Err(PyErr::fetch(array.py()));
        };
        if tensor.device_type != DL_CPU {
            return Err(invalid(format!("{name} is not on the CPU: copy it there first")));
        }
        let dimensions = tensor.dimensions as usize;
        let lengths = |from: *const i64| match from.is_null() || dimensions == 0 {
            true => &[][..],
            // SAFETY: as many numbers as the tensor has dimensions.
            false => unsafe { std::slice::from_raw_parts(from, dimensions) },
        };
        let (shape, strides) = (lengths(tensor.shape), lengths(tensor.strides));
        let count: i64 = shape.iter().product();
        if count > 0 && !strides.is_empty() && !is_packed(shape, strides) {
            return Err(strided(name));
        }
        let data_type = of_code(tensor.code, tensor.bits, tensor.lanes)
            .ok_or_else(|| invalid(format!("{name} has elements of an unknown type")))?;
        let len = count as usize * data_type.size();
        let start = tensor.data.cast::<u8>().wrapping_add(tensor.byte_offset as usize);
        let keeper = ArrayKeeper::Object { _object: capsule.into_any().unbind() };
        Ok(Self { start, len, data_type, keeper })
    }
}

fn strided(name: &str) -> PyErr {
    invalid(format!(
        "{name} is not contiguous: pass numpy.ascontiguousarray({name}) or {name}.contiguous()"
    ))
}

/// True if elements lie one behind the other, the last dimension first.
fn is_packed(shape: &[i64], strides: &[i64]) -> bool {
    let mut step = 1;
    shape.iter().zip(strides).rev().all(|(length, stride)| {
        let fits = *length == 1 || *stride == step;
        step *= length;
        fits
    })
}

/// The type that a format of the `struct` module names, for one element of `size` bytes.
fn of_format(format: &str, size: usize) -> Option<DataType> {
    let letter = format.trim_start_matches(['@', '=', '<', '|']);
    let of_size = |types: [DataType; 4]| types.into_iter().find(|it| it.size() == size);
    match letter {
        "?" => Some(DataType::Bool),
        "e" => Some(DataType::F16),
        "f" => Some(DataType::F32),
        "d" => Some(DataType::F64),
        "b" | "h" | "i" | "l" | "q" | "n" => {
            of_size([DataType::I8, DataType::I16, DataType::I32, DataType::I64])
        }
        "B" | "H" | "I" | "L" | "Q" | "N" | "c" => {
            of_size([DataType::U8, DataType::U16, DataType::U32, DataType::U64])
        }
        _ => None,
    }
}

/// The type that DLPack's code, bits and lanes name.
fn of_code(code: u8, bits: u8, lanes: u16) -> Option<DataType> {
    Some(match (code, bits, lanes) {
        (0, 8, 1) => DataType::I8,
        (0, 16, 1) => DataType::I16,
        (0, 32, 1) => DataType::I32,
        (0, 64, 1) => DataType::I64,
        (1, 8, 1) => DataType::U8,
        (1, 16, 1) => DataType::U16,
        (1, 32, 1) => DataType::U32,
        (1, 64, 1) => DataType::U64,
        (2, 16, 1) => DataType::F16,
        (2, 32, 1) => DataType::F32,
        (2, 64, 1) => DataType::F64,
        (4, 16, 1) => DataType::BF16,
        (6, 8, 1) => DataType::Bool,
        _ => return None,
    })
}

const DL_CPU: i32 = 1;

/// The head of `DLManagedTensor` of DLPack 0.8 (`dlpack.h`).
#[repr(C)]
struct DlManagedTensor {
    tensor: DlTensor,
}

#[repr(C)]
struct DlTensor {
    data: *mut c_void,
    device_type: i32,
    device: i32,
    dimensions: i32,
    code: u8,
    bits: u8,
    lanes: u16,
    shape: *const i64,
    strides: *const i64,
    byte_offset: u64,
}

const _: () = assert!(size_of::<DlTensor>() == 48, "as in dlpack.h on 64-bit machines");
