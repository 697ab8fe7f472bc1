//! Exchanges between the ranks of a [`RankGroup`]: all-to-all with equal and with unequal blocks,
//! and a shift around a ring.
//!
//! Each function calls the library once. In a group of one the all-to-alls return a copy of their
//! input. Cost: the data itself.

use crate::ranks::group::RankGroup;
use maypole::{Communicator, Element, Result};

/// Sends block `r` of `data` to rank `r`, and returns the blocks for this rank: block `s` of the
/// result is from rank `s`. Blocks are equal parts of `data`.
///
/// # Errors
/// As the library's.
pub fn all_to_all<T: Element>(group: &RankGroup, data: &[T]) -> Result<Vec<T>> {
    let mut got = data.to_vec();
    if group.world() > 1 {
        group.call(|comm| comm.all_to_all((data, &mut got)))?;
    }
    Ok(got)
}

/// [`all_to_all`] with blocks of unequal lengths: `to[r]` elements to rank `r`, `from[s]` elements
/// from rank `s`.
///
/// # Errors
/// As the library's.
pub fn all_to_all_v<T: Element + Default>(
    group: &RankGroup,
    data: &[T],
    to: &[usize],
    from: &[usize],
) -> Result<Vec<T>> {
    if group.world() == 1 {
        return Ok(data.to_vec());
    }
    let mut got = vec![T::default(); from.iter().sum()];
    group.call(|comm| comm.all_to_all((data, to, &mut got, from)))?;
    Ok(got)
}

/// Sends `data` to the next rank in a ring of the whole group, and returns the data of the previous
/// rank. All ranks send equally many elements.
///
/// # Errors
/// As the library's.
///
/// # Panics
/// If this is the group of one.
pub fn shift<T: Element + Default>(group: &RankGroup, data: &[T]) -> Result<Vec<T>> {
    shift_v(group, data, data.len())
}

/// [`shift`] of lists of different lengths, of which the previous rank's has `from` elements.
///
/// # Errors
/// As the library's.
pub fn shift_v<T: Element + Default>(group: &RankGroup, data: &[T], from: usize) -> Result<Vec<T>> {
    let rank = group.rank();
    let world = group.world();
    let mut got = vec![T::default(); from];
    group.call(|comm| {
        comm.exchange(data, (rank + 1) % world, &mut got, (rank + world - 1) % world, 0)
    })?;
    Ok(got)
}

/// Returns the first rank that passes the sentence of a failure, and its sentence; `None` if no rank
/// does. All ranks call it.
///
/// # Errors
/// As the library's `all_gather`.
pub fn first_failure(
    comm: &mut Communicator,
    sentence: Option<String>,
) -> Result<Option<(usize, String)>> {
    let mut failures = vec![0u8; comm.world()];
    comm.all_gather((&[u8::from(sentence.is_some())], &mut failures))?;
    let Some(rank) = failures.iter().position(|failed| *failed != 0) else { return Ok(None) };
    let why = comm.broadcast_bytes(sentence.unwrap_or_default().into_bytes(), rank);
    // Whether the sentence arrived or not, that rank failed.
    let why = why.map_or_else(|lost| lost.to_string(), |why| String::from_utf8_lossy(&why).into());
    Ok(Some((rank, why)))
}
