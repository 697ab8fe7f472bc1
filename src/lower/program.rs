//! A program: folds over windows, as plain data without pointers.

use crate::schedule::{Buffer, part};
use maypole_transports::board::SlotClass;

/// Most sources of one fold; longer reductions continue in a second fold.
pub const MAX_SOURCES: usize = 16;

/// A chunk of one of the rank's buffers, in bytes, and how windows cut it: window `k` takes an
/// equal fraction.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Extent {
    pub(super) start: usize,
    /// Elements that every window has.
    pub(super) quotient: usize,
    /// How many of the first windows have one element more.
    pub(super) remainder: u32,
    pub(super) element: u32,
}

impl Extent {
    /// The chunk that starts `start` elements into its buffer and has `len`, for `windows` windows
    /// of elements of `element` bytes.
    pub(super) fn new(start: usize, len: usize, windows: u32, element: usize) -> Self {
        let whole = windows as usize;
        debug_assert!(part(len, whole, 0).len() >= len / whole);
        Self {
            start: start * element,
            quotient: len / whole,
            remainder: (len % whole) as u32,
            element: element as u32,
        }
    }

    /// Bytes of all `windows` windows together.
    pub(super) fn bytes(&self, windows: u32) -> u64 {
        (self.quotient as u64 * u64::from(windows) + u64::from(self.remainder))
            * u64::from(self.element)
    }

    /// Where window `k` lies in the buffer: offset and length in bytes.
    #[inline(always)]
    pub fn window(&self, k: u32) -> (usize, usize) {
        let longer = k < self.remainder;
        let element = self.element as usize;
        let skipped = k as usize * self.quotient + k.min(self.remainder) as usize;
        (self.start + skipped * element, (self.quotient + longer as usize) * element)
    }
}

/// Where a source of a fold lies.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum SourceLocation {
    /// In a buffer of this rank.
    Own(Buffer),
    /// In a slot of local rank `peer`'s board.
    Board,
    /// At the far end of `streams[peer]`.
    Stream,
    /// In a buffer of local rank `peer`, which is registered. A publication signals that it is
    /// ready.
    Peer(Buffer),
    /// In a buffer of local rank `peer`, which is registered and ready from the start of the call.
    Lent(Buffer),
    /// Where the fold's result belongs: local rank `peer` writes it there before its publication.
    Pushed,
}

/// One source of a fold.
#[derive(Clone, Copy, Debug)]
pub struct FoldSource {
    /// Where the source lies.
    pub from: SourceLocation,
    /// The peer: an index of `streams` (`Stream`), or a local rank (all others but `Own`).
    pub peer: u32,
    /// The part of this rank's buffer (`Own`), or of the peer's (`Peer`, `Lent`).
    pub extent: Extent,
    /// The index of the fold among the peer's publishing folds (`Board`, `Peer`, `Pushed`).
    /// [`Numbering`] turns it into a position.
    pub publication: u32,
    /// The stage of that fold.
    pub stage: u32,
    /// The publication proves that the peer has consumed this many of this rank's publications of
    /// the call, and all publications of earlier calls.
    pub implied: u32,
}

impl FoldSource {
    /// A source that lies there from the start of the call.
    pub(super) fn at(from: SourceLocation, peer: usize, extent: Extent) -> Self {
        Self { from, peer: peer as u32, extent, publication: 0, stage: 0, implied: 0 }
    }
}

/// One fused operation: combine k sources in order, into a buffer of this rank, a publication, or
/// both.
#[derive(Clone, Copy, Debug)]
pub struct Fold {
    /// The part of `into` that the result is stored in, and the length of a publication.
    pub extent: Extent,
    /// The buffer that stores the result, if it is stored.
    pub into: Option<Buffer>,
    /// The buffer that streams send the result from, if any do.
    pub posted: Option<Buffer>,
    /// The local ranks that read the publication, one bit each.
    pub audience: u64,
    /// Hops before the fold: window `k` runs at clock `k + stage`.
    pub stage: u32,
    /// The sources are `sources[first..first + count]`.
    pub first: u32,
    /// The number of sources.
    pub count: u16,
    /// `posts[posts.0..posts.1]`: streams that get the result.
    pub posts: (u32, u32),
    /// `flushes[flushes.0..flushes.1]`: results that must have been taken before `into` may be
    /// written.
    pub flushes: (u32, u32),
}

/// A result that must have been taken from where it is stored.
#[derive(Clone, Copy, Debug)]
pub struct Flush {
    /// The peer that takes it: an index of `streams`, through which it must have left; on
    /// registered memory, a local rank, which must have read it.
    pub peer: u32,
    /// The index of the post among the link's posts; on registered memory, of the publication among
    /// this rank's. The [`Numbering`] of either turns it into a position.
    pub nth: u32,
    /// The stage of the fold that posts it.
    pub stage: u32,
}

/// A link to a rank that does not share this rank's board.
#[derive(Clone, Debug)]
pub struct StreamLink {
    /// The rank at its other end.
    pub peer: u32,
    /// The numbering of the posts to that rank.
    pub posts: Numbering,
}

/// Numbers the publications of one rank in clock order, with windows overlapped, without listing
/// them.
///
/// With one window, publications are in the order of the folds, and nothing is listed at all. With
/// several, two lists cover the stages from the first publishing fold to the last.
///
/// A program holds each fold once, not once a window, so the position of window k of a fold is
/// computed: for each stage, the lists have how many publishing folds lie below it and their
/// running sum. A position is two look-ups and a subtraction. An unrolled list would grow with the
/// windows.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Numbering {
    /// Publishing folds.
    pub(super) folds: u32,
    pub(super) windows: u32,
    /// The lowest stage of a publishing fold.
    pub(super) first: u32,
    /// `before[s]`: publishing folds of a stage below `first + s`.
    pub(super) before: Box<[u32]>,
    /// `sum[t]`: publications before clock `first + t` if the number of windows were unlimited.
    pub(super) sum: Box<[u64]>,
}

impl Numbering {
    /// The numbering of publishing folds with these stages, ascending, over `windows` windows.
    pub(super) fn new(stages: &[u32], windows: u32) -> Self {
        let folds = stages.len() as u32;
        let (Some(first), Some(last)) = (stages.first(), stages.last()) else {
            return Self { windows, ..Self::default() };
        };
        if windows == 1 {
            return Self { folds, windows, ..Self::default() };
        }
        let below = |stage| stages.partition_point(|other| *other < stage) as u32;
        let before: Box<[u32]> = (*first..=last + 1).map(below).collect();
        let counted = before[1..].iter().scan(0, |sum, folds| {
            *sum += u64::from(*folds);
            Some(*sum)
        });
        let sum = std::iter::once(0).chain(counted).collect();
        Self { folds, windows, first: *first, before, sum }
    }

    /// The position of window `k` of publishing fold `nth` among the rank's publications of this
    /// call.
    #[inline(always)]
    pub fn position(&self, nth: u32, stage: u32, k: u32) -> u64 {
        if self.windows == 1 {
            return u64::from(nth);
        }
        let clock = k + stage;
        let ended = (clock + 1).saturating_sub(self.windows);
        self.until(clock) - self.until(clock.saturating_sub(self.windows))
            + u64::from(nth - self.below(ended))
    }

    /// Publications of one call.
    pub fn total(&self) -> u64 {
        u64::from(self.windows) * u64::from(self.folds)
    }

    /// Bytes of its lists.
    fn bytes(&self) -> usize {
        size_of_val(&*self.before) + size_of_val(&*self.sum)
    }

    fn below(&self, stage: u32) -> u32 {
        let stage = stage.saturating_sub(self.first) as usize;
        self.before[stage.min(self.before.len() - 1)]
    }

    fn until(&self, clock: u32) -> u64 {
        let clock = clock.saturating_sub(self.first) as usize;
        let last = self.sum.len() - 1;
        match self.sum.get(clock) {
            Some(sum) => *sum,
            None => self.sum[last] + (clock - last) as u64 * u64::from(self.folds),
        }
    }
}

/// One rank's schedule, lowered. Communicators keep many programs, so the lists have no room to
/// spare.
#[derive(Clone, Debug)]
pub struct Program {
    /// How many windows.
    pub windows: u32,
    /// Folds by stage, then in the order of the schedule.
    pub folds: Box<[Fold]>,
    /// Sources of all folds.
    pub sources: Box<[FoldSource]>,
    /// Streams that folds post to, as indices of `streams`.
    pub posts: Box<[u32]>,
    /// Results that folds wait for.
    pub flushes: Box<[Flush]>,
    /// `first_of[s]`: the first fold of stage `s` or later; one entry more than there are stages.
    pub first_of: Box<[u32]>,
    /// How each local rank's publications are numbered.
    pub numberings: Box<[Numbering]>,
    /// How many publications each local rank makes in one run.
    pub totals: Box<[u64]>,
    /// Where publications lie on boards.
    pub class: SlotClass,
    /// Data slots in use, less one.
    pub mask: u64,
    /// When the program is repeated, no counter of consumed publications is needed: a publication
    /// of a reader proves that it has consumed those of the call before.
    ///
    /// That holds if all readers of a rank also publish to it in every call, and if the slots last
    /// for two calls. Then a flat symmetric program, such as a small all-reduce, does one write a
    /// rank. When another kind of program follows, the counters are brought up to date once.
    pub self_crediting: bool,
    /// An in-place call first copies its input to a staging buffer.
    pub stages_input: bool,
    /// The buffers of the ranks of this board are so large that copies to an output bypass the
    /// caches.
    pub past_caches: bool,
    /// Bytes of scratch.
    pub scratch: usize,
    /// A hash of everything that the calls of all ranks must agree on.
    pub fingerprint: u64,
    /// The streams in use.
    pub streams: Box<[StreamLink]>,
    /// Bytes of the longest message that a stream brings to be folded rather than stored.
    pub longest_staged: usize,
    /// How it reaches the registered memory of other ranks. `None` if all bytes go through slots and
    /// streams.
    pub registered: Option<Box<RegisteredAccess>>,
}

/// The part of a program that reaches other ranks' registered memory. Publications of such a
/// program have no payload: they signal that bytes are ready, or that they have been written.
#[derive(Clone, Debug, Default)]
pub struct RegisteredAccess {
    /// Additional places that folds write to.
    pub pushes: Box<[Push]>,
    /// `pushes[first_push[f]..first_push[f + 1]]` are those of fold `f`.
    pub first_push: Box<[u32]>,
    /// Whether other ranks touch this rank's input, and its output.
    pub exposes: (bool, bool),
    /// Bytes of this rank's input that other ranks read without a publication.
    pub lent: u64,
    /// As [`Program::allows_in_place`].
    pub(super) allows_in_place: bool,
    /// Local ranks that no publication proves to be done with this rank's memory at the end. Their
    /// counters prove it.
    pub awaited_at_end: Box<[u32]>,
}

/// A place in a peer's output.
#[derive(Clone, Copy, Debug)]
pub struct Push {
    /// The local rank that owns the output.
    pub peer: u32,
    /// The part of the output.
    pub extent: Extent,
}

impl Program {
    /// Number of stages.
    pub fn stages(&self) -> u32 {
        (self.first_of.len() - 1) as u32
    }

    /// True if ranks may call with one buffer as input and output. Equal on all ranks.
    pub fn allows_in_place(&self) -> bool {
        self.registered.as_ref().is_none_or(|access| access.allows_in_place)
    }

    /// True if the fold that is executed after fold `at` only posts, so that it waits for nothing.
    #[inline]
    pub fn posts_more_after(&self, at: usize) -> bool {
        let next = self.folds.get(at + 1).filter(|_| self.windows == 1);
        next.is_some_and(|fold| fold.into.is_none() && fold.audience == 0)
    }

    /// Bytes of all of its lists. The program itself comes on top.
    pub fn bytes(&self) -> usize {
        let numberings = self.numberings.iter().chain(self.streams.iter().map(|link| &link.posts));
        size_of_val(&*self.folds)
            + size_of_val(&*self.sources)
            + size_of_val(&*self.posts)
            + size_of_val(&*self.flushes)
            + size_of_val(&*self.first_of)
            + size_of_val(&*self.numberings)
            + size_of_val(&*self.totals)
            + size_of_val(&*self.streams)
            + self.registered.as_ref().map_or(0, |access| access.bytes())
            + numberings.map(Numbering::bytes).sum::<usize>()
    }
}

impl RegisteredAccess {
    /// The additional places that fold `at` writes to.
    pub fn pushes_of(&self, at: usize) -> &[Push] {
        &self.pushes[self.first_push[at] as usize..self.first_push[at + 1] as usize]
    }

    /// Bytes of its lists, and its own.
    fn bytes(&self) -> usize {
        size_of::<Self>()
            + size_of_val(&*self.pushes)
            + size_of_val(&*self.first_push)
            + size_of_val(&*self.awaited_at_end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn numbers_are_those_of_the_list(
            mut stages in prop::collection::vec(0..7u32, 1..9),
            windows in 1..20u32,
        ) {
            stages.sort_unstable();
            if windows == 1 {
                stages.fill(0);
            }
            let numbering = Numbering::new(&stages, windows);
            let mut listed = 0;
            for clock in 0..windows + stages[stages.len() - 1] {
                for (nth, stage) in stages.iter().enumerate() {
                    if clock >= *stage && clock - stage < windows {
                        let position = numbering.position(nth as u32, *stage, clock - stage);
                        prop_assert_eq!(position, listed);
                        listed += 1;
                    }
                }
            }
            prop_assert_eq!(listed, numbering.total());
        }

        #[test]
        fn windows_cut_as_layouts_do(
            len in 0..5000usize,
            windows in 1..70u32,
            start in 0..100usize,
        ) {
            let extent = Extent::new(start, len, windows, 4);
            for k in 0..windows {
                let range = part(len, windows as usize, k as usize);
                prop_assert_eq!(extent.window(k), ((start + range.start) * 4, range.len() * 4));
            }
            prop_assert_eq!(extent.bytes(windows), len as u64 * 4);
        }
    }
}
