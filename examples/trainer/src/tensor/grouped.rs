//! Grouped-query attention: several heads of queries share a head of keys and one of values.
//!
//! With `heads` queries and fewer heads of keys, query head `h` uses the keys of head
//! `h / (heads / keys)` (Ainslie et al. 2023). Parameters and their gradients are those of the few
//! heads. For [`attention`](crate::tensor::attention) each is written out once for each of its
//! queries; the backward pass sums the gradients of these copies.
//!
//! Cost: the copies. Attention keeps, and context parallelism sends, as many keys and values as
//! there are queries. A cache of keys that text is sampled with would not be written out.

use crate::tensor::math::{Real, vectorized};

/// A row of q of all heads, then k, then v, for each token: what attention takes. `k` and `v` have
/// fewer heads than `q`, each of `size` numbers; `width` numbers of `q` are a token.
pub fn spread<T: Real>([q, k, v]: [&[T]; 3], width: usize, size: usize) -> Vec<T> {
    let narrow = k.len() / (q.len() / width);
    let copies = width / narrow;
    let mut qkv = Vec::with_capacity(3 * q.len());
    let rows = q.chunks_exact(width).zip(k.chunks_exact(narrow).zip(v.chunks_exact(narrow)));
    for (q, (k, v)) in rows {
        qkv.extend_from_slice(q);
        for head in k.chunks_exact(size).chain(v.chunks_exact(size)) {
            (0..copies).for_each(|_| qkv.extend_from_slice(head));
        }
    }
    qkv
}

/// The gradients of q, k and v from that of what [`spread`] gave. `narrow` numbers of k are a token.
pub fn spread_backward<T: Real>(
    dqkv: &[T],
    width: usize,
    narrow: usize,
    size: usize,
) -> [Vec<T>; 3] {
    let tokens = dqkv.len() / (3 * width);
    let mut dq = Vec::with_capacity(tokens * width);
    let [mut dk, mut dv] = [(); 2].map(|()| vec![T::zero(); tokens * narrow]);
    let sums = dk.chunks_exact_mut(narrow).zip(dv.chunks_exact_mut(narrow));
    for (token, (dk, dv)) in dqkv.chunks_exact(3 * width).zip(sums) {
        dq.extend_from_slice(&token[..width]);
        add_copies(dk, &token[width..2 * width], size);
        add_copies(dv, &token[2 * width..], size);
    }
    [dq, dk, dv]
}

/// Each head of `sum` += all of its copies, which follow one another in `copies`.
fn add_copies<T: Real>(sum: &mut [T], copies: &[T], size: usize) {
    let each = copies.len() / sum.len() * size;
    vectorized(|| {
        for (sum, copies) in sum.chunks_exact_mut(size).zip(copies.chunks_exact(each)) {
            for copy in copies.chunks_exact(size) {
                sum.iter_mut().zip(copy).for_each(|(sum, copy)| *sum += *copy);
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbouring_queries_share_keys_and_gradients_are_summed() {
        // Two tokens of four heads of queries, which share two heads of keys and values.
        let q: Vec<f64> = (0..8).map(f64::from).collect();
        let qkv = spread([&q, &[10.0, 11.0, 12.0, 13.0], &[20.0, 21.0, 22.0, 23.0]], 4, 1);
        let keys = [10.0, 10.0, 11.0, 11.0, 20.0, 20.0, 21.0, 21.0];
        assert_eq!(qkv[..4], q[..4]);
        assert_eq!(qkv[4..12], keys);
        let [dq, dk, dv] = spread_backward(&qkv, 4, 2, 1);
        assert_eq!(dq, q);
        assert_eq!(dk, [20.0, 22.0, 24.0, 26.0]);
        assert_eq!(dv, [40.0, 42.0, 44.0, 46.0]);
    }
}
