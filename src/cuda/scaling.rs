//! The scaling of input elements before they are combined: products for a pre-multiplied sum,
//! quotients for an average.

use crate::element::{Factor, ReduceOp};
use crate::engine::calls::call::CollectiveCall;
use maypole_kernels::DataType;
use maypole_transports::cuda::{Lent, LentFactor};

/// The scaling of each element of an input before it is combined.
#[derive(Clone, Copy)]
pub(super) enum LentScaling<'a> {
    /// Its product with this factor.
    Times(LentFactor<'a>),
    /// Its quotient by this number.
    Over(u64),
}

/// `call` of `rank` as it runs, and how its input is scaled: by `op`, or by the element at `factor_at`. Products
/// are in the staging buffer, so a call that makes some is not in place. Quotients are where the result will
/// be, if that is as long.
///
/// # Errors
/// Why the factor is none of the type's, in words.
pub(super) fn placed<'a>(
    call: CollectiveCall,
    (rank, world): (usize, usize),
    op: ReduceOp,
    factor_at: Option<Lent<'a>>,
) -> Result<(CollectiveCall, Option<LentScaling<'a>>), String> {
    let scaling = match (op, factor_at, call.input_divisor(world)) {
        (_, Some(at), _) => Some(LentScaling::Times(LentFactor::At(at))),
        (ReduceOp::PreMulSum(factor), None, _) => {
            Some(LentScaling::Times(scalar(factor, call.kind)?))
        }
        (_, None, divisor) => divisor.map(LentScaling::Over),
    };
    let in_place = match scaling {
        None => call.in_place,
        Some(LentScaling::Times(_)) => false,
        Some(LentScaling::Over(_)) => call.keeps_whole(rank),
    };
    Ok((CollectiveCall { in_place, ..call }, scaling))
}

/// A factor of a sum of products, as an element of `kind`.
fn scalar(factor: Factor, kind: DataType) -> Result<LentFactor<'static>, String> {
    let scalar = factor.scalar(kind);
    let scalar = scalar
        .ok_or_else(|| format!("{} cannot hold the factor {}", kind.name(), factor.value()))?;
    Ok(LentFactor::Value(scalar))
}
