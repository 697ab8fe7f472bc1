//! Embeddings: a line of a table for each token.

use super::call::DeviceSlice;
use super::elements::{each, rows};
use super::machine::{Float, Machine};
use maypole_kernels::cuda::CudaError;

/// `x += table[ids]`, a row for each of `ids`. The first line of `table` is number `first`; an id
/// whose line is not in `table` adds nothing.
///
/// # Errors
/// As [`Machine::launch`].
///
/// # Panics
/// If `x` has not a row for each id, or `table` no whole number of such rows.
pub fn forward<T: Float>(
    machine: &mut dyn Machine,
    x: DeviceSlice<T>,
    table: DeviceSlice<T>,
    first: usize,
    ids: DeviceSlice<u32>,
) -> Result<(), CudaError> {
    let tokens = ids.len();
    let width = rows(x.len(), tokens);
    let lines = rows(table.len(), width);
    let launch = each::<T>("embed", x.len()).slice(x).slice(table).slice(ids);
    launch.count(first).count(lines).count(tokens).count(width).on(machine)
}

/// Tokens by the line of the table that they add to. Tokens of one line keep their order, so sums
/// have one order.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct TokensByLine {
    /// The lines that have tokens, from the first line of the table on.
    pub lines: Vec<u32>,
    /// Where the tokens of each line begin in `order`; at the end, the number of all tokens.
    pub starts: Vec<u32>,
    /// Tokens, by line.
    pub order: Vec<u32>,
}

impl TokensByLine {
    /// Sorts the tokens of `ids` whose line is one of the `lines` from number `first` on.
    pub fn new(ids: &[u32], first: usize, lines: usize) -> Self {
        let line = |id: u32| (id as usize).checked_sub(first).filter(|line| *line < lines);
        let tokens = ids.iter().enumerate();
        let mut pairs: Vec<(usize, u32)> =
            tokens.filter_map(|(token, id)| Some((line(*id)?, token as u32))).collect();
        pairs.sort_unstable();
        let mut sorted = Self::default();
        for (line, token) in pairs {
            if sorted.lines.last() != Some(&(line as u32)) {
                sorted.lines.push(line as u32);
                sorted.starts.push(sorted.order.len() as u32);
            }
            sorted.order.push(token);
        }
        sorted.starts.push(sorted.order.len() as u32);
        sorted
    }
}

/// The slices of [`TokensByLine`].
#[derive(Clone, Copy, Debug)]
pub struct TokenSlices {
    /// The lines that have tokens.
    pub lines: DeviceSlice<u32>,
    /// Where the tokens of each line begin.
    pub starts: DeviceSlice<u32>,
    /// Tokens, by line.
    pub order: DeviceSlice<u32>,
}

/// Adds to each line of `table` the rows of `dx` of its tokens. Rows have `width` numbers.
///
/// # Errors
/// As [`Machine::launch`].
///
/// # Panics
/// If `dx` or `table` is no whole number of rows, or there are not as many starts as lines and one
/// more.
pub fn backward<T: Float>(
    machine: &mut dyn Machine,
    table: DeviceSlice<T>,
    dx: DeviceSlice<T>,
    sorted: TokenSlices,
    width: usize,
) -> Result<(), CudaError> {
    let TokenSlices { lines, starts, order } = sorted;
    let groups = lines.len();
    assert_eq!(starts.len(), groups + 1, "where the tokens of each line begin");
    let tokens = rows(dx.len(), width);
    let launch = each::<T>("embed_backward", groups * width).slice(table).slice(dx);
    let launch = launch.slice(lines).slice(starts).slice(order).count(groups);
    let launch = launch.count(rows(table.len(), width)).count(order.len());
    launch.count(tokens).count(width).on(machine)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_keep_their_order_within_a_line_and_others_are_left_out() {
        let sorted = TokensByLine::new(&[7, 5, 9, 7, 4, 5, 7], 5, 3);
        assert_eq!(sorted.lines, [0, 2]);
        assert_eq!(sorted.starts, [0, 2, 5]);
        assert_eq!(sorted.order, [1, 5, 0, 3, 6]);
        assert_eq!(TokensByLine::new(&[1, 2], 5, 3).starts, [0]);
    }
}
