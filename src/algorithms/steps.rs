//! Short runs of steps that several algorithms are made of.

use crate::schedule::{Span, Step, output, scratch};

/// All other ranks, beginning after `rank`, so that the ranks do not all send to the same rank
/// first.
pub(super) fn others(world: usize, rank: usize) -> impl Iterator<Item = usize> + Clone {
    (1..world).map(move |distance| (rank + distance) % world)
}

/// `spans` go to rank `to`.
pub(super) fn send(to: usize, spans: impl IntoIterator<Item = Span>) -> impl Iterator<Item = Step> {
    spans.into_iter().map(move |from| Step::Send { from, to })
}

/// `chunks` of the output are received from rank `from`.
pub(super) fn receive(
    from: usize,
    chunks: impl IntoIterator<Item = usize>,
) -> impl Iterator<Item = Step> {
    chunks.into_iter().map(move |chunk| Step::Recv { into: output(chunk), from })
}

/// `into` becomes x0 op x1 op x2 ..., left to right. This rank's part is `mine`, and the others'
/// parts are received. All ranks combine in the same order and so get the same bits, even where
/// rounding or the operation depends on the order.
pub(super) fn fold_in_rank_order(
    world: usize,
    rank: usize,
    mine: Span,
    into: Span,
) -> impl Iterator<Item = Step> {
    (0..world).map(move |peer| match (peer == 0, peer == rank) {
        (true, true) => Step::Copy { from: mine, into },
        (true, false) => Step::Recv { into, from: peer },
        (false, true) => Step::Reduce { from: mine, into },
        (false, false) => Step::RecvReduce { into, from: peer },
    })
}

/// `into` becomes `mine` and what `peer` sends, combined in the order of the two ranks. The two
/// spans must differ, in place too, because the part of a lower peer comes first.
pub(super) fn combine(rank: usize, peer: usize, mine: Span, into: Span) -> [Step; 2] {
    if peer < rank {
        [Step::Recv { into, from: peer }, Step::Reduce { from: mine, into }]
    } else {
        [Step::Copy { from: mine, into }, Step::RecvReduce { into, from: peer }]
    }
}

/// The scratch chunk, 0 or 1, that `held` is not: two chunks of scratch take turns.
pub(super) fn other_scratch(held: Span) -> Span {
    scratch(usize::from(held == scratch(0)))
}
