//! The bytes of a program that a kernel walks: the structs of `kernels/cuda/program.h`, with the
//! same fields in the same order.
//!
//! A program is a [header](PackedProgram) and lists at byte offsets from its start. A kernel cannot
//! check its program, so [`check`] does, before a launch.

use bytemuck::{Pod, Zeroable};
use std::ops::Range;

/// Where a fold stores, and where a source lies.
#[allow(missing_docs, reason = "the names are the meaning")]
pub mod place {
    pub const INPUT: u32 = 0;
    pub const OUTPUT: u32 = 1;
    pub const SCRATCH: u32 = 2;
    /// In a slot of another rank.
    pub const BOARD: u32 = 3;
    pub const NOWHERE: u32 = 4;
}

/// Bytes that windows cut a chunk into, so that each begins as aligned as the chunk.
pub const PACK: u64 = 16;

/// A chunk of a buffer, and how windows cut it: window `k` takes `quotient` [packs](PACK), and the first
/// `remainder` windows take one more. The last window that has a pack lacks `lacks` bytes of it.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
#[allow(missing_docs, reason = "the names are the meaning")]
pub struct PackedExtent {
    /// In bytes.
    pub start: u64,
    pub quotient: u64,
    pub remainder: u32,
    /// In bytes.
    pub lacks: u32,
}

/// A source of a fold.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct PackedSource {
    /// Where it lies in a buffer.
    pub extent: PackedExtent,
    /// A [`place`].
    pub place: u32,
    /// The rank that publishes it.
    pub peer: u32,
    /// Its index among that rank's publishing folds.
    pub publication: u32,
    /// The stage of that fold.
    pub stage: u32,
}

/// Combine the sources `first..first + count`, in order, into a buffer, a publication, or both.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct PackedFold {
    /// Where the result is stored, and how long it is.
    pub extent: PackedExtent,
    /// The ranks that read the publication, one bit each.
    pub audience: u64,
    /// The [`place`] where the result is stored.
    pub into: u32,
    /// Window `k` runs at clock `k + stage`.
    pub stage: u32,
    /// The first source.
    pub first: u32,
    /// How many sources.
    pub count: u32,
}

/// How the publications of one rank are numbered.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct PackedNumbering {
    /// Publishing folds.
    pub folds: u32,
    /// How many windows each one has.
    pub windows: u32,
    /// The lowest stage of a publishing fold.
    pub first: u32,
    /// The length of the list at `before`.
    pub befores: u32,
    /// Where the list of publishing folds below each stage begins.
    pub before: u64,
    /// Where its running sums begin.
    pub sum: u64,
    /// The length of the list at `sum`.
    pub sums: u32,
    /// Nothing.
    pub unused: u32,
}

/// The header. Lists have byte offsets from its start.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
#[allow(missing_docs, reason = "the names are the meaning")]
pub struct PackedProgram {
    /// Of the header and all lists.
    pub bytes: u64,
    pub folds: u64,
    pub sources: u64,
    /// Where the list of the first fold of each stage begins, which has one entry more than there
    /// are stages.
    pub first_of: u64,
    pub numberings: u64,
    pub windows: u32,
    pub stages: u32,
    pub fold_count: u32,
    /// Bytes of an element.
    pub element: u32,
    pub ranks: u32,
    pub me: u32,
}

impl PackedProgram {
    /// The header of a program.
    ///
    /// # Errors
    /// If `bytes` are fewer than a header has.
    pub fn of(bytes: &[u8]) -> Result<Self, String> {
        Ok(list(bytes, 0, 1)?[0])
    }
}

/// Most ranks of a [`ShortProgram`].
pub const MOST_SHORT_RANKS: usize = 8;
/// Most bytes of a publication of one: as many as publications in lines have at most.
pub const MOST_SHORT_BYTES: u64 = 64 << 10;
/// Instead of a place in the output: nothing is stored.
pub const UNSTORED: u32 = u32::MAX;

/// The program of one rank in a call of one exchange: it publishes a part of its input for each other rank, and
/// folds one publication of each, and a part of its own, in the order of the ranks.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[repr(C)]
pub struct ShortProgram {
    /// Of each publication, at most [`MOST_SHORT_BYTES`].
    pub bytes: u32,
    /// The ranks, at most [`MOST_SHORT_RANKS`].
    pub ranks: u32,
    /// The rank whose program it is.
    pub me: u32,
    /// By bits: a fold begins with what is of the rank. It is combined with what is before otherwise.
    pub begins: u32,
    /// By rank: where in the input what is for it begins.
    pub from: [u32; MOST_SHORT_RANKS],
    /// By rank: where in the output the fold that ends with what is of the rank is stored, or [`UNSTORED`].
    pub into: [u32; MOST_SHORT_RANKS],
}

impl ShortProgram {
    /// Bytes that it needs of the input and of the output.
    pub fn needs(&self) -> [u64; 2] {
        let used =
            |places: [u32; MOST_SHORT_RANKS]| places.into_iter().filter(|it| *it != UNSTORED);
        let end = |start: u32| u64::from(start) + u64::from(self.bytes);
        [self.from, self.into].map(|places| used(places).max().map_or(0, end))
    }
}

/// Bytes that a program needs of each buffer.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[allow(missing_docs, reason = "the names are the meaning")]
pub struct BufferNeeds {
    pub input: u64,
    pub output: u64,
    pub scratch: u64,
    /// Of a slot: the longest publication.
    pub publication: u64,
    /// Most publications of one rank, which is no length.
    pub publications: u64,
}

/// Most ranks: one bit each in the audience of a publication.
pub const MOST_RANKS: u32 = 64;
/// Most sources of a fold.
pub const MOST_SOURCES: u32 = 16;
/// Most slots of a rank: a kernel notes the readers of each.
pub const MOST_SLOTS: u32 = 64;

/// Checks that a kernel that walks `bytes` stays within buffers and slots of the lengths in the
/// result.
///
/// # Errors
/// The fault of the program, in words.
pub fn check(bytes: &[u8]) -> Result<BufferNeeds, String> {
    Checker::new(bytes)?.needs()
}

struct Checker<'a> {
    bytes: &'a [u8],
    program: PackedProgram,
    folds: Vec<PackedFold>,
    sources: Vec<PackedSource>,
}

impl<'a> Checker<'a> {
    fn new(bytes: &'a [u8]) -> Result<Self, String> {
        let program = PackedProgram::of(bytes)?;
        require(program.bytes == bytes.len() as u64, "its length is another one")?;
        require(bytes.len().is_multiple_of(8), "its length is no multiple of eight")?;
        require(matches!(program.element, 1 | 2 | 4 | 8), "elements have 1, 2, 4 or 8 bytes")?;
        require((1..=MOST_RANKS).contains(&program.ranks), "there are 1 to 64 ranks")?;
        require(program.me < program.ranks, "its rank does not exist")?;
        require(program.windows > 0, "it has no window")?;
        let clocks = u64::from(program.windows) + u64::from(program.stages);
        require(clocks < 1 << 32, "it has too many windows")?;
        let folds: Vec<PackedFold> = list(bytes, program.folds, program.fold_count)?;
        let fits = folds.iter().all(|fold| (1..=MOST_SOURCES).contains(&fold.count));
        require(fits, "a fold has 1 to 16 sources")?;
        let ends = folds.iter().map(|fold| u64::from(fold.first) + u64::from(fold.count));
        let count = u32::try_from(ends.max().unwrap_or(0)).map_err(|_| "too many sources")?;
        let sources = list(bytes, program.sources, count)?;
        Ok(Self { bytes, program, folds, sources })
    }

    fn needs(&self) -> Result<BufferNeeds, String> {
        self.check_stages()?;
        let publications = self.check_numberings()?;
        let mut needs = BufferNeeds { publications, ..BufferNeeds::default() };
        for fold in &self.folds {
            self.add_fold(fold, &mut needs)?;
        }
        Ok(needs)
    }

    fn check_stages(&self) -> Result<(), String> {
        let count = self.program.stages.checked_add(1).ok_or("it has too many stages")?;
        let first_of: Vec<u32> = list(self.bytes, self.program.first_of, count)?;
        let in_range = first_of.iter().all(|first| *first <= self.program.fold_count);
        require(in_range, "a stage begins behind the last fold")?;
        let fits = self.folds.iter().all(|fold| fold.stage < self.program.stages);
        require(fits, "a fold has a stage that does not exist")
    }

    /// Returns the most publications of a rank.
    fn check_numberings(&self) -> Result<u64, String> {
        let all: Vec<PackedNumbering> =
            list(self.bytes, self.program.numberings, self.program.ranks)?;
        for numbering in all.iter().filter(|numbering| numbering.windows != 1) {
            let has_lists = numbering.befores > 0 && numbering.sums > 0;
            require(has_lists || numbering.folds == 0, "publications have no numbers")?;
            list::<u32>(self.bytes, numbering.before, numbering.befores)?;
            list::<u64>(self.bytes, numbering.sum, numbering.sums)?;
        }
        let named = self.sources.iter().filter(|source| source.place == place::BOARD);
        let mut peers = named.map(|source| all.get(source.peer as usize));
        let numbered = peers.all(|peer| peer.is_some_and(|peer| peer.folds > 0));
        require(numbered, "a source is the publication of a rank that makes none")?;
        let publications = |one: &PackedNumbering| u64::from(one.folds) * u64::from(one.windows);
        Ok(all.iter().map(publications).max().unwrap_or(0))
    }

    fn add_fold(&self, fold: &PackedFold, needs: &mut BufferNeeds) -> Result<(), String> {
        let everyone = u64::MAX >> (64 - self.program.ranks);
        require(fold.audience & !everyone == 0, "a reader does not exist")?;
        let longest = self.longest_window(&fold.extent)?;
        self.add(fold.into, &fold.extent, needs)?;
        if fold.audience != 0 {
            needs.publication = needs.publication.max(longest);
        }
        for source in &self.sources[fold.first as usize..][..fold.count as usize] {
            require(source.place != place::NOWHERE, "a source lies nowhere")?;
            if source.place == place::BOARD {
                // The reader takes as many bytes as its fold has.
                needs.publication = needs.publication.max(longest);
                continue;
            }
            let cut = |it: &PackedExtent| (it.quotient, it.remainder, it.lacks);
            let alike = cut(&source.extent) == cut(&fold.extent);
            require(alike, "a source has another length than its fold")?;
            self.add(source.place, &source.extent, needs)?;
        }
        Ok(())
    }

    fn add(&self, into: u32, extent: &PackedExtent, needs: &mut BufferNeeds) -> Result<(), String> {
        let end = self.range(extent)?.end;
        let need = match into {
            place::INPUT => &mut needs.input,
            place::OUTPUT => &mut needs.output,
            place::SCRATCH => &mut needs.scratch,
            place::NOWHERE => return Ok(()),
            _ => return Err("a fold stores in no buffer".to_owned()),
        };
        *need = (*need).max(end);
        Ok(())
    }

    /// The bytes of all windows together.
    fn range(&self, extent: &PackedExtent) -> Result<Range<u64>, String> {
        require(extent.remainder < self.program.windows, "more windows are longer than there are")?;
        let is_aligned = extent.start.is_multiple_of(u64::from(self.program.element));
        require(is_aligned, "a chunk begins at no multiple of an element")?;
        let whole = extent.quotient.checked_mul(u64::from(self.program.windows));
        let count = whole.and_then(|whole| whole.checked_add(u64::from(extent.remainder)));
        require(u64::from(extent.lacks) < PACK, "a window lacks a whole pack")?;
        require(extent.lacks.is_multiple_of(self.program.element), "an element is cut")?;
        require(extent.lacks == 0 || count != Some(0), "a chunk without bytes lacks some")?;
        let bytes = count.and_then(|count| count.checked_mul(PACK));
        let bytes = bytes.map(|bytes| bytes - u64::from(extent.lacks));
        let end = bytes.and_then(|bytes| extent.start.checked_add(bytes));
        end.map(|end| extent.start..end).ok_or_else(|| "a chunk is too long".to_owned())
    }

    fn longest_window(&self, extent: &PackedExtent) -> Result<u64, String> {
        self.range(extent)?;
        Ok((extent.quotient + u64::from(extent.remainder > 0)) * PACK)
    }
}

fn require(holds: bool, otherwise: &str) -> Result<(), String> {
    if holds { Ok(()) } else { Err(otherwise.to_owned()) }
}

/// The list of `count` entries that begins at `offset`, a multiple of eight.
fn list<T: Pod>(bytes: &[u8], offset: u64, count: u32) -> Result<Vec<T>, String> {
    require(offset.is_multiple_of(8), "a list begins at no multiple of eight")?;
    let len = count as usize * size_of::<T>();
    let start = usize::try_from(offset).map_err(|_| "a list begins behind the end")?;
    let end = start.checked_add(len).filter(|end| *end <= bytes.len());
    let end = end.ok_or("a list ends behind the end")?;
    Ok(bytes[start..end].chunks_exact(size_of::<T>()).map(bytemuck::pod_read_unaligned).collect())
}
