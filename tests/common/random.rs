//! Random schedules.

use maypole::schedule::{Buffer, Schedule, Span, Step};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};

/// The number of chunks of every buffer of a random schedule.
pub const CHUNKS: usize = 3;

/// Which chunks a step may join.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Chunks {
    /// Any two chunks, so all must be equally long.
    Mixed,
    /// Two chunks with the same number, as in most collectives.
    Aligned,
}

const READABLE: [Buffer; 3] = [Buffer::Input, Buffer::Output, Buffer::Scratch];
const WRITABLE: [Buffer; 2] = [Buffer::Output, Buffer::Scratch];

/// A message that was sent and not yet received.
struct Message {
    from: usize,
    to: usize,
    chunk: usize,
}

/// A step of one rank, and how many messages may be in flight after it.
#[derive(Clone, Debug)]
struct Event {
    rank: usize,
    from: Span,
    action: Action,
    in_flight: usize,
}

#[derive(Clone, Debug)]
enum Action {
    Copy(Span),
    Reduce(Span),
    /// To these ranks, counted from the sender; one of them may be there twice.
    Send(Vec<usize>),
}

/// A receive: which message in flight, where to, and whether it reduces.
type Receive = (Index, Span, bool);

fn spans(buffers: &'static [Buffer]) -> impl Strategy<Value = Span> {
    (select(buffers), 0..CHUNKS).prop_map(|(buffer, chunk)| Span { buffer, chunk })
}

fn actions(world: usize) -> impl Strategy<Value = Action> {
    prop_oneof![
        1 => spans(&WRITABLE).prop_map(Action::Copy),
        1 => spans(&WRITABLE).prop_map(Action::Reduce),
        2 => vec(1..world, 1..=2).prop_map(Action::Send),
    ]
}

/// Random schedules of `world` ranks with `events` steps other than receives. A receive follows
/// somewhat later than its send, so that many of the schedules complete. Their results mean
/// nothing.
pub fn schedules(
    world: usize,
    events: usize,
    chunks: Chunks,
) -> impl Strategy<Value = Vec<Schedule>> {
    let event = (0..world, spans(&READABLE), actions(world), 1..=4_usize)
        .prop_map(|(rank, from, action, in_flight)| Event { rank, from, action, in_flight });
    let receive = (any::<Index>(), spans(&WRITABLE), any::<bool>());
    // Every event sends two messages at most.
    (vec(event, events), vec(receive, 2 * events))
        .prop_map(move |(events, receives)| build(world, chunks, events, receives))
}

fn build(
    world: usize,
    chunks: Chunks,
    events: Vec<Event>,
    receives: Vec<Receive>,
) -> Vec<Schedule> {
    let mut steps = vec![Vec::new(); world];
    let mut in_flight: Vec<Message> = Vec::new();
    let mut receives = receives.into_iter();
    for Event { rank, from, action, in_flight: most } in events {
        match action {
            Action::Copy(into) => {
                steps[rank].push(Step::Copy { from, into: target(from.chunk, chunks, into) });
            }
            Action::Reduce(into) => {
                steps[rank].push(Step::Reduce { from, into: target(from.chunk, chunks, into) });
            }
            Action::Send(receivers) => {
                for to in receivers.into_iter().map(|distance| (rank + distance) % world) {
                    steps[rank].push(Step::Send { from, to });
                    in_flight.push(Message { from: rank, to, chunk: from.chunk });
                }
            }
        }
        while in_flight.len() > most {
            receive(&mut steps, &mut in_flight, chunks, receives.next().expect("one a message"));
        }
    }
    while !in_flight.is_empty() {
        receive(&mut steps, &mut in_flight, chunks, receives.next().expect("one a message"));
    }
    let schedule = |steps| Schedule { chunks: CHUNKS, scratch: CHUNKS, steps };
    steps.into_iter().map(schedule).collect()
}

/// `into`, or the chunk of the same buffer that may be joined with `chunk`.
fn target(chunk: usize, chunks: Chunks, into: Span) -> Span {
    if chunks == Chunks::Aligned { Span { chunk, ..into } } else { into }
}

/// Draws a message, and receives the oldest message of its link: links keep their order.
fn receive(
    steps: &mut [Vec<Step>],
    in_flight: &mut Vec<Message>,
    chunks: Chunks,
    (index, into, reduces): Receive,
) {
    let drawn = &in_flight[index.index(in_flight.len())];
    let same_link = |message: &Message| (message.from, message.to) == (drawn.from, drawn.to);
    let oldest = in_flight.iter().position(same_link).expect("the drawn one is on its link");
    let Message { from, to, chunk } = in_flight.remove(oldest);
    let into = target(chunk, chunks, into);
    steps[to].push(match reduces {
        true => Step::RecvReduce { into, from },
        false => Step::Recv { into, from },
    });
}
