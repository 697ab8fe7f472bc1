//! The law of schedules, implemented once: in what order steps may happen.
//!
//! Every reader of all ranks' schedules together uses this walk. The walk takes each rank's steps
//! strictly in list order over links that hold nothing, which is the weakest of all executors:
//! schedules that complete here complete on every executor.

use crate::schedule::{Placement, Schedule, Span, Step};
use std::collections::{HashMap, VecDeque};
use std::fmt;

/// The meaning of a step to one reader: symbols, clocks, numbers.
///
/// `rank` is the rank that takes the step, and `step` is the step's place in that rank's list.
pub trait Meaning {
    /// The content of a message.
    type Message;

    /// `rank` posts `from` to `to`. The content is fixed now, because the law forbids writing the
    /// span until the message is taken.
    fn send(&mut self, rank: usize, step: usize, from: Span, to: usize) -> Self::Message;

    /// `rank` takes `message` of rank `from` into `into`: it overwrites the span, or is reduced
    /// with its content.
    fn receive(
        &mut self,
        rank: usize,
        step: usize,
        into: Span,
        from: usize,
        message: Self::Message,
        reduce: bool,
    );

    /// `rank` copies `from` to `into`, or reduces `from` into `into`.
    fn local(&mut self, rank: usize, step: usize, from: Span, into: Span, reduce: bool);
}

/// Why a walk could not end.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Stuck {
    /// Ranks that wait, each with the step at which it waits.
    pub waiting: Vec<(usize, usize)>,
    /// Links with messages that were never received: (from, to).
    pub unreceived: Vec<(usize, usize)>,
}

impl fmt::Display for Stuck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let waiting = self
            .waiting
            .iter()
            .map(|(rank, step)| format!("rank {rank} waits at its step {step} for ever"));
        let unreceived = self
            .unreceived
            .iter()
            .map(|(from, to)| format!("rank {to} never takes what rank {from} sent"));
        f.write_str(&waiting.chain(unreceived).collect::<Vec<_>>().join("; "))
    }
}

impl std::error::Error for Stuck {}

/// Takes every step that may be taken, until no step is left.
///
/// Each rank's steps are taken in the order of its list. The order between ranks is not specified
/// and cannot matter: a step reads the same content and takes the same message in every such order.
///
/// ```
/// use maypole::algorithms::Algorithm;
/// use maypole::schedule::collective::Collective;
/// use maypole::schedule::{Placement, Span};
/// use maypole::schedule::walk::{Meaning, walk};
///
/// /// Counts messages and reductions.
/// struct Counts { messages: usize, reductions: usize }
///
/// impl Meaning for Counts {
///     type Message = ();
///     fn send(&mut self, _: usize, _: usize, _: Span, _: usize) {
///         self.messages += 1;
///     }
///     fn receive(&mut self, _: usize, _: usize, _: Span, _: usize, (): (), reduce: bool) {
///         self.reductions += usize::from(reduce);
///     }
///     fn local(&mut self, _: usize, _: usize, _: Span, _: Span, reduce: bool) {
///         self.reductions += usize::from(reduce);
///     }
/// }
///
/// let ring = Algorithm::Ring.schedules(Collective::AllReduce, 4).unwrap();
/// let mut counts = Counts { messages: 0, reductions: 0 };
/// walk(&ring, Placement::Apart, &mut counts).unwrap();
/// assert_eq!((counts.messages, counts.reductions), (4 * 6, 4 * 3));
/// ```
///
/// # Errors
/// [`Stuck`] if ranks deadlock, or if a message is never taken.
///
/// # Panics
/// If a step names a rank outside the world.
pub fn walk<M: Meaning>(
    schedules: &[Schedule],
    placement: Placement,
    meaning: &mut M,
) -> Result<(), Stuck> {
    let mut walker = Walker {
        schedules,
        placement,
        at: vec![0; schedules.len()],
        links: Links::new(schedules.len()),
        leaving: vec![HashMap::new(); schedules.len()],
        ready: (0..schedules.len()).collect(),
        queued: vec![true; schedules.len()],
    };
    while let Some(rank) = walker.ready.pop_front() {
        walker.queued[rank] = false;
        while walker.step(rank, meaning) {}
    }
    walker.end()
}

/// A queue for each link. All queues share one list, because most links of a world are never used.
struct Links<T> {
    /// By link: its first and its last entry, if it has any.
    ends: Vec<Option<(u32, u32)>>,
    /// Messages, each with the next entry of its link. Messages that were taken leave `None`.
    entries: Vec<(Option<T>, u32)>,
}

impl<T> Links<T> {
    fn new(world: usize) -> Self {
        Self { ends: vec![None; world * world], entries: Vec::new() }
    }

    fn push(&mut self, link: usize, message: T) {
        let entry = self.entries.len() as u32;
        self.entries.push((Some(message), entry));
        match &mut self.ends[link] {
            Some((_, last)) => {
                self.entries[*last as usize].1 = entry;
                *last = entry;
            }
            none => *none = Some((entry, entry)),
        }
    }

    fn pop(&mut self, link: usize) -> Option<T> {
        let (first, last) = self.ends[link]?;
        let (message, next) = &mut self.entries[first as usize];
        self.ends[link] = (first != last).then_some((*next, last));
        message.take()
    }

    fn is_empty(&self, link: usize) -> bool {
        self.ends[link].is_none()
    }
}

struct Walker<'a, T> {
    schedules: &'a [Schedule],
    placement: Placement,
    /// The step each rank is at.
    at: Vec<usize>,
    /// Messages that were posted and not received, by (from, to).
    links: Links<(Span, T)>,
    /// By rank: how many messages of a span, as it lies in memory, were posted and not taken.
    leaving: Vec<HashMap<Span, u32>>,
    /// Ranks that may be able to continue.
    ready: VecDeque<usize>,
    queued: Vec<bool>,
}

impl<T> Walker<'_, T> {
    /// Takes the next step of `rank`; false if it must wait or is done.
    fn step<M: Meaning<Message = T>>(&mut self, rank: usize, meaning: &mut M) -> bool {
        let nth = self.at[rank];
        let Some(&step) = self.schedules[rank].steps.get(nth) else { return false };
        if step.writes().is_some_and(|span| self.is_leaving(rank, span)) {
            return false;
        }
        match step {
            Step::Send { from, to } => {
                let message = meaning.send(rank, nth, from, to);
                self.post(rank, to, from, message);
            }
            Step::Recv { into, from } | Step::RecvReduce { into, from } => {
                let Some(message) = self.take(from, rank) else { return false };
                meaning.receive(
                    rank,
                    nth,
                    into,
                    from,
                    message,
                    matches!(step, Step::RecvReduce { .. }),
                );
            }
            Step::Copy { from, into } => meaning.local(rank, nth, from, into, false),
            Step::Reduce { from, into } => meaning.local(rank, nth, from, into, true),
        }
        self.at[rank] += 1;
        true
    }

    fn is_leaving(&self, rank: usize, span: Span) -> bool {
        self.leaving[rank].contains_key(&span.in_place(self.placement))
    }

    fn post(&mut self, rank: usize, to: usize, span: Span, message: T) {
        assert!(
            to < self.schedules.len(),
            "rank {rank} sends to rank {to} of {}",
            self.schedules.len()
        );
        self.links.push(rank * self.schedules.len() + to, (span, message));
        *self.leaving[rank].entry(span.in_place(self.placement)).or_default() += 1;
        self.wake(to);
    }

    fn take(&mut self, from: usize, rank: usize) -> Option<T> {
        assert!(
            from < self.schedules.len(),
            "rank {rank} receives from rank {from} of {}",
            self.schedules.len()
        );
        let (span, message) = self.links.pop(from * self.schedules.len() + rank)?;
        let span = span.in_place(self.placement);
        let posted = self.leaving[from].get_mut(&span);
        let posted = posted.expect("the span of a message on a link is in `leaving`");
        *posted -= 1;
        if *posted == 0 {
            self.leaving[from].remove(&span);
        }
        self.wake(from);
        Some(message)
    }

    fn wake(&mut self, rank: usize) {
        if !std::mem::replace(&mut self.queued[rank], true) {
            self.ready.push_back(rank);
        }
    }

    fn end(&self) -> Result<(), Stuck> {
        let world = self.schedules.len();
        let waiting: Vec<_> = (0..world)
            .filter(|&r| self.at[r] < self.schedules[r].steps.len())
            .map(|r| (r, self.at[r]))
            .collect();
        let unreceived: Vec<_> = (0..world * world)
            .filter(|&l| !self.links.is_empty(l))
            .map(|l| (l / world, l % world))
            .collect();
        if waiting.is_empty() && unreceived.is_empty() {
            Ok(())
        } else {
            Err(Stuck { waiting, unreceived })
        }
    }
}
