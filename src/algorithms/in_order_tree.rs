//! Binary trees whose places are numbered in order, as the double tree needs them: a left subtree
//! has the places before its parent, a right subtree the places after it.

/// Parent and children of place `at` among places `1..=len` below place 0. The height of a place is
/// the index of its lowest set bit. If its parent or its right child would be beyond `len`, the
/// next place on the way to it takes its role.
pub(super) fn first(len: usize, at: usize) -> (Option<usize>, Vec<usize>) {
    if at == 0 {
        return (None, len.checked_ilog2().map(|level| 1 << level).into_iter().collect());
    }
    let bit = at & at.wrapping_neg();
    let above = (at ^ bit) | (bit << 1);
    let parent = if above > len { at ^ bit } else { above };
    let left = (bit > 1).then(|| at - bit / 2);
    let offsets = std::iter::successors(Some(bit / 2), |offset| Some(offset / 2))
        .take_while(|offset| *offset > 0);
    let right = offsets.map(|offset| at + offset).find(|child| *child <= len);
    (Some(parent), left.into_iter().chain(right).collect())
}

/// Like [`first`], for the second tree.
pub(super) fn second(len: usize, at: usize) -> (Option<usize>, Vec<usize>) {
    let mirror = |at: usize| if at == 0 { 0 } else { len + 1 - at };
    let mapped = |(parent, children): (Option<usize>, Vec<usize>), map: &dyn Fn(usize) -> usize| {
        (parent.map(map), children.into_iter().map(map).collect())
    };
    match (len % 2, at) {
        (0, _) => mapped(first(len, mirror(at)), &mirror),
        (_, 0) => (None, vec![1]),
        (_, 1) => (Some(0), mapped(first(len - 1, 0), &|at| at + 1).1),
        _ => mapped(first(len - 1, at - 1), &|at| at + 1),
    }
}
