//! Exact averages of integers, whose sum may be longer than their type.

use crate::{DataType, View, ViewMut};

/// The summands of an average of integers: one or two vectors of 64-bit words, which all ranks sum.
///
/// A number of at most 32 bits is its own summand. A 64-bit number is its quotient and its remainder by the
/// number of ranks: the sum of neither overflows.
///
/// ```
/// use maypole_kernels::{AverageParts, DataType, View, ViewMut};
/// let part = |it: i8| AverageParts::of(View::of(&[it]), DataType::I8, 2);
/// let (mut sums, other) = (part(100), part(51));
/// sums.0[0][0] += other.0[0][0];
/// let mut average = [0i8];
/// sums.quotient(ViewMut::of(&mut average), DataType::I8, 2);
/// assert_eq!(average, [75]);
/// ```
#[derive(Debug)]
pub struct AverageParts(pub Vec<Vec<i64>>);

impl AverageParts {
    /// Returns the summands of `from`, integers of `kind`, on one of `ranks` ranks.
    ///
    /// # Panics
    /// If `ranks` is zero.
    pub fn of(from: View<'_>, kind: DataType, ranks: u64) -> Self {
        let bytes = from.to_vec();
        let words = |part: &dyn Fn(i128) -> i128| {
            let numbers = bytes.chunks_exact(kind.size()).map(|it| whole(it, kind));
            numbers.map(|it| part(it) as i64).collect()
        };
        let ranks = i128::from(ranks);
        Self(match kind.size() {
            8 => vec![words(&|it| it.div_euclid(ranks)), words(&|it| it.rem_euclid(ranks))],
            _ => vec![words(&|it| it)],
        })
    }

    /// Writes the averages of `ranks` ranks to `into`, rounded towards zero, from the sums of their summands.
    ///
    /// # Panics
    /// If `ranks` is zero, or there are fewer sums than elements of `into`.
    pub fn quotient(&self, into: ViewMut<'_>, kind: DataType, ranks: u64) {
        let ranks = i128::from(ranks);
        let sum = |at: usize| match &self.0[..] {
            [quotients, remainders] => {
                whole(&quotients[at].to_le_bytes(), kind) * ranks + i128::from(remainders[at])
            }
            sums => i128::from(sums[0][at]),
        };
        let mut bytes = Vec::with_capacity(into.len());
        for at in 0..into.len() / kind.size() {
            bytes.extend_from_slice(&(sum(at) / ranks).to_le_bytes()[..kind.size()]);
        }
        into.fill_from(&bytes);
    }
}

/// The number whose little-endian bytes in `kind` are `bytes`.
fn whole(bytes: &[u8], kind: DataType) -> i128 {
    let signed = matches!(kind, DataType::I8 | DataType::I16 | DataType::I32 | DataType::I64);
    let is_negative = signed && bytes.last().is_some_and(|byte| *byte >= 0x80);
    let mut word = [if is_negative { 0xff } else { 0 }; 16];
    word[..bytes.len()].copy_from_slice(bytes);
    i128::from_le_bytes(word)
}
