//! Types of elements, operations and collectives, as numbers.

use crate::error::Failure;
use maypole::schedule::collective::Collective;
use maypole::{DataType, ReduceOp};

/// The type of elements.
pub type maypole_data_type_t = u32;
/// 16-bit floating point, IEEE 754.
pub const MAYPOLE_FLOAT16: maypole_data_type_t = 0;
/// 16-bit floating point with the range of 32 bits.
pub const MAYPOLE_BFLOAT16: maypole_data_type_t = 1;
/// float
pub const MAYPOLE_FLOAT32: maypole_data_type_t = 2;
/// double
pub const MAYPOLE_FLOAT64: maypole_data_type_t = 3;
/// int8_t
pub const MAYPOLE_INT8: maypole_data_type_t = 4;
/// int16_t
pub const MAYPOLE_INT16: maypole_data_type_t = 5;
/// int32_t
pub const MAYPOLE_INT32: maypole_data_type_t = 6;
/// int64_t
pub const MAYPOLE_INT64: maypole_data_type_t = 7;
/// uint8_t
pub const MAYPOLE_UINT8: maypole_data_type_t = 8;
/// uint16_t
pub const MAYPOLE_UINT16: maypole_data_type_t = 9;
/// uint32_t
pub const MAYPOLE_UINT32: maypole_data_type_t = 10;
/// uint64_t
pub const MAYPOLE_UINT64: maypole_data_type_t = 11;
/// One byte: 0 is false, 1 is true. Has logical operations only.
pub const MAYPOLE_BOOL: maypole_data_type_t = 12;

/// The operation of a reduction.
pub type maypole_op_t = u32;
/// Sum.
pub const MAYPOLE_SUM: maypole_op_t = 0;
/// Product.
pub const MAYPOLE_PROD: maypole_op_t = 1;
/// Minimum; a NaN anywhere gives NaN.
pub const MAYPOLE_MIN: maypole_op_t = 2;
/// Maximum; a NaN anywhere gives NaN.
pub const MAYPOLE_MAX: maypole_op_t = 3;
/// Floats: the sum of all contributions, each divided by the number of ranks first. Integers: the
/// sum, divided once at the end, towards zero.
pub const MAYPOLE_AVG: maypole_op_t = 4;
/// Bitwise and; not for floats.
pub const MAYPOLE_AND: maypole_op_t = 5;
/// Bitwise or; not for floats.
pub const MAYPOLE_OR: maypole_op_t = 6;
/// Bitwise exclusive or; not for floats.
pub const MAYPOLE_XOR: maypole_op_t = 7;

/// A collective, for maypole_explain().
pub type maypole_collective_t = u32;
/// maypole_broadcast
pub const MAYPOLE_BROADCAST: maypole_collective_t = 0;
/// maypole_reduce
pub const MAYPOLE_REDUCE: maypole_collective_t = 1;
/// maypole_all_reduce
pub const MAYPOLE_ALL_REDUCE: maypole_collective_t = 2;
/// maypole_gather
pub const MAYPOLE_GATHER: maypole_collective_t = 3;
/// maypole_all_gather
pub const MAYPOLE_ALL_GATHER: maypole_collective_t = 4;
/// maypole_scatter
pub const MAYPOLE_SCATTER: maypole_collective_t = 5;
/// maypole_reduce_scatter
pub const MAYPOLE_REDUCE_SCATTER: maypole_collective_t = 6;
/// maypole_all_to_all
pub const MAYPOLE_ALL_TO_ALL: maypole_collective_t = 7;

pub(crate) fn data_type(number: maypole_data_type_t) -> Result<DataType, Failure> {
    let known = DataType::ALL.get(number as usize).copied();
    known.ok_or_else(|| Failure::invalid(format!("{number} is no maypole_data_type_t")))
}

pub(crate) fn operation(number: maypole_op_t) -> Result<ReduceOp, Failure> {
    let known = ReduceOp::ALL.get(number as usize).copied();
    known.ok_or_else(|| Failure::invalid(format!("{number} is no maypole_op_t")))
}

pub(crate) fn collective(number: maypole_collective_t, root: usize) -> Result<Collective, Failure> {
    Ok(match number {
        MAYPOLE_BROADCAST => Collective::Broadcast { root },
        MAYPOLE_REDUCE => Collective::Reduce { root },
        MAYPOLE_ALL_REDUCE => Collective::AllReduce,
        MAYPOLE_GATHER => Collective::Gather { root },
        MAYPOLE_ALL_GATHER => Collective::AllGather,
        MAYPOLE_SCATTER => Collective::Scatter { root },
        MAYPOLE_REDUCE_SCATTER => Collective::ReduceScatter,
        MAYPOLE_ALL_TO_ALL => Collective::AllToAll,
        _ => return Err(Failure::invalid(format!("{number} is no maypole_collective_t"))),
    })
}
