//! The law of schedules, implemented once: in what order steps may happen.
//!
//! Every reader of all ranks' schedules together uses this walk. The walk takes each rank's steps
//! strictly in list order over links that hold nothing, which is the weakest of all executors:
//! schedules that complete here complete on every executor.

use crate::schedule::{Placement, Schedule, Span, Step, Symmetry};
use std::collections::{HashMap, VecDeque};

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
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{}", sentence(waiting, unreceived))]
pub struct Stuck {
    /// Ranks that wait, each with the step at which it waits.
    pub waiting: Vec<(usize, usize)>,
    /// Links with messages that were never received: (from, to).
    pub unreceived: Vec<(usize, usize)>,
}

/// The most waits and messages that an error names.
const MOST_NAMED: usize = 64;

fn sentence(waiting: &[(usize, usize)], unreceived: &[(usize, usize)]) -> String {
    let waiting =
        waiting.iter().map(|(rank, step)| format!("rank {rank} waits at its step {step} for ever"));
    let unreceived =
        unreceived.iter().map(|(from, to)| format!("rank {to} never takes what rank {from} sent"));
    let mut all: Vec<String> = waiting.chain(unreceived).collect();
    let more = all.split_off(all.len().min(MOST_NAMED)).len();
    all.extend((more > 0).then(|| format!("and {more} more")));
    all.join("; ")
}

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
    walk_board(schedules, (Symmetry::Rotation, 1), placement, meaning)
}

/// [`walk`] by the schedules of the first board's ranks alone, from which those of all `boards` follow by
/// `symmetry`: a message to another board is taken as the one that its sender's counterpart sends to this board.
///
/// `from` of [`Meaning::receive`] is the true sender. Its message was made for the sender's counterpart on the
/// first board, whose steps and spans correspond.
///
/// ```
/// use maypole::schedule::walk::{Meaning, walk_board};
/// use maypole::schedule::{Placement, Span, Symmetry, collective::Collective};
/// use maypole::algorithms::Algorithm;
///
/// /// The ranks that rank 0 receives from.
/// struct Senders(Vec<usize>);
///
/// impl Meaning for Senders {
///     type Message = ();
///     fn send(&mut self, _: usize, _: usize, _: Span, _: usize) {}
///     fn receive(&mut self, _: usize, _: usize, _: Span, from: usize, (): (), _: bool) {
///         self.0.push(from);
///     }
///     fn local(&mut self, _: usize, _: usize, _: Span, _: Span, _: bool) {}
/// }
///
/// let first = Algorithm::Pairwise.schedule(Collective::AllToAll, 4096, 0).unwrap();
/// let mut senders = Senders(Vec::new());
/// walk_board(&[first], (Symmetry::Rotation, 4096), Placement::Apart, &mut senders).unwrap();
/// assert_eq!((senders.0.len(), senders.0[0]), (4095, 4095));
/// ```
///
/// # Errors
/// As [`walk`].
///
/// # Panics
/// As [`walk`].
pub fn walk_board<M: Meaning>(
    schedules: &[Schedule],
    symmetry: (Symmetry, usize),
    placement: Placement,
    meaning: &mut M,
) -> Result<(), Stuck> {
    let mut walker = Walker {
        schedules,
        symmetry,
        placement,
        at: vec![0; schedules.len()],
        links: Links { ends: HashMap::new(), entries: Vec::new(), free: Vec::new() },
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

/// A queue for each link that has messages. All queues share one list.
struct Links<T> {
    /// By link: its first and its last entry.
    ends: HashMap<(usize, usize), (u32, u32)>,
    /// Messages, each with the next entry of its link. Messages that were taken leave `None`.
    entries: Vec<(Option<T>, u32)>,
    /// The entries whose messages were taken.
    free: Vec<u32>,
}

impl<T> Links<T> {
    fn push(&mut self, link: (usize, usize), message: T) {
        let entry = self.free.pop().unwrap_or_else(|| {
            self.entries.push((None, 0));
            self.entries.len() as u32 - 1
        });
        self.entries[entry as usize].0 = Some(message);
        let (_, last) = self.ends.entry(link).or_insert((entry, entry));
        self.entries[*last as usize].1 = entry;
        *last = entry;
    }

    fn pop(&mut self, link: (usize, usize)) -> Option<T> {
        let ends = self.ends.get_mut(&link)?;
        let (first, last) = *ends;
        let (message, next) = &mut self.entries[first as usize];
        *ends = (*next, last);
        if first == last {
            self.ends.remove(&link);
        }
        self.free.push(first);
        message.take()
    }
}

struct Walker<'a, T> {
    schedules: &'a [Schedule],
    /// How the other boards follow, and how many boards there are in all.
    symmetry: (Symmetry, usize),
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
        let leaving = &self.leaving[rank];
        if step.writes().is_some_and(|span| leaving.contains_key(&span.in_place(self.placement))) {
            return false;
        }
        match step {
            Step::Send { from, to } => {
                let message = meaning.send(rank, nth, from, to);
                self.post(rank, to, from, message);
            }
            Step::Recv { into, from } | Step::RecvReduce { into, from } => {
                let Some(message) = self.take(from, rank) else { return false };
                let reduce = matches!(step, Step::RecvReduce { .. });
                meaning.receive(rank, nth, into, from, message, reduce);
            }
            Step::Copy { from, into } => meaning.local(rank, nth, from, into, false),
            Step::Reduce { from, into } => meaning.local(rank, nth, from, into, true),
        }
        self.at[rank] += 1;
        true
    }

    fn post(&mut self, rank: usize, to: usize, span: Span, message: T) {
        let (width, world) = self.size();
        assert!(to < world, "rank {rank} sends to rank {to} of {world}");
        self.links.push((rank, to), (span, message));
        *self.leaving[rank].entry(span.in_place(self.placement)).or_default() += 1;
        self.wake(to % width);
    }

    fn take(&mut self, from: usize, rank: usize) -> Option<T> {
        let (width, world) = self.size();
        assert!(from < world, "rank {rank} receives from rank {from} of {world}");
        let (symmetry, boards) = self.symmetry;
        let [to, from] = symmetry.moved([rank, from], 0, (boards, width));
        let (span, message) = self.links.pop((from, to))?;
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

    /// How many ranks the board has, and how many there are in all.
    fn size(&self) -> (usize, usize) {
        (self.schedules.len(), self.schedules.len() * self.symmetry.1)
    }

    fn wake(&mut self, rank: usize) {
        if !std::mem::replace(&mut self.queued[rank], true) {
            self.ready.push_back(rank);
        }
    }

    fn end(&self) -> Result<(), Stuck> {
        let waiting: Vec<_> = (0..self.schedules.len())
            .filter(|&r| self.at[r] < self.schedules[r].steps.len())
            .map(|r| (r, self.at[r]))
            .collect();
        let mut unreceived: Vec<_> = self.links.ends.keys().copied().collect();
        unreceived.sort_unstable();
        if waiting.is_empty() && unreceived.is_empty() {
            Ok(())
        } else {
            Err(Stuck { waiting, unreceived })
        }
    }
}
