//! How large publications are stored: by the kind of store that costs less here and now.
//!
//! # The problem
//!
//! A writer fills the same few slots again and again. Its readers have read them, so an ordinary store
//! first takes the line back from another core. On some machines that goes at 2 GB/s, on others at 10.
//! A store past the caches takes nothing back and runs at 30 GB/s there; but it goes to memory, from
//! where the readers fetch it, and on other machines that is slower. A virtual machine that is moved
//! changes from one to the other while it runs.
//!
//! # The idea
//!
//! The kind of store is the writer's own affair: bytes, plan and program are the same. So the writer
//! measures. Two publications of one shape in a row make a pair, the second of which is stored in the
//! other kind: a *trial*. Both folds are timed, and the difference counts. The writer notes in the line
//! of each publication of a pair that it is one, so that readers time the folds that read them, and tell
//! all ranks what the other kind costs them more, or less. The writer prefers the kind whose costs are
//! less for itself and its slowest reader together.
//!
//! One publication in [`PERIOD`] is a trial, or one in eight for a while after the current kind has
//! become much dearer. The median of the last five differences counts, so a rank that is interrupted
//! in the middle of a fold changes nothing.

use crate::lower::MAX_SOURCES;
use arrayvec::ArrayVec;
use maypole_kernels::{Reducer, Region, View, ViewMut};
use std::time::Duration;

/// Publications from this many bytes on are large. Shorter ones stay in the caches of the cores.
pub(super) const LARGE: usize = 16 << 10;

/// Large publications from one pair to the next.
const PERIOD: u32 = 80;
/// The same, for a few pairs at the beginning and after the current kind has become dear. One fold in
/// so many is timed to notice that.
const SHORT_PERIOD: u32 = 8;
/// Pairs that follow one another so.
const HURRIED_PAIRS: u32 = 5;
/// Large publications between two such times: with [`PERIOD`], trials are less than 2 % of all.
const CALM: u32 = 1024;
/// Differences that count; the median of them is compared.
const KEPT: usize = 5;
/// Fewer differences say nothing.
const FEWEST: usize = 3;
/// The other kind is chosen if it is cheaper by this part of the fold's time.
const MARGIN: f64 = 0.08;
/// The current kind has become dear if a fold takes so many times as long as before.
const DEAR: f64 = 1.5;

/// Bytes that are combined before they are copied past the caches.
const BLOCK: usize = 16 << 10;

/// A kind of store.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) enum StoreKind {
    #[default]
    Ordinary,
    PastCaches,
}

impl StoreKind {
    fn other(self) -> Self {
        match self {
            Self::Ordinary => Self::PastCaches,
            Self::PastCaches => Self::Ordinary,
        }
    }
}

/// What is known of one publication.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct StoreNote {
    pub(super) kind: StoreKind,
    /// Its part in a pair.
    part: PairPart,
    /// Its writer looks whether the current kind has become dear.
    is_watched: bool,
}

#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
enum PairPart {
    #[default]
    None,
    /// In the current kind.
    First,
    /// In the other kind.
    Trial,
}

impl StoreNote {
    /// True if the fold that stores it is timed, and where it is one of a pair, those that read it.
    pub(super) fn is_timed(self) -> bool {
        self.part != PairPart::None || self.is_watched
    }

    /// True if it is one of two that are compared.
    pub(super) fn is_in_pair(self) -> bool {
        self.part != PairPart::None
    }

    pub(super) fn to_word(self) -> u64 {
        let kind = u64::from(self.kind == StoreKind::PastCaches);
        kind << 2 | self.part as u64
    }

    /// Any word is a note.
    pub(super) fn from_word(word: u64) -> Self {
        let kind = if word & 4 == 0 { StoreKind::Ordinary } else { StoreKind::PastCaches };
        let part = match word & 3 {
            1 => PairPart::First,
            2 => PairPart::Trial,
            _ => PairPart::None,
        };
        Self { kind, part, is_watched: false }
    }
}

/// A fold of many bytes: where its result goes, and what is combined.
#[derive(Clone, Copy)]
pub(super) struct LargeFold<'a> {
    pub(super) into: Option<ViewMut<'a>>,
    pub(super) slot: Option<ViewMut<'a>>,
    pub(super) views: &'a [View<'a>],
    /// `into` is an output of which the caches hold little, and a copy of the one source.
    pub(super) past_caches: bool,
}

/// What two folds must have in common to be compared: the program, the bytes, the number of sources.
pub(super) type FoldShape = (u64, usize, usize);

/// How many nanoseconds a KiB takes longer if it is stored past the caches, in the last few pairs.
#[derive(Clone, Debug, Default)]
struct Differences {
    first: Option<(FoldShape, f64)>,
    last: [f64; KEPT],
    count: usize,
}

impl Differences {
    /// Takes the time of one fold of a pair. True if it completes the pair.
    fn note(&mut self, note: StoreNote, shape: FoldShape, time: Duration) -> bool {
        let cost = time.as_nanos() as f64 / (shape.1 as f64 / 1024.0);
        match note.part {
            PairPart::None => return false,
            PairPart::First => {
                self.first = Some((shape, cost));
                return false;
            }
            PairPart::Trial => {}
        }
        let Some((_, first)) = self.first.take().filter(|(of, _)| *of == shape) else {
            return false;
        };
        let past = if note.kind == StoreKind::PastCaches { cost - first } else { first - cost };
        self.last[self.count % KEPT] = past;
        self.count += 1;
        true
    }

    /// The median; `None` after too few pairs.
    fn median(&self) -> Option<f64> {
        let kept = self.count.min(KEPT);
        let mut last = self.last;
        let last = &mut last[..kept];
        last.sort_by(f64::total_cmp);
        (kept >= FEWEST).then(|| last[kept / 2])
    }
}

/// The choice of one rank, and what it rests on.
#[derive(Debug)]
pub(super) struct SlotStores {
    kind: StoreKind,
    /// What this rank loses as a writer, and as a reader, by stores past the caches.
    writing: Differences,
    reading: Differences,
    /// Nanoseconds that a KiB of a fold took in the current kind, as a running mean.
    usual: Option<f64>,
    /// Folds in a row that took much longer.
    dear: u32,
    /// Large publications until the next pair begins.
    until_pair: u32,
    /// Pairs that follow one another soon.
    hurried: u32,
    /// Large publications until pairs may hurry again.
    calm: u32,
    /// The shape of the first publication of a pair, whose second comes next.
    begun: Option<FoldShape>,
    counts: StoreCounts,
    /// Where a combination lies that is only published. Empty until there is one.
    scratch: Region,
}

/// Publications of one rank of 16 KiB and more, by how it stored them. It stores in the kind that costs
/// less by its measurements, and some in the other kind, to measure that.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct StoreCounts {
    /// By ordinary stores.
    pub ordinary: u64,
    /// Past the caches.
    pub past_caches: u64,
    /// Those among both that were stored in the kind that is not preferred.
    pub trials: u64,
}

impl StoreCounts {
    /// The publications since `other`, an earlier count of the same rank.
    pub(crate) fn less(self, other: Self) -> Self {
        Self {
            ordinary: self.ordinary - other.ordinary,
            past_caches: self.past_caches - other.past_caches,
            trials: self.trials - other.trials,
        }
    }
}

impl Default for SlotStores {
    fn default() -> Self {
        Self {
            kind: StoreKind::default(),
            writing: Differences::default(),
            reading: Differences::default(),
            usual: None,
            dear: 0,
            until_pair: SHORT_PERIOD,
            hurried: HURRIED_PAIRS,
            calm: CALM,
            begun: None,
            counts: StoreCounts::default(),
            scratch: Region::new(0),
        }
    }
}

impl SlotStores {
    /// Decides how the next large publication is stored.
    pub(super) fn next(&mut self, shape: FoldShape) -> StoreNote {
        self.calm = self.calm.saturating_sub(1);
        let is_watched = self.until_pair.is_multiple_of(SHORT_PERIOD);
        let (kind, part) = match self.begun.take() {
            Some(first) if first == shape => {
                self.counts.trials += 1;
                (self.kind.other(), PairPart::Trial)
            }
            _ if self.until_pair == 0 => {
                self.begun = Some(shape);
                self.until_pair = if self.hurried > 0 { SHORT_PERIOD } else { PERIOD };
                self.hurried = self.hurried.saturating_sub(1);
                (self.kind, PairPart::First)
            }
            _ => (self.kind, PairPart::None),
        };
        let note = StoreNote { kind, part, is_watched };
        self.until_pair = self.until_pair.saturating_sub(1);
        match note.kind {
            StoreKind::Ordinary => self.counts.ordinary += 1,
            StoreKind::PastCaches => self.counts.past_caches += 1,
        }
        note
    }

    /// Takes the time of the fold that stored a timed publication. `losses` are what the readers have
    /// told.
    pub(super) fn stored(
        &mut self,
        note: StoreNote,
        shape: FoldShape,
        time: Duration,
        losses: impl Iterator<Item = u64>,
    ) {
        if note.part != PairPart::Trial {
            self.compare_with_usual(time.as_nanos() as f64 / (shape.1 as f64 / 1024.0));
        }
        if !self.writing.note(note, shape, time) {
            return;
        }
        let Some(writing) = self.writing.median() else { return };
        let told = losses.filter(|word| *word != 0).map(loss_of_word);
        let reading = told.reduce(f64::max).unwrap_or(0.0);
        let more = writing + reading;
        let margin = MARGIN * self.usual.unwrap_or(0.0);
        let better = match self.kind {
            StoreKind::Ordinary => more < -margin,
            StoreKind::PastCaches => more > margin,
        };
        if better {
            self.kind = self.kind.other();
            self.usual = None;
        }
    }

    /// Begins a time of many trials if the current kind has become dear.
    fn compare_with_usual(&mut self, cost: f64) {
        let usual = *self.usual.get_or_insert(cost);
        if cost > DEAR * usual {
            self.dear += 1;
        } else {
            self.dear = 0;
            self.usual = Some(usual + (cost - usual) / 8.0);
        }
        if self.dear == 2 && self.calm == 0 {
            (self.hurried, self.calm, self.dear) = (HURRIED_PAIRS, CALM, 0);
            (self.until_pair, self.usual) = (0, Some(cost));
        }
    }

    /// Takes the time of a fold that read a timed publication of another rank. Returns what this rank
    /// loses by stores past the caches, as a word, if that is known better now.
    pub(super) fn read(
        &mut self,
        note: StoreNote,
        shape: FoldShape,
        time: Duration,
    ) -> Option<u64> {
        let complete = self.reading.note(note, shape, time);
        self.reading.median().filter(|_| complete).map(word_of_loss)
    }

    /// Combines `views`, and stores and publishes the result: in the slot with the kind of store that
    /// `note` says, and past the caches in an output that they do not hold.
    pub(super) fn store(&mut self, note: StoreNote, reducer: &Reducer, fold: &LargeFold<'_>) {
        let LargeFold { mut into, slot, views, past_caches } = *fold;
        if let Some(output) = into.take_if(|_| past_caches) {
            output.copy_past_caches(views[0]);
        }
        match (into, slot) {
            (into, Some(slot)) if note.kind == StoreKind::PastCaches => {
                self.publish_past_caches(reducer, into, slot, views);
            }
            (Some(into), also) => reducer.apply(into, also, views),
            (None, Some(slot)) => reducer.publish(slot, views),
            (None, None) => {}
        }
    }

    /// Combines block by block, each of which stays in the first cache until it is copied to the slot.
    fn publish_past_caches(
        &mut self,
        reducer: &Reducer,
        into: Option<ViewMut<'_>>,
        slot: ViewMut<'_>,
        views: &[View<'_>],
    ) {
        if let [only] = views {
            into.iter().for_each(|into| into.copy_from(*only));
            return slot.copy_past_caches(*only);
        }
        if into.is_none() && self.scratch.is_empty() {
            self.scratch = Region::new(BLOCK);
        }
        for at in (0..slot.len()).step_by(BLOCK) {
            let len = BLOCK.min(slot.len() - at);
            let block: ArrayVec<View<'_>, MAX_SOURCES> =
                views.iter().map(|view| view.slice(at, len)).collect();
            let result = match into {
                Some(into) => into.slice(at, len),
                None => self.scratch.view().slice(0, len),
            };
            reducer.apply(result, None, &block);
            slot.slice(at, len).copy_past_caches(result.as_view());
        }
    }

    pub(super) fn counts(&self) -> StoreCounts {
        self.counts
    }
}

/// A loss in picoseconds a KiB as a word that is not zero.
fn word_of_loss(nanoseconds: f64) -> u64 {
    let picoseconds = (nanoseconds * 1e3).clamp(-1e9, 1e9) as i64;
    (picoseconds << 1 | 1) as u64
}

fn loss_of_word(word: u64) -> f64 {
    (word as i64 >> 1) as f64 / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: FoldShape = (7, 32 << 10, 1);

    /// What a KiB costs in nanoseconds: by ordinary stores, past the caches, and what a reader loses
    /// by the latter.
    #[derive(Clone, Copy)]
    struct Costs {
        ordinary: f64,
        past_caches: f64,
        loss: f64,
    }

    const NEAR: Costs = Costs { ordinary: 100.0, past_caches: 150.0, loss: 0.0 };
    const FAR: Costs = Costs { ordinary: 500.0, past_caches: 150.0, loss: 0.0 };

    /// One publication on a machine of these `costs`, whose fold takes `times` as long.
    fn publish(stores: &mut SlotStores, costs: Costs, times: f64) -> StoreNote {
        let note = stores.next(SHAPE);
        if note.is_timed() {
            let cost = match note.kind {
                StoreKind::Ordinary => costs.ordinary,
                StoreKind::PastCaches => costs.past_caches,
            };
            let took = Duration::from_nanos((32.0 * cost * times) as u64);
            stores.stored(note, SHAPE, took, [0, word_of_loss(costs.loss)].into_iter());
        }
        note
    }

    /// The publications until `kind` is preferred, at most `most`.
    fn until(stores: &mut SlotStores, costs: Costs, kind: StoreKind, most: u32) -> Option<u32> {
        (0..most).find(|_| {
            publish(stores, costs, 1.0);
            stores.kind == kind
        })
    }

    #[test]
    fn the_cheaper_kind_is_found_at_once() {
        let found = until(&mut SlotStores::default(), FAR, StoreKind::PastCaches, 100);
        assert!(found.is_some());
        assert_eq!(until(&mut SlotStores::default(), NEAR, StoreKind::PastCaches, 10_000), None);
    }

    #[test]
    fn a_change_of_costs_is_noticed_within_a_hundred_publications() {
        let mut stores = SlotStores::default();
        assert_eq!(until(&mut stores, NEAR, StoreKind::PastCaches, 3000), None);
        let changed = until(&mut stores, FAR, StoreKind::PastCaches, 100);
        assert!(changed.is_some(), "after the cores moved apart");
        let back = until(&mut stores, NEAR, StoreKind::Ordinary, 400);
        assert!(back.is_some(), "after they came back");
        for _ in 0..2 * CALM {
            publish(&mut stores, NEAR, 1.0);
        }
        let again = until(&mut stores, FAR, StoreKind::PastCaches, 100);
        assert!(again.is_some(), "after they moved apart again");
    }

    #[test]
    fn trials_are_rare() {
        for costs in [NEAR, FAR] {
            let mut stores = SlotStores::default();
            for _ in 0..20_000 {
                publish(&mut stores, costs, 1.0);
            }
            let StoreCounts { ordinary, past_caches, trials } = stores.counts();
            assert_eq!(ordinary + past_caches, 20_000);
            assert!((100..=400).contains(&trials), "{trials} of 20000");
        }
    }

    #[test]
    fn what_readers_lose_counts() {
        let costs = Costs { loss: 400.0, ..FAR };
        assert_eq!(until(&mut SlotStores::default(), costs, StoreKind::PastCaches, 2000), None);
        let costs = Costs { loss: -100.0, ..NEAR };
        assert!(until(&mut SlotStores::default(), costs, StoreKind::PastCaches, 100).is_some());
    }

    #[test]
    fn a_reader_tells_its_loss() {
        let (mut writer, mut reader) = (SlotStores::default(), SlotStores::default());
        let mut told = None;
        for _ in 0..100 {
            let note = StoreNote::from_word(writer.next(SHAPE).to_word());
            let nanoseconds = if note.kind == StoreKind::PastCaches { 7_000 } else { 3_800 };
            told = reader.read(note, SHAPE, Duration::from_nanos(nanoseconds)).or(told);
        }
        assert_eq!(told.map(loss_of_word), Some(100.0));
        for loss in [0.0, -3.5, 12.25, 1e9, -1e12] {
            assert!(word_of_loss(loss) != 0);
        }
    }

    #[test]
    fn a_rank_that_is_interrupted_now_and_then_changes_nothing() {
        let mut stores = SlotStores::default();
        for nth in 0..20_000u32 {
            let times = if nth.wrapping_mul(0x9E37_79B1) % 6 == 0 { 40.0 } else { 1.0 };
            publish(&mut stores, NEAR, times);
            assert_eq!(stores.kind, StoreKind::Ordinary, "publication {nth}");
        }
    }

    #[test]
    fn folds_of_unlike_shapes_are_not_compared() {
        let mut differences = Differences::default();
        let first = StoreNote { part: PairPart::First, ..StoreNote::default() };
        let trial =
            StoreNote { kind: StoreKind::PastCaches, part: PairPart::Trial, is_watched: false };
        for _ in 0..9 {
            differences.note(first, (1, 32 << 10, 1), Duration::from_micros(3));
            assert!(!differences.note(trial, (2, 32 << 10, 1), Duration::from_micros(9)));
        }
        assert_eq!(differences.median(), None);
    }
}
