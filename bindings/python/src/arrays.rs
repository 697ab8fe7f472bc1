//! Arrays of Python as memory: by the buffer protocol (PEP 3118), by NumPy's array interface or by DLPack.
//!
//! A call that combines nothing moves elements of any type as bytes. It reads and writes arrays in
//! Fortran order through a copy in C order, so that every rank sees the same elements.

use crate::busy::MemoryUse;
use crate::error::{invalid, invalid_type};
use crate::names::{kept_name, name_of, types};
use crate::raw::{AlignedBytes, RawBytes};
use maypole::DataType;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyCapsule};
use pyo3::{PyAny, ffi};
use std::ffi::{CStr, c_char, c_void};
use std::fmt::{self, Display, Formatter};

/// How a call uses an array.
#[derive(Clone, Copy)]
pub(crate) struct ArrayUse {
    /// The name of the argument.
    pub(crate) name: &'static str,
    pub(crate) writes: bool,
    /// The call combines nothing, so elements of other types move as bytes.
    pub(crate) moves: bool,
}

impl ArrayUse {
    /// A message, as `data`.
    pub(crate) const SENT: Self = Self { name: "data", writes: false, moves: true };
    /// The memory of a message, as `data`.
    pub(crate) const RECEIVED: Self = Self { writes: true, ..Self::SENT };
}

/// The elements of an array.
#[derive(Clone, Copy, PartialEq)]
pub(crate) struct ArrayElements {
    /// The type that the library moves.
    pub(crate) data_type: DataType,
    /// The type of the program, where the library lacks that.
    pub(crate) stands_for: Option<&'static str>,
    /// How many moved elements are one element of the program. At least 1.
    pub(crate) scale: usize,
}

impl ArrayElements {
    /// Elements of a type that the library lacks. A call that only moves them moves their `size` bytes.
    fn foreign(usage: ArrayUse, type_name: &str, size: usize) -> PyResult<Self> {
        if !usage.moves || size == 0 || has_addresses(type_name) {
            return Err(foreign_elements(usage.name, type_name));
        }
        let stands_for = Some(kept_name(&format!("uint8 of {type_name}")));
        Ok(Self { data_type: DataType::U8, stands_for, scale: size })
    }

    pub(crate) fn known(data_type: DataType) -> Self {
        Self { data_type, stands_for: None, scale: 1 }
    }
}

impl Display for ArrayElements {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        out.write_str(self.stands_for.unwrap_or(name_of(self.data_type)))
    }
}

/// The calls for what is no array.
const OBJECTS: &str = "send_object, broadcast_object, gather_object and scatter_object";

/// The memory of an array, and the object that keeps the memory alive.
pub(crate) struct ArrayMemory {
    start: *mut u8,
    /// Bytes.
    pub(crate) len: usize,
    pub(crate) elements: ArrayElements,
    usage: ArrayUse,
    keeper: ArrayKeeper,
}

// SAFETY: a pointer and the owner of its memory; the owner takes the interpreter's lock when it is dropped.
unsafe impl Send for ArrayMemory {}
// SAFETY: the memory is not accessed through a shared reference.
unsafe impl Sync for ArrayMemory {}

enum ArrayKeeper {
    View {
        _view: BufferView,
    },
    Object {
        _object: Py<PyAny>,
    },
    /// A copy in C order of an array in Fortran order.
    Copy(AlignedBytes, BufferView),
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

    /// True in `order` 'C' or 'F'.
    fn is_contiguous(&self, order: u8) -> bool {
        // SAFETY: the view is filled.
        unsafe { ffi::PyBuffer_IsContiguous(&*self.0, order as c_char) == 1 }
    }

    /// The elements of an array in Fortran order, in C order.
    fn copy(&self, py: Python<'_>, usage: ArrayUse) -> PyResult<AlignedBytes> {
        if !usage.moves || !self.is_contiguous(b'F') {
            return Err(strided(usage.name, self.is_contiguous(b'F')));
        }
        let len = self.0.len;
        let lacking = || invalid(format!("no memory for a copy of {len} bytes in C order"));
        let mut copy = AlignedBytes::zeroed(len as usize).ok_or_else(lacking)?;
        let to = copy.start().cast();
        // SAFETY: the view is filled, and the copy has as many bytes, which nothing else uses.
        let code = unsafe { ffi::PyBuffer_ToContiguous(to, &*self.0, len, b'C' as c_char) };
        if code == 0 { Ok(copy) } else { Err(PyErr::fetch(py)) }
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
    /// The memory of `array`.
    pub(crate) fn of(array: &Bound<'_, PyAny>, usage: ArrayUse) -> PyResult<Self> {
        let name = usage.name;
        // SAFETY: a reference to a living object.
        if unsafe { ffi::PyObject_CheckBuffer(array.as_ptr()) } == 1 {
            if array.get_type().name()? == "MaskedArray" {
                return Err(invalid(format!(
                    "{name} is a masked array, whose mask no call moves or heeds: pass \
                     {name}.filled(value), or {name}.data and {name}.mask"
                )));
            }
            match BufferView::of(array, usage.writes) {
                Ok(view) => return Self::of_view(array.py(), view, usage),
                Err(why) => match Self::of_interface(array, usage)? {
                    Some(memory) => return Ok(memory),
                    // JAX does not mark its arrays as read-only in DLPack.
                    None if usage.writes => return Err(unwritable(name, &why)),
                    // The buffer protocol lacks bfloat16, so JAX exports such arrays by DLPack alone.
                    None if array.hasattr("__dlpack__")? => {}
                    None => return Err(unusable(name, &why)),
                },
            }
        }
        if array.hasattr("__dlpack__")? {
            return Self::of_dlpack(array, usage);
        }
        Err(invalid_type(format!(
            "{name} is a {} and no array: pass an object with the buffer protocol or __dlpack__, such as \
             an array of NumPy or a tensor of PyTorch; {OBJECTS} move other objects",
            array.get_type().name()?
        )))
    }

    fn of_view(py: Python<'_>, view: BufferView, usage: ArrayUse) -> PyResult<Self> {
        let format = match view.0.format.is_null() {
            true => "B".to_owned(),
            // SAFETY: a string that lives as long as the view.
            false => unsafe { CStr::from_ptr(view.0.format) }.to_string_lossy().into_owned(),
        };
        let size = view.0.itemsize as usize;
        let elements = match of_format(&format, size) {
            Some(data_type) => ArrayElements::known(data_type),
            None => ArrayElements::foreign(usage, &type_name(&format), size)?,
        };
        let len = view.0.len as usize;
        let (start, keeper) = if view.is_contiguous(b'C') {
            (view.0.buf.cast(), ArrayKeeper::View { _view: view })
        } else {
            let mut bytes = view.copy(py, usage)?;
            (bytes.start(), ArrayKeeper::Copy(bytes, view))
        };
        Ok(Self { start, len, elements, usage, keeper })
    }

    /// The memory of an array of NumPy whose type the buffer protocol lacks, such as datetime64 and
    /// those of ml_dtypes. None for another object, and for a read-only array that the call writes.
    fn of_interface(array: &Bound<'_, PyAny>, usage: ArrayUse) -> PyResult<Option<Self>> {
        // The interface of a scalar of NumPy has the address of a copy, which is freed immediately.
        let class = array.py().import("numpy").and_then(|it| it.getattr("ndarray"));
        if !class.and_then(|class| array.is_instance(&class)).unwrap_or(false) {
            return Ok(None);
        }
        let interface = array.getattr("__array_interface__")?;
        let (address, is_read_only): (usize, bool) = interface.get_item("data")?.extract()?;
        if usage.writes && is_read_only {
            return Ok(None);
        }
        let dtype = array.getattr("dtype")?;
        let type_name: String = dtype.getattr("name")?.extract()?;
        let size: usize = dtype.getattr("itemsize")?.extract()?;
        let elements = match type_name.as_str() {
            "bfloat16" => ArrayElements::known(DataType::BF16),
            other => {
                let has_objects: bool = dtype.getattr("hasobject")?.extract()?;
                ArrayElements::foreign(usage, if has_objects { "O" } else { other }, size)?
            }
        };
        if !interface.get_item("strides")?.is_none() {
            return Err(strided(usage.name, false));
        }
        let len = array.getattr("nbytes")?.extract()?;
        let start = std::ptr::with_exposed_provenance_mut(address);
        let keeper = ArrayKeeper::Object { _object: array.clone().unbind() };
        Ok(Some(Self { start, len, elements, usage, keeper }))
    }

    fn of_dlpack(array: &Bound<'_, PyAny>, usage: ArrayUse) -> PyResult<Self> {
        let name = usage.name;
        let capsule = dlpack_capsule(array, name)?;
        let (tensor, is_read_only) = dlpack_tensor(&capsule)?;
        if usage.writes && is_read_only {
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
            return Err(strided(name, false));
        }
        let bits = usize::from(tensor.bits) * usize::from(tensor.lanes);
        let elements = match of_code(tensor.code, tensor.bits, tensor.lanes) {
            Some(data_type) => ArrayElements::known(data_type),
            None if tensor.code == DL_COMPLEX => {
                ArrayElements::foreign(usage, &format!("complex{bits}"), bits / 8)?
            }
            None => {
                let type_name =
                    format!("a type of {bits} bits, in dlpack.h number {}", tensor.code);
                ArrayElements::foreign(usage, &type_name, bits / 8)?
            }
        };
        let len = count as usize * elements.data_type.size() * elements.scale;
        let start = tensor.data.cast::<u8>().wrapping_add(tensor.byte_offset as usize);
        let keeper = ArrayKeeper::Object { _object: capsule.into_any().unbind() };
        Ok(Self { start, len, elements, usage, keeper })
    }

    pub(crate) fn raw(&self) -> RawBytes {
        RawBytes::new((self.start.expose_provenance(), self.len))
    }

    pub(crate) fn memory_use(&self) -> MemoryUse {
        MemoryUse { bytes: self.raw().addresses(), is_written: self.usage.writes }
    }

    /// Refuses an array that a request would have to fill through a copy.
    pub(crate) fn check_direct(self) -> PyResult<Self> {
        match self.keeper {
            ArrayKeeper::Copy(..) if self.usage.writes => Err(strided(self.usage.name, true)),
            _ => Ok(self),
        }
    }

    /// Copies the result of a call to an array in Fortran order.
    pub(crate) fn finish(&self, py: Python<'_>) -> PyResult<()> {
        let (ArrayKeeper::Copy(bytes, view), true) = (&self.keeper, self.usage.writes) else {
            return Ok(());
        };
        let (from, len) = (bytes.bytes().as_ptr().cast(), view.0.len);
        // SAFETY: the view is filled and writable, and the copy has as many bytes.
        let code = unsafe { ffi::PyBuffer_FromContiguous(&*view.0, from, len, b'C' as c_char) };
        if code == 0 { Ok(()) } else { Err(PyErr::fetch(py)) }
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

fn strided(name: &str, is_fortran: bool) -> PyErr {
    let in_place = match is_fortran {
        true => format!(", or {name}.T, which is contiguous in C order"),
        false => String::new(),
    };
    invalid(format!(
        "{name} is not contiguous: pass numpy.ascontiguousarray({name}) or {name}.contiguous(){in_place}"
    ))
}

/// The error for elements of a type, or of a format of the `struct` module, that a call cannot take.
fn foreign_elements(name: &str, type_name: &str) -> PyErr {
    let (what, advice) = match type_name {
        "complex64" | "complex128" => (
            "complex numbers",
            format!("pass their parts, {name}.view('float32') or .view('float64')"),
        ),
        _ if type_name.starts_with(['>', '!']) => (
            "numbers in the other byte order",
            format!("pass {name}.astype({name}.dtype.newbyteorder('='))"),
        ),
        _ if has_addresses(type_name) => {
            ("objects of Python, or addresses", format!("{OBJECTS} move objects"))
        }
        _ => {
            let known = format!("elements of {type_name}: known are {}", types());
            (
                "elements that no operation combines",
                format!("{known}. Broadcast, send and the like move any"),
            )
        }
    };
    invalid(format!("{name} has {what}: {advice}"))
}

/// The type that a format means, as in DLPack where that has it. NumPy marks fields as native or standard
/// by their alignment, which bytes on their way do not have.
fn type_name(format: &str) -> String {
    match format.replace(['@', '=', '<', '^'], "").as_str() {
        "Zf" => "complex64".to_owned(),
        "Zd" => "complex128".to_owned(),
        other => other.to_owned(),
    }
}

/// True if elements of a `format` are or contain addresses. The names of fields stand between colons.
fn has_addresses(format: &str) -> bool {
    format.split(':').step_by(2).any(|types| types.contains(['O', 'P', '&', 'X']))
}

/// True if the elements are contiguous in C order.
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
