//! The parts of a call as Python passes them: addresses, and the names of collectives, types and
//! operations.

use crate::error::invalid;
use maypole::schedule::collective::Collective;
use maypole::{DataType, ErasedBuffers, ErasedCall, Factor, ReduceOp};
use pyo3::prelude::*;

/// Bytes at an address.
#[derive(Clone, Copy)]
pub(crate) struct RawBytes {
    start: usize,
    len: usize,
}

// SAFETY: an address and a length.
unsafe impl Send for RawBytes {}

impl RawBytes {
    pub(crate) fn new((start, len): (usize, usize)) -> Self {
        Self { start, len }
    }

    /// # Safety
    /// The bytes must be readable, and nobody may write them, until the slice is dropped.
    pub(crate) unsafe fn bytes<'a>(self) -> &'a [u8] {
        let start = std::ptr::with_exposed_provenance(self.start);
        match self.len {
            0 => &[],
            // SAFETY: the caller's promise.
            len => unsafe { std::slice::from_raw_parts(start, len) },
        }
    }

    /// # Safety
    /// The bytes must be writable, and nobody else may use them, until the slice is dropped.
    pub(crate) unsafe fn bytes_mut<'a>(self) -> &'a mut [u8] {
        let start = std::ptr::with_exposed_provenance_mut(self.start);
        match self.len {
            0 => &mut [],
            // SAFETY: the caller's promise.
            len => unsafe { std::slice::from_raw_parts_mut(start, len) },
        }
    }
}

/// A call as the Python code passes it.
pub(crate) struct RawCall {
    pub(crate) collective: Collective,
    pub(crate) data_type: DataType,
    pub(crate) op: ReduceOp,
    pub(crate) input: RawBytes,
    pub(crate) output: RawBytes,
    pub(crate) counts: Option<Vec<usize>>,
    pub(crate) receive_counts: Option<Vec<usize>>,
}

impl RawCall {
    /// Makes the call. Equal buffers are one buffer in place.
    ///
    /// # Safety
    /// As [`RawBytes::bytes`] for the input and [`RawBytes::bytes_mut`] for the output.
    pub(crate) unsafe fn run(&self, comm: &mut maypole::Communicator) -> maypole::Result<()> {
        let call = ErasedCall {
            collective: self.collective,
            data_type: self.data_type,
            op: self.op,
            counts: self.counts.as_deref(),
            receive_counts: self.receive_counts.as_deref(),
        };
        let in_place = self.input.start == self.output.start && self.input.len == self.output.len;
        let in_place = in_place && self.counts.is_none();
        // SAFETY: the caller's promise; buffers that are not equal do not overlap.
        let buffers = unsafe {
            match in_place {
                true => ErasedBuffers::InPlace(self.output.bytes_mut()),
                false => ErasedBuffers::Apart(self.input.bytes(), self.output.bytes_mut()),
            }
        };
        comm.call_erased(call, buffers)
    }
}

/// The collective of this name.
pub(crate) fn collective(name: &str, root: usize) -> PyResult<Collective> {
    Ok(match name {
        "broadcast" => Collective::Broadcast { root },
        "reduce" => Collective::Reduce { root },
        "all_reduce" => Collective::AllReduce,
        "gather" => Collective::Gather { root },
        "all_gather" => Collective::AllGather,
        "scatter" => Collective::Scatter { root },
        "reduce_scatter" => Collective::ReduceScatter,
        "all_to_all" => Collective::AllToAll,
        "scan" => Collective::Scan,
        "exclusive_scan" => Collective::ExclusiveScan,
        "barrier" => Collective::Barrier,
        _ => return Err(invalid(format!("there is no collective '{name}'"))),
    })
}

/// The type of this name, as NumPy and PyTorch call it.
pub(crate) fn data_type(name: &str) -> PyResult<DataType> {
    Ok(match name {
        "float16" => DataType::F16,
        "bfloat16" => DataType::BF16,
        "float32" => DataType::F32,
        "float64" => DataType::F64,
        "int8" => DataType::I8,
        "int16" => DataType::I16,
        "int32" => DataType::I32,
        "int64" => DataType::I64,
        "uint8" => DataType::U8,
        "uint16" => DataType::U16,
        "uint32" => DataType::U32,
        "uint64" => DataType::U64,
        "bool" => DataType::Bool,
        _ => return Err(invalid(format!("no elements of type '{name}' can be combined"))),
    })
}

/// The operation of this name. `factor` is that of a pre-multiplied sum.
pub(crate) fn operation(name: &str, factor: Option<f64>) -> PyResult<ReduceOp> {
    if let Some(factor) = factor {
        return Ok(ReduceOp::PreMulSum(Factor::new(factor)));
    }
    name.parse::<ReduceOp>().map_err(|error| invalid(error.to_string()))
}
