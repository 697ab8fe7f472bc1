//! The order in which folds run: the send that each receive takes, and the number of hops before
//! each fold.

use super::folds::{FusedFolds, SpanIndex};
use crate::labels;
use crate::schedule::Symmetry;
use crate::schedule::hosts::Boards;

/// The send that each receive takes.
pub(super) struct Matching {
    /// By place of a source: the fold that sends it, if it is remote.
    sent: Vec<u32>,
    /// By place of a receiver: the fold that receives it, and the place of its source.
    taken: Vec<(u32, u32)>,
    /// All messages, link by link, and those of a link in their order.
    messages: Vec<Message>,
}

/// A message, and the folds at its ends.
#[derive(Clone, Copy)]
struct Message {
    from: u32,
    to: u32,
    sent: u32,
    taken: u32,
}

/// One end of a message.
#[derive(Clone, Copy, Default)]
struct MessagePlace {
    /// The rank at the other end.
    peer: u32,
    fold: u32,
    /// The place among all sources or all receivers.
    place: u32,
}

impl Matching {
    /// Counts along the links: the n-th receive from a peer is the n-th send of that peer to us.
    /// `None` if a receive has no send or a send no receive.
    pub(super) fn new(folds: &FusedFolds) -> Option<Self> {
        Self::of_sends(folds, sends(folds, |ends| ends))
    }

    /// The same, where `folds` are those of one board, and those of the others follow by
    /// `symmetry`. For each message from this board to another, a rank sends the same message to
    /// this board, at the same place of its list. So both ends of a message are folds of this
    /// board.
    pub(super) fn of_board(
        folds: &FusedFolds,
        boards: &Boards,
        symmetry: Symmetry,
    ) -> Option<Self> {
        let width = folds.ranks().len();
        let home = folds.ranks().start / width;
        let moved = |ends| symmetry.moved(ends, home, (boards.count(), width));
        Self::of_sends(folds, sends(folds, moved))
    }

    fn of_sends(
        folds: &FusedFolds,
        (starts, mut sends): (Vec<u32>, Vec<MessagePlace>),
    ) -> Option<Self> {
        let receivers = folds.all_to().len();
        let mut matching = Self {
            sent: vec![u32::MAX; folds.all_sources().len()],
            taken: vec![(u32::MAX, u32::MAX); receivers],
            messages: Vec::with_capacity(receivers),
        };
        let mut receives = Vec::new();
        for (nth, rank) in folds.ranks().enumerate() {
            receives.clear();
            receives.extend(receives_of(folds, rank));
            let sends = &mut sends[starts[nth] as usize..starts[nth + 1] as usize];
            // By sender, and those of a sender in their order.
            receives.sort_by_key(|receive: &MessagePlace| receive.peer);
            sends.sort_by_key(|send| send.peer);
            if sends.len() != receives.len() {
                return None;
            }
            for (send, receive) in sends.iter().zip(&receives) {
                if send.peer != receive.peer {
                    return None;
                }
                let sent = send.fold;
                let taken = receive.fold;
                matching.sent[receive.place as usize] = sent;
                matching.taken[send.place as usize] = (taken, receive.place);
                matching.messages.push(Message { from: send.peer, to: rank as u32, sent, taken });
            }
        }
        Some(matching)
    }

    /// By place of a source: the fold that sends it.
    pub(super) fn sent(&self, place: usize) -> usize {
        self.sent[place] as usize
    }

    /// By place of a receiver: the fold that receives it.
    pub(super) fn taken(&self, place: usize) -> usize {
        self.taken[place].0 as usize
    }

    /// By place of a receiver: the place of the source that stands for the same message.
    pub(super) fn source(&self, place: usize) -> usize {
        self.taken[place].1 as usize
    }

    /// The remote sources of `fold`, in order: (peer, the peer's fold).
    pub(super) fn senders<'a>(
        &'a self,
        folds: &'a FusedFolds,
        fold: usize,
    ) -> impl Iterator<Item = (usize, usize)> + 'a {
        folds.source_places(fold).filter_map(|place| {
            let peer = folds.all_sources()[place].sender()?;
            Some((peer, self.sent(place)))
        })
    }
}

/// The sends of all `folds` by receiver, in their order; and the start offset of those to each
/// receiver. `moved` maps sender and receiver.
fn sends(
    folds: &FusedFolds,
    moved: impl Fn([usize; 2]) -> [usize; 2],
) -> (Vec<u32>, Vec<MessagePlace>) {
    let first = folds.ranks().start;
    let moved = &moved;
    let of_rank = |rank: usize| {
        folds.of(rank).flat_map(move |fold| {
            folds.to_places(fold).map(move |place| {
                let [from, to] = moved([rank, folds.all_to()[place] as usize]);
                (
                    to - first,
                    MessagePlace { peer: from as u32, fold: fold as u32, place: place as u32 },
                )
            })
        })
    };
    labels::sorted(folds.ranks().len(), folds.ranks().flat_map(of_rank))
}

fn receives_of(folds: &FusedFolds, rank: usize) -> impl Iterator<Item = MessagePlace> {
    folds.of(rank).flat_map(move |fold| {
        folds.source_places(fold).filter_map(move |place| {
            let peer = folds.all_sources()[place].sender()? as u32;
            Some(MessagePlace { peer, fold: fold as u32, place: place as u32 })
        })
    })
}

/// The number of hops before each fold: the skew of the software pipeline. `None` if windows that
/// overlap in this way would overtake one another on some link; then windows must run one after
/// another.
///
/// Conflicts are those of the in-place call, which has the most: publications must not depend on
/// placement. `index` numbers spans accordingly. The world has `world` ranks.
pub(super) fn stages(
    folds: &FusedFolds,
    matching: &Matching,
    world: usize,
    index: SpanIndex,
) -> Option<Vec<u32>> {
    let ranks = folds.ranks();
    let mut staging = Staging::new(folds, world, index);
    let mut moved = true;
    while std::mem::take(&mut moved) {
        for (nth, rank) in ranks.clone().enumerate() {
            let end = folds.of(rank).end;
            while staging.at[nth] < end && staging.step(nth, folds, matching) {
                moved = true;
            }
        }
    }
    let mut all = ranks.enumerate();
    let complete = all.all(|(nth, rank)| staging.at[nth] == folds.of(rank).end);
    (complete && keeps_link_order(matching, &staging.stages)).then_some(staging.stages)
}

/// The stages so far, and the stages that a later fold must not precede.
struct Staging {
    index: SpanIndex,
    world: usize,
    /// By rank, from the first one on: the fold that it is at.
    at: Vec<usize>,
    /// By fold.
    stages: Vec<u32>,
    /// By rank and span.
    written: Vec<u32>,
    read: Vec<u32>,
    /// By rank and peer.
    sent: Vec<u32>,
    taken: Vec<u32>,
}

/// The fold has no stage yet.
const UNKNOWN: u32 = u32::MAX;

impl Staging {
    fn new(folds: &FusedFolds, world: usize, index: SpanIndex) -> Self {
        let ranks = folds.ranks();
        let count = ranks.len();
        Self {
            index,
            world,
            at: ranks.map(|rank| folds.of(rank).start).collect(),
            stages: vec![UNKNOWN; folds.len()],
            written: vec![0; count * index.len()],
            read: vec![0; count * index.len()],
            sent: vec![0; count * world],
            taken: vec![0; count * world],
        }
    }

    /// Gives the next fold of the rank at place `rank` its stage; false if a sender has none yet.
    fn step(&mut self, rank: usize, folds: &FusedFolds, matching: &Matching) -> bool {
        let fold = self.at[rank];
        let mut stage = 0;
        for (peer, sent) in matching.senders(folds, fold) {
            let before = self.stages[sent];
            if before == UNKNOWN {
                return false;
            }
            stage = stage.max(before + 1).max(self.taken[rank * self.world + peer]);
        }
        let index = self.index;
        let span = |span| rank * index.len() + index.of(span);
        let into = folds.stored(fold).map(span);
        let to = folds.to(fold).iter().map(|peer| rank * self.world + *peer as usize);
        stage = folds.reads(fold).fold(stage, |stage, read| stage.max(self.written[span(read)]));
        stage = into.map_or(stage, |into| stage.max(self.written[into]).max(self.read[into]));
        stage = to.clone().fold(stage, |stage, link| stage.max(self.sent[link]));
        // A later fold that reads may have a lower stage than an earlier one. A fold that writes
        // waits for all of them.
        for read in folds.reads(fold) {
            let read = &mut self.read[span(read)];
            *read = stage.max(*read);
        }
        into.iter().for_each(|into| self.written[*into] = stage);
        to.for_each(|link| self.sent[link] = stage);
        folds.remotes(fold).for_each(|peer| self.taken[rank * self.world + peer] = stage);
        self.stages[fold] = stage;
        self.at[rank] += 1;
        true
    }
}

/// True if both ends of every link see its messages in the same order while windows overlap: all
/// messages of a link have the same delay in stages.
fn keeps_link_order(matching: &Matching, stages: &[u32]) -> bool {
    let delay = |message: &Message| stages[message.taken as usize] - stages[message.sent as usize];
    matching.messages.windows(2).all(|pair| {
        let same_link = (pair[0].from, pair[0].to) == (pair[1].from, pair[1].to);
        !same_link || delay(&pair[0]) == delay(&pair[1])
    })
}

/// The folds of each rank by stage, then in the order of its schedule: which is the executor's
/// order.
pub(super) fn by_stage(folds: &FusedFolds, stages: &[u32]) -> Vec<u32> {
    let mut order: Vec<u32> = (0..folds.len() as u32).collect();
    for rank in folds.ranks() {
        order[folds.of(rank)].sort_by_key(|fold| stages[*fold as usize]);
    }
    order
}
