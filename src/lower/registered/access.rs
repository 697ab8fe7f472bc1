//! How each message becomes an access to registered memory.
//!
//! A fold that sends leaves its result where it lies, and its receiver reads it there (a *pull*); or
//! it writes its result to where its receiver would store it (a *push*). Either way a message
//! without payload says when. Where input stays as it is during the call, not even that is needed:
//! it is *lent* from the start.

use super::fold::{FoldId, ReachFold, ReachSource, forget_dead_stores, fused};
use crate::schedule::hosts::ReachedMemory;
use crate::schedule::{Buffer, Placement, Schedule, Span};
use std::collections::{HashMap, VecDeque};

/// How one message becomes an access to registered memory.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Access {
    /// The receiver reads this span of the sender.
    Pull(Span),
    /// As `Pull`, without a message.
    Lend(Span),
    /// The sender writes to this span of the receiver.
    Push(Span),
}

/// All ranks' folds on memory that others reach by `access`, if `placement` is the placement of
/// every rank; `None` if a result is passed on that lies in no such memory, or bytes are combined
/// that can only be copied.
pub(super) fn reach_registered(
    schedules: &[Schedule],
    placement: Placement,
    access: ReachedMemory,
) -> Option<Vec<Vec<ReachFold>>> {
    let all: Vec<Vec<ReachFold>> = schedules.iter().map(fused).collect();
    let messages = FoldMessages::new(&all, placement)?;
    let accesses = messages.accesses(access)?;
    Some(messages.rewritten(&accesses))
}

/// A message from a fold to a source of another fold.
#[derive(Clone, Copy, Debug)]
struct FoldMessage {
    from: FoldId,
    to: FoldId,
}

struct FoldMessages<'a> {
    all: &'a [Vec<ReachFold>],
    placement: Placement,
    /// All messages, by receiver, fold and source.
    list: Vec<FoldMessage>,
    /// By rank: the first message that it takes in `list`.
    taken: Vec<usize>,
    /// By fold that sends: its messages in `list`.
    sent: HashMap<FoldId, Vec<usize>>,
}

impl<'a> FoldMessages<'a> {
    /// Counts along the links: the n-th receive from a peer is the n-th send of that peer to us.
    /// `None` if a receive has no send.
    fn new(all: &'a [Vec<ReachFold>], placement: Placement) -> Option<Self> {
        let mut links: HashMap<(usize, usize), VecDeque<usize>> = HashMap::new();
        for (rank, folds) in all.iter().enumerate() {
            for (at, fold) in folds.iter().enumerate() {
                for to in &fold.to {
                    links.entry((rank, *to)).or_default().push_back(at);
                }
            }
        }
        let mut messages = Self {
            all,
            placement,
            list: Vec::new(),
            taken: Vec::with_capacity(all.len() + 1),
            sent: HashMap::new(),
        };
        for (rank, folds) in all.iter().enumerate() {
            messages.taken.push(messages.list.len());
            for (at, fold) in folds.iter().enumerate() {
                for source in &fold.sources {
                    let ReachSource::Message(peer) = *source else { continue };
                    let from = (peer, links.get_mut(&(peer, rank))?.pop_front()?);
                    messages.sent.entry(from).or_default().push(messages.list.len());
                    messages.list.push(FoldMessage { from, to: (rank, at) });
                }
            }
        }
        messages.taken.push(messages.list.len());
        Some(messages)
    }

    fn fold(&self, (rank, at): FoldId) -> &'a ReachFold {
        &self.all[rank][at]
    }

    /// How many messages a rank takes.
    fn takes(&self, rank: usize) -> usize {
        self.taken[rank + 1] - self.taken[rank]
    }

    /// How many messages a rank sends.
    fn sends(&self, rank: usize) -> usize {
        self.all[rank].iter().map(|fold| fold.to.len()).sum()
    }

    /// The access of each message.
    fn accesses(&self, by: ReachedMemory) -> Option<Vec<Access>> {
        let sends: Vec<usize> = (0..self.all.len()).map(|rank| self.sends(rank)).collect();
        let moved = self.list.iter().map(|message| match by {
            ReachedMemory::Registered => self.push_or_pull(*message, &sends),
            ReachedMemory::Copied => self.pull(*message),
        });
        let mut accesses = moved.collect::<Option<Vec<Access>>>()?;
        for at in 0..accesses.len() {
            if let Access::Pull(span) = accesses[at]
                && self.is_lent(self.list[at], span, &accesses)
            {
                accesses[at] = Access::Lend(span);
            }
        }
        Some(accesses)
    }

    /// A reduction is pushed, because its writer has it in registers. A copy is made by whichever
    /// rank has fewer of them to make.
    fn push_or_pull(&self, message: FoldMessage, sends: &[usize]) -> Option<Access> {
        let FoldMessage { from, to } = message;
        let home = self.fold(from).home();
        let is_reduction = self.fold(from).sources.len() > 1;
        let receiver_is_busier = self.takes(to.0) > sends[from.0];
        if (is_reduction || receiver_is_busier || home.is_none())
            && let Some(into) = self.pushed_to(message)
        {
            return Some(Access::Push(into));
        }
        home.map(Access::Pull)
    }

    /// The whole message is copied to where the receiver stores it.
    fn pull(&self, message: FoldMessage) -> Option<Access> {
        let FoldMessage { from, to } = message;
        let is_copy = self.fold(to).sources.len() == 1 && self.fold(to).into.is_some();
        self.fold(from).home().filter(|_| is_copy).map(Access::Pull)
    }

    /// Where the sender may write: to the output of a receiver that has not touched the place
    /// before, except to have the sending fold itself read it.
    fn pushed_to(&self, message: FoldMessage) -> Option<Span> {
        let (receiver, taken) = message.to;
        let fold = self.fold(message.to);
        let into = fold.into.filter(|into| into.buffer == Buffer::Output)?;
        let is_copy = fold.sources.len() == 1;
        let untouched = self.all[receiver][..taken].iter().enumerate().all(|(at, earlier)| {
            let touches = earlier.reads(into, self.placement)
                || earlier.into.is_some_and(|span| span.overlaps(into, self.placement));
            !touches || self.is_read_by((receiver, at), message.from)
        });
        (is_copy && untouched).then_some(into)
    }

    /// True if `fold` only sends, and `by` is its only reader.
    fn is_read_by(&self, fold: FoldId, by: FoldId) -> bool {
        let Some(sent) = self.sent.get(&fold) else { return false };
        let mut readers = sent.iter().map(|at| self.list[*at].to);
        self.fold(fold).into.is_none() && readers.all(|reader| reader == by)
    }

    /// True if `span` of the sender's input stays as it is until the receiver has read it: nobody
    /// overwrites it, except the reading fold itself.
    fn is_lent(&self, message: FoldMessage, span: Span, accesses: &[Access]) -> bool {
        let owner = message.from.0;
        let only_sends = self.fold(message.from).into.is_none();
        if !only_sends || span.buffer != Buffer::Input {
            return false;
        }
        self.all[owner].iter().enumerate().all(|(at, fold)| {
            let overwrites = fold.into.is_some_and(|into| into.overlaps(span, self.placement));
            if !overwrites || fold.is_self_copy(self.placement) {
                return true;
            }
            let mut taken = self.taken[owner]..self.taken[owner + 1];
            let pushed = taken.find(|nth| self.list[*nth].to == (owner, at));
            pushed.is_some_and(|nth| {
                matches!(accesses[nth], Access::Push(_)) && self.list[nth].from == message.to
            })
        })
    }

    fn rewritten(&self, accesses: &[Access]) -> Vec<Vec<ReachFold>> {
        let mut all = self.all.to_vec();
        all.iter_mut().flatten().for_each(|fold| fold.to.clear());
        let mut next = self.list.iter().zip(accesses);
        for source in all.iter_mut().flatten().flat_map(|fold| &mut fold.sources) {
            if matches!(source, ReachSource::Message(_)) {
                let (message, access) = next.next().expect("one message for each such source");
                *source = match *access {
                    Access::Pull(span) => ReachSource::Pulled(message.from, span),
                    Access::Lend(span) => ReachSource::Lent(message.from.0, span),
                    Access::Push(_) => ReachSource::Pushed(message.from),
                };
            }
        }
        for (message, access) in self.list.iter().zip(accesses) {
            let receiver = message.to.0;
            let sender = &mut all[message.from.0][message.from.1];
            match *access {
                Access::Lend(_) => {}
                Access::Pull(_) => sender.to.push(receiver),
                Access::Push(span) => {
                    sender.to.push(receiver);
                    sender.pushes.push((receiver, span));
                }
            }
        }
        finished(all, self.placement)
    }
}

/// Drops what is not needed any more, and adds the waits of folds that overwrite what other ranks
/// pull.
fn finished(mut all: Vec<Vec<ReachFold>>, placement: Placement) -> Vec<Vec<ReachFold>> {
    all.iter_mut().for_each(|folds| forget_dead_stores(folds));
    let is_kept = |fold: &ReachFold| fold.into.is_some() || !fold.to.is_empty();
    let mut places = HashMap::new();
    for (rank, folds) in all.iter().enumerate() {
        let kept = folds.iter().enumerate().filter(|(_, fold)| is_kept(fold));
        places.extend(kept.enumerate().map(|(place, (at, _))| ((rank, at), (rank, place))));
    }
    for folds in &mut all {
        folds.retain(is_kept);
        for source in folds.iter_mut().flat_map(|fold| &mut fold.sources) {
            if let ReachSource::Pulled(from, _) | ReachSource::Pushed(from) = source {
                *from = places[from];
            }
        }
        for at in 0..folds.len() {
            folds[at].drains = drains(&folds[..=at], placement);
        }
    }
    all
}

/// Folds before the last one whose readers must be done before the last one stores.
fn drains(folds: &[ReachFold], placement: Placement) -> Vec<usize> {
    let Some((fold, earlier)) = folds.split_last() else { return Vec::new() };
    let is_stored = !fold.is_pushed() && !fold.is_self_copy(placement);
    let Some(into) = fold.into.filter(|_| is_stored) else { return Vec::new() };
    let is_read = |(_, fold): &(usize, &ReachFold)| {
        fold.is_pulled() && fold.home().is_some_and(|home| home.overlaps(into, placement))
    };
    earlier.iter().enumerate().filter(is_read).map(|(at, _)| at).collect()
}
