//! Reductions: NCCL's operations, and sums with a factor that programs make.

use crate::abi::{
    BUILT_IN_OPS, ElementType, ncclComm_t, ncclDataType_t, ncclRedOp_t, ncclScalarResidence_t,
};
use crate::communicator::{self, Communicator};
use crate::core;
use crate::error::Failure;
use crate::group::{self, Queued, What};
use crate::trace::Op;
use crate::variables::put;
use half::{bf16, f16};
use maypole::{DataType, Factor, ReduceOp};
use std::ffi::c_void;
use std::sync::MutexGuard;

/// The reduction of a call.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Operation {
    BuiltIn(ReduceOp),
    /// A sum of products. The kernel reads the factor from this address of GPU memory.
    FactorAt(u64),
    /// One of NVIDIA's library, by its number there.
    Real(ncclRedOp_t),
}

/// A sum with a factor of the program.
#[derive(Clone, Copy, Debug)]
struct PreMulSum {
    kind: DataType,
    operation: Operation,
}

/// The operations that a program has made for one communicator.
#[derive(Default)]
pub(crate) struct Operations {
    /// `None`: destroyed, so the slot is free for the next one.
    made: Vec<Option<PreMulSum>>,
    /// Factors in GPU memory: their bits and their addresses.
    on_gpu: Vec<(u64, u64)>,
}

/// The low bits of an operation's number hold this many bits of the communicator's number, and the high
/// bits the slot in its table. So an operation of another communicator is detected.
const COMMUNICATOR_BITS: u32 = 12;

/// The maximum of operations of a communicator at a time: the number stays a positive 32-bit integer.
const MOST: usize = (1 << (31 - COMMUNICATOR_BITS)) - 1;

fn low_bits(communicator: u64) -> ncclRedOp_t {
    (communicator & ((1 << COMMUNICATOR_BITS) - 1)) as ncclRedOp_t
}

impl Operations {
    /// Takes the addresses of the factors in GPU memory.
    pub(crate) fn take_from_gpu(&mut self) -> Vec<u64> {
        self.on_gpu.drain(..).map(|(_, address)| address).collect()
    }

    fn add(&mut self, communicator: u64, made: PreMulSum) -> Result<ncclRedOp_t, Failure> {
        let free = self.made.iter().position(Option::is_none);
        let place = free.unwrap_or(self.made.len());
        if place >= MOST {
            let text = "there are too many operations: destroy them by ncclRedOpDestroy";
            return Err(Failure::usage(text));
        }
        if free.is_none() {
            self.made.push(None);
        }
        self.made[place] = Some(made);
        let high = (place as ncclRedOp_t) << COMMUNICATOR_BITS;
        Ok(BUILT_IN_OPS + (high | low_bits(communicator)))
    }

    /// The slot of an operation in the table.
    fn place(&mut self, communicator: u64, op: ncclRedOp_t) -> Option<&mut Option<PreMulSum>> {
        let number = op.checked_sub(BUILT_IN_OPS).filter(|number| *number >= 0)?;
        let is_own = number & ((1 << COMMUNICATOR_BITS) - 1) == low_bits(communicator);
        self.made.get_mut((number >> COMMUNICATOR_BITS) as usize).filter(|_| is_own)
    }

    fn find(&mut self, communicator: u64, op: ncclRedOp_t) -> Option<PreMulSum> {
        self.place(communicator, op).and_then(|place| *place)
    }

    fn remove(&mut self, communicator: u64, op: ncclRedOp_t) -> Result<PreMulSum, Failure> {
        let place = self.place(communicator, op).and_then(Option::take);
        place.ok_or_else(|| {
            let text = format!("there is no operation {op} of this communicator to destroy");
            Failure::argument(text)
        })
    }
}

/// The operation of NCCL's number, on elements of this type.
pub(crate) fn operation(
    communicator: &Communicator,
    op: ncclRedOp_t,
    element: ElementType,
) -> Result<Operation, Failure> {
    let is_real = communicator.real().is_some();
    if is_real && (0..BUILT_IN_OPS).contains(&op) {
        return Ok(Operation::Real(op));
    }
    if !is_real && !element.has_arithmetic {
        return Err(Failure::argument(format!(
            "elements of {} can be moved here, and not combined: use f16, bf16 or f32",
            element.name
        )));
    }
    let built_in = |op| Ok(Operation::BuiltIn(op));
    match op {
        0 => built_in(ReduceOp::Sum),
        1 => built_in(ReduceOp::Product),
        2 => built_in(ReduceOp::Max),
        3 => built_in(ReduceOp::Min),
        4 => built_in(ReduceOp::Avg),
        op => match lock(communicator).find(communicator.number, op) {
            None => Err(Failure::argument(format!("this communicator has no operation {op}"))),
            Some(made) if made.kind != element.kind => Err(Failure::argument(format!(
                "operation {op} was made for {}, and the elements are {}",
                made.kind.name(),
                element.name
            ))),
            Some(made) => Ok(made.operation),
        },
    }
}

/// The operation in the trace.
pub(crate) fn traced(op: ncclRedOp_t) -> Op {
    match op {
        0 => Op::BuiltIn("sum"),
        1 => Op::BuiltIn("prod"),
        2 => Op::BuiltIn("max"),
        3 => Op::BuiltIn("min"),
        4 => Op::BuiltIn("avg"),
        op => Op::PreMulSum(op),
    }
}

fn lock(communicator: &Communicator) -> MutexGuard<'_, Operations> {
    communicator.operations.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum HostFactor {
    Float(Factor),
    /// The bits of a 64-bit integer that no float represents. It must be in GPU memory.
    Bits(u64),
}

/// Reads the factor at `factor` on the host.
///
/// # Safety
/// `factor` must point to an element of type `kind`, with any alignment.
unsafe fn host_factor(factor: *const c_void, kind: DataType) -> HostFactor {
    macro_rules! read {
        ($type:ty) => {{
            // SAFETY: the caller guarantees it.
            unsafe { factor.cast::<$type>().read_unaligned() }
        }};
    }
    let value = match kind {
        DataType::F16 => read!(f16).to_f64(),
        DataType::BF16 => read!(bf16).to_f64(),
        DataType::F32 => f64::from(read!(f32)),
        DataType::F64 => read!(f64),
        DataType::I8 => f64::from(read!(i8)),
        DataType::I16 => f64::from(read!(i16)),
        DataType::I32 => f64::from(read!(i32)),
        DataType::U8 | DataType::Bool => f64::from(read!(u8)),
        DataType::U16 => f64::from(read!(u16)),
        DataType::U32 => f64::from(read!(u32)),
        DataType::I64 => {
            let value = read!(i64);
            match value as f64 as i128 == i128::from(value) {
                true => value as f64,
                false => return HostFactor::Bits(value as u64),
            }
        }
        DataType::U64 => {
            let value = read!(u64);
            match value as f64 as i128 == i128::from(value) {
                true => value as f64,
                false => return HostFactor::Bits(value),
            }
        }
    };
    HostFactor::Float(Factor::new(value))
}

/// The address of a factor in GPU memory, which is freed with the communicator.
fn on_gpu(communicator: &Communicator, bits: u64) -> Result<u64, Failure> {
    let mut operations = lock(communicator);
    if let Some((_, address)) = operations.on_gpu.iter().find(|(known, _)| *known == bits) {
        return Ok(*address);
    }
    let context = &communicator.context;
    let address = core::preserving(|_| core::upload(context, bits))?;
    operations.on_gpu.push((bits, address));
    Ok(address)
}

exported! {
    /// Makes an operation that multiplies each rank's elements by that rank's factor, and sums
    /// them. A factor on the host is read now, one on the device when the kernel of a call runs. The
    /// operation may be destroyed as soon as the call that uses it has returned, also in a group.
    fn ncclRedOpCreatePreMulSum, pncclRedOpCreatePreMulSum(
        line;
        op: *mut ncclRedOp_t,
        factor: *mut c_void,
        kind: ncclDataType_t,
        residence: ncclScalarResidence_t,
        comm: ncclComm_t,
    ) {
        let communicator = communicator::find(comm)?;
        line.communicator(communicator.number);
        let element = ElementType::of(kind)?;
        line.kind(element.name);
        let real = communicator.real();
        if real.is_none() && !element.has_arithmetic {
            let text = format!("elements of {} cannot be combined here", element.name);
            return Err(Failure::argument(text));
        }
        if factor.is_null() {
            return Err(Failure::argument("the factor is NULL"));
        }
        let operation = match residence {
            0 | 1 if real.is_some() => {
                let real = real.expect("just looked");
                Operation::Real(real.make_operation(factor, kind, residence)?)
            }
            0 => Operation::FactorAt(factor.expose_provenance() as u64),
            1 => {
                // SAFETY: the caller passes an element of that type.
                match unsafe { host_factor(factor, element.kind) } {
                    HostFactor::Float(factor) => {
                        line.details(|| format!("factor={}", factor.value()));
                        Operation::BuiltIn(ReduceOp::PreMulSum(factor))
                    }
                    HostFactor::Bits(bits) => {
                        line.details(|| format!("factor={bits:#x}"));
                        Operation::FactorAt(on_gpu(&communicator, bits)?)
                    }
                }
            }
            other => {
                return Err(Failure::argument(format!("the factor lies nowhere: {other}")));
            }
        };
        let made = PreMulSum { kind: element.kind, operation };
        let number = lock(&communicator).add(communicator.number, made)?;
        line.op(Op::PreMulSum(number));
        // SAFETY: the caller passes a place for an operation.
        unsafe { put(op, number, "the place for the operation") }
    }

    /// Destroys an operation. Earlier calls keep it.
    fn ncclRedOpDestroy, pncclRedOpDestroy(line; op: ncclRedOp_t, comm: ncclComm_t) {
        let communicator = communicator::find(comm)?;
        line.communicator(communicator.number);
        line.op(traced(op));
        let ended = lock(&communicator).remove(communicator.number, op)?;
        match (communicator.real(), ended.operation) {
            // Queued calls of the open group still use it.
            (Some(real), Operation::Real(op)) => {
                let end = Box::new(move || real.end_operation(op));
                group::call(Queued { communicator, stream: 0, what: What::Real(real, end) })
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(kind: DataType) -> PreMulSum {
        PreMulSum { kind, operation: Operation::FactorAt(64) }
    }

    #[test]
    fn operations_have_numbers_of_their_communicator() {
        let mut operations = Operations::default();
        let first = operations.add(7, made(DataType::F32)).unwrap();
        let second = operations.add(7, made(DataType::F64)).unwrap();
        assert!(first >= BUILT_IN_OPS && second >= BUILT_IN_OPS && first != second);
        assert_eq!(operations.find(7, first).unwrap().kind, DataType::F32);
        assert!(operations.find(8, first).is_none(), "of another communicator");
        for op in [-1, 0, 4, BUILT_IN_OPS, i32::MAX, i32::MIN] {
            assert!(operations.find(7, op).is_none(), "operation {op}");
        }
        operations.remove(7, first).unwrap();
        assert!(operations.remove(7, first).is_err(), "destroyed twice");
        assert_eq!(operations.add(7, made(DataType::F16)).unwrap(), first, "used again");
    }

    #[test]
    fn factors_of_the_host_are_read_by_their_type() {
        let read = |factor: &[u8], kind| {
            // SAFETY: each slice below is an element of its type.
            unsafe { host_factor(factor.as_ptr().cast(), kind) }
        };
        let float = |value| HostFactor::Float(Factor::new(value));
        assert_eq!(read(&0.5_f32.to_ne_bytes(), DataType::F32), float(0.5));
        assert_eq!(read(&f16::from_f32(0.25).to_ne_bytes(), DataType::F16), float(0.25));
        assert_eq!(read(&bf16::from_f32(-2.0).to_ne_bytes(), DataType::BF16), float(-2.0));
        assert_eq!(read(&(-3_i64).to_ne_bytes(), DataType::I64), float(-3.0));
        for bits in [1_u64 << 60 | 1, u64::MAX] {
            assert_eq!(read(&bits.to_ne_bytes(), DataType::U64), HostFactor::Bits(bits));
        }
        assert_eq!(read(&(1_u64 << 63).to_ne_bytes(), DataType::U64), float(2_f64.powi(63)));
    }
}
