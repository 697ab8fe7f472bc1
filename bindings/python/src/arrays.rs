//! Arrays of Python as memory: by the buffer protocol (PEP 3118) or by DLPack.

use crate::error::invalid;
use crate::names::types;
use maypole::DataType;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyCapsule};
use pyo3::{PyAny, ffi};
use std::ffi::{CStr, c_char, c_void};
use std::fmt::Display;

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

impl BufferView {
    /// A view of `array`, which is an object with the buffer protocol.
    fn of(array: &Bound<'_, PyAny>, writes: bool) -> PyResult<Self> {
        let mut view = Box::new(ffi::Py_buffer::new());
        let access = if writes { ffi::PyBUF_WRITABLE } else { 0 };
        let flags = ffi::PyBUF_FORMAT | ffi::PyBUF_STRIDES | access;
        // SAFETY: a living object, and a place for the view, under the lock.
        match unsafe { ffi::PyObject_GetBuffer(array.as_ptr(), &mut *view, flags) } {
            0 => Ok(Self(view)),
            _ => Err(PyErr::fetch(array.py())),
        }
    }
}

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
        let has_dlpack = array.hasattr("__dlpack__")?;
        // SAFETY: a reference to a living object.
        if unsafe { ffi::PyObject_CheckBuffer(array.as_ptr()) } == 1 {
            match BufferView::of(array, writes) {
                Ok(view) => return Self::of_view(view, name),
                // JAX does not say by DLPack that nobody may write its arrays.
                Err(why) if writes => return Err(unwritable(name, &why)),
                // The buffer protocol has no bfloat16, so JAX lends such arrays by DLPack alone.
                Err(_) if has_dlpack => {}
                Err(why) => return Err(unusable(name, &why)),
            }
        }
        if has_dlpack {
            return Self::of_dlpack(array, name, writes);
        }
        Err(PyTypeError::new_err(format!(
            "{name} is no array: pass an object with the buffer protocol or __dlpack__, such as an \
             array of NumPy or a tensor of PyTorch"
        )))
    }

    fn of_view(view: BufferView, name: &str) -> PyResult<Self> {
        // SAFETY: the view is filled.
        if unsafe { ffi::PyBuffer_IsContiguous(&*view.0, b'C' as c_char) } == 0 {
            return Err(strided(name));
        }
        let format = match view.0.format.is_null() {
            true => "B".to_owned(),
            // SAFETY: a string that lives as long as the view.
            false => unsafe { CStr::from_ptr(view.0.format) }.to_string_lossy().into_owned(),
        };
        let data_type = of_format(&format, view.0.itemsize as usize)
            .ok_or_else(|| foreign_elements(name, &format))?;
        let (start, len) = (view.0.buf.cast(), view.0.len as usize);
        Ok(Self { start, len, data_type, keeper: ArrayKeeper::View { _view: view } })
    }

    fn of_dlpack(array: &Bound<'_, PyAny>, name: &str, writes: bool) -> PyResult<Self> {
        let capsule = dlpack_capsule(array, name)?;
        let (tensor, is_read_only) = dlpack_tensor(&capsule)?;
        if writes && is_read_only {
            return Err(unwritable(name, &"it is read-only"));
        }
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
        let data_type = of_code(tensor.code, tensor.bits, tensor.lanes).ok_or_else(|| {
            foreign_elements(name, if tensor.code == DL_COMPLEX { "Z" } else { "" })
        })?;
        let len = count as usize * data_type.size();
        let start = tensor.data.cast::<u8>().wrapping_add(tensor.byte_offset as usize);
        let keeper = ArrayKeeper::Object { _object: capsule.into_any().unbind() };
        Ok(Self { start, len, data_type, keeper })
    }
}

/// The capsule by which `array` lends its memory: of DLPack 1 if it has that, else of an earlier
/// version, which does not say whether an array is read-only.
fn dlpack_capsule<'py>(array: &Bound<'py, PyAny>, name: &str) -> PyResult<Bound<'py, PyCapsule>> {
    let py = array.py();
    let newest = [("max_version", (1, 0))].into_py_dict(py)?;
    let lent = array.call_method("__dlpack__", (), Some(&newest));
    let lent = lent.or_else(|error| match error.is_instance_of::<PyTypeError>(py) {
        true => array.call_method0("__dlpack__"),
        false => Err(error),
    });
    let capsule = lent.map_err(|error| unusable(name, &error))?;
    capsule.cast_into::<PyCapsule>().map_err(PyErr::from)
}

/// The tensor in a capsule, and whether it is read-only.
fn dlpack_tensor<'a>(capsule: &'a Bound<'_, PyCapsule>) -> PyResult<(&'a DlTensor, bool)> {
    // SAFETY: a capsule of one of the two names holds the struct of that name, as the protocol
    // says, for as long as the capsule lives. The head of the first is the same in all versions 1.x.
    unsafe {
        let held = |name: &CStr| ffi::PyCapsule_GetPointer(capsule.as_ptr(), name.as_ptr());
        if ffi::PyCapsule_IsValid(capsule.as_ptr(), VERSIONED.as_ptr()) == 1 {
            let versioned = &*held(VERSIONED).cast::<DlManagedTensorVersioned>();
            return match versioned.major {
                1 => Ok((&versioned.tensor, versioned.flags & READ_ONLY != 0)),
                other => Err(invalid(format!("DLPack {other} is not known: version 1 is"))),
            };
        }
        let managed = held(c"dltensor").cast::<DlManagedTensor>().as_ref();
        let managed = managed.ok_or_else(|| PyErr::fetch(capsule.py()))?;
        Ok((&managed.tensor, false))
    }
}

fn unwritable(name: &str, why: &dyn Display) -> PyErr {
    invalid(format!(
        "{name} cannot be written: {why}; pass an array as out that can be, such as one of NumPy"
    ))
}

fn unusable(name: &str, why: &PyErr) -> PyErr {
    invalid(format!("{name} cannot be used: {why}"))
}

fn strided(name: &str) -> PyErr {
    invalid(format!(
        "{name} is not contiguous: pass numpy.ascontiguousarray({name}) or {name}.contiguous()"
    ))
}

/// The error for elements of a `format` of the `struct` module that no type has.
fn foreign_elements(name: &str, format: &str) -> PyErr {
    let (what, advice) = match format.as_bytes() {
        [b'Z', ..] | [b'<' | b'=' | b'@', b'Z', ..] => (
            "complex numbers".to_owned(),
            format!("pass their parts, {name}.view('float32') or .view('float64')"),
        ),
        [b'>' | b'!', ..] => (
            "numbers in the other byte order".to_owned(),
            format!("pass {name}.astype({name}.dtype.newbyteorder('='))"),
        ),
        [] => ("elements of an unknown type".to_owned(), format!("known are {}", types())),
        _ => (format!("elements of the format '{format}'"), format!("known are {}", types())),
    };
    invalid(format!("{name} has {what}: {advice}"))
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

const SIGNED: &[DataType] = &[DataType::I8, DataType::I16, DataType::I32, DataType::I64];
const UNSIGNED: &[DataType] = &[DataType::U8, DataType::U16, DataType::U32, DataType::U64];
const FLOATS: &[DataType] = &[DataType::F16, DataType::F32, DataType::F64];

/// The type that a format of the `struct` module names, for one element of `size` bytes.
fn of_format(format: &str, size: usize) -> Option<DataType> {
    let types = match format.trim_start_matches(['@', '=', '<', '|']) {
        "?" => return Some(DataType::Bool),
        "e" => return Some(DataType::F16),
        "f" => return Some(DataType::F32),
        "d" => return Some(DataType::F64),
        "b" | "h" | "i" | "l" | "q" | "n" => SIGNED,
        "B" | "H" | "I" | "L" | "Q" | "N" | "c" => UNSIGNED,
        _ => return None,
    };
    types.iter().copied().find(|it| it.size() == size)
}

/// The type that DLPack's code, bits and lanes name.
fn of_code(code: u8, bits: u8, lanes: u16) -> Option<DataType> {
    let types = match code {
        0 => SIGNED,
        1 => UNSIGNED,
        2 => FLOATS,
        4 => &[DataType::BF16],
        6 => &[DataType::Bool],
        _ => return None,
    };
    types.iter().copied().find(|it| lanes == 1 && it.size() * 8 == usize::from(bits))
}

const DL_CPU: i32 = 1;
const DL_COMPLEX: u8 = 5;
const VERSIONED: &CStr = c"dltensor_versioned";
/// `DLPACK_FLAG_BITMASK_READ_ONLY`.
const READ_ONLY: u64 = 1;

/// The head of `DLManagedTensor` of DLPack 0.8 (`dlpack.h`).
#[repr(C)]
struct DlManagedTensor {
    tensor: DlTensor,
}

/// `DLManagedTensorVersioned` of DLPack 1.
#[repr(C)]
struct DlManagedTensorVersioned {
    major: u32,
    minor: u32,
    context: *mut c_void,
    deleter: *mut c_void,
    flags: u64,
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
