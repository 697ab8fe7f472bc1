//! Random schedules.

use super::Lot;
use maypole::schedule::{Buffer, Schedule, Span, Step};

/// Chunks of every buffer of a random schedule.
pub(crate) const CHUNKS: usize = 3;

/// Which chunks a step may combine.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Chunks {
    /// Any chunk may become any other, so all chunks must be equally long.
    Mixed,
    /// A chunk keeps its number, as in most collectives.
    Aligned,
}

const READABLE: [Buffer; 3] = [Buffer::Input, Buffer::Output, Buffer::Scratch];
const WRITABLE: [Buffer; 2] = [Buffer::Output, Buffer::Scratch];

/// A message that was sent and not yet received: from, to, chunk.
type Message = (usize, usize, usize);

fn span(lot: &mut Lot, buffers: &[Buffer]) -> Span {
    Span { buffer: buffers[lot.below(buffers.len())], chunk: lot.below(CHUNKS) }
}

/// Random steps. Sends and receives come in pairs, the receive somewhat later than the send, so
/// that many of these schedules complete. Their results mean nothing.
pub(crate) fn random(world: usize, events: usize, chunks: Chunks, lot: &mut Lot) -> Vec<Schedule> {
    let mut steps = vec![Vec::new(); world];
    let mut under_way: Vec<Message> = Vec::new();
    for _ in 0..events {
        let rank = lot.below(world);
        let from = span(lot, &READABLE);
        match lot.below(4) {
            0 => steps[rank].push(Step::Copy { from, into: target(from.chunk, chunks, lot) }),
            1 => steps[rank].push(Step::Reduce { from, into: target(from.chunk, chunks, lot) }),
            _ => send(rank, from, &mut steps, &mut under_way, lot),
        }
        while under_way.len() > 1 + lot.below(4) {
            receive(&mut steps, &mut under_way, chunks, lot);
        }
    }
    while !under_way.is_empty() {
        receive(&mut steps, &mut under_way, chunks, lot);
    }
    let schedule = |steps| Schedule { chunks: CHUNKS, scratch: CHUNKS, steps };
    steps.into_iter().map(schedule).collect()
}

fn target(chunk: usize, chunks: Chunks, lot: &mut Lot) -> Span {
    let into = span(lot, &WRITABLE);
    if chunks == Chunks::Aligned { Span { chunk, ..into } } else { into }
}

/// Sends a chunk to one rank or to several, perhaps twice to the same rank.
fn send(
    rank: usize,
    from: Span,
    steps: &mut [Vec<Step>],
    under_way: &mut Vec<Message>,
    lot: &mut Lot,
) {
    let world = steps.len();
    for _ in 0..1 + lot.below(4) / 2 {
        let to = (rank + 1 + lot.below(world - 1)) % world;
        steps[rank].push(Step::Send { from, to });
        under_way.push((rank, to, from.chunk));
    }
}

fn receive(steps: &mut [Vec<Step>], under_way: &mut Vec<Message>, chunks: Chunks, lot: &mut Lot) {
    let drawn = under_way[lot.below(under_way.len())];
    // Messages on a link arrive in order, so the first one is received first.
    let first = under_way
        .iter()
        .position(|(from, to, _)| (*from, *to) == (drawn.0, drawn.1))
        .expect("it is there");
    let (from, to, chunk) = under_way.remove(first);
    let into = target(chunk, chunks, lot);
    let step =
        if lot.below(2) == 0 { Step::Recv { into, from } } else { Step::RecvReduce { into, from } };
    steps[to].push(step);
}
