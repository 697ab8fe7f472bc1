//! Where the chunks that an algorithm of MSCCL names lie in the buffers of a schedule.

use super::msccl::{Algo, AlgoPlace, At};
use anyhow::{Context, Result, ensure};
use maypole::schedule::collective::HeldChunks;
use maypole::schedule::{Span, Step, input, output, scratch};
use std::collections::{BTreeMap, BTreeSet};

/// The buffers of a rank.
pub(super) struct AlgoBuffers<'a> {
    algo: &'a Algo,
    rank: usize,
    /// In place: the chunks that are no longer those of the input.
    written: BTreeSet<usize>,
    /// By chunk of MSCCL's scratch: the chunk of the whole that it holds a part or a sum of.
    held: BTreeMap<usize, usize>,
    /// What lies in scratch, with the chunk of the whole that it is as long as.
    places: BTreeMap<(Content, usize), Span>,
    /// By chunk of the whole: how many chunks of scratch are as long.
    used: BTreeMap<usize, usize>,
    spares: usize,
}

/// What a chunk of scratch is for.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Content {
    /// A chunk of the whole that the rank's output has not.
    Whole,
    /// A chunk that the file names.
    Named(usize),
    /// A result that MSCCL only passes on.
    Spare(usize),
}

/// Where something is written.
enum Target {
    Output(usize),
    Scratch(Content, usize),
}

impl<'a> AlgoBuffers<'a> {
    pub(super) fn new(algo: &'a Algo, rank: usize) -> Self {
        Self {
            algo,
            rank,
            written: BTreeSet::new(),
            held: BTreeMap::new(),
            places: BTreeMap::new(),
            used: BTreeMap::new(),
            spares: 0,
        }
    }

    /// Where the chunk of `place` lies now.
    pub(super) fn read(&self, at: At, place: AlgoPlace) -> Result<Span> {
        if place.buffer == 's' {
            let offset = self.scratch(at, place)?;
            let span =
                self.held.get(&offset).map(|chunk| self.places[&(Content::Named(offset), *chunk)]);
            return span.with_context(|| {
                format!("{at} reads chunk {offset} of scratch before it is written")
            });
        }
        let chunk = self.chunk(at, place)?;
        Ok(match (self.algo.in_place, place.buffer) {
            (false, 'i') => input(chunk),
            (true, _) if self.is_untouched(chunk) => input(chunk),
            (true, _) => {
                self.places.get(&(Content::Whole, chunk)).copied().unwrap_or(output(chunk))
            }
            (false, _) => output(chunk),
        })
    }

    /// Where something as long as `source` would be written; `None` if nothing was there before.
    pub(super) fn target(&self, at: At, place: AlgoPlace, source: Span) -> Result<Option<Span>> {
        Ok(match self.aim(at, place, source)? {
            Target::Output(chunk) => Some(output(chunk)),
            Target::Scratch(content, chunk) => self.places.get(&(content, chunk)).copied(),
        })
    }

    fn aim(&self, at: At, place: AlgoPlace, source: Span) -> Result<Target> {
        if place.buffer == 's' {
            let class = source.chunk % self.algo.chunks;
            return Ok(Target::Scratch(Content::Named(self.scratch(at, place)?), class));
        }
        ensure!(
            place.buffer != 'i' || self.algo.in_place,
            "{at} writes the input, and the call is not in place (inplace=\"0\")"
        );
        let chunk = self.chunk(at, place)?;
        let is_kept = self.algo.collective.output(self.rank).contains(chunk);
        let is_output = is_kept || !self.algo.in_place;
        Ok(if is_output { Target::Output(chunk) } else { Target::Scratch(Content::Whole, chunk) })
    }

    /// Makes `place` ready to be written with something as long as `source`.
    fn open(&mut self, at: At, place: AlgoPlace, source: Span) -> Result<Span> {
        Ok(match self.aim(at, place, source)? {
            Target::Output(chunk) => {
                self.written.insert(chunk);
                output(chunk)
            }
            Target::Scratch(content, chunk) => {
                match content {
                    Content::Named(offset) => drop(self.held.insert(offset, chunk)),
                    _ => drop(self.written.insert(chunk)),
                }
                self.room_for(content, chunk)
            }
        })
    }

    /// A chunk of scratch as long as `chunk` of the whole.
    fn room_for(&mut self, content: Content, chunk: usize) -> Span {
        let Self { places, used, algo, .. } = self;
        *places.entry((content, chunk)).or_insert_with(|| {
            let row = used.entry(chunk).or_default();
            *row += 1;
            scratch((*row - 1) * algo.chunks + chunk)
        })
    }

    /// The steps of a copy, and where the chunk is then.
    pub(super) fn copy(
        &mut self,
        at: At,
        src: AlgoPlace,
        dst: AlgoPlace,
    ) -> Result<(Vec<Step>, Span)> {
        let from = self.read(at, src)?;
        let into = self.open(at, dst, from)?;
        let copy = (from != into).then_some(Step::Copy { from, into });
        Ok((copy.into_iter().collect(), into))
    }

    /// The steps of `dst = dst op src`.
    pub(super) fn reduce(
        &mut self,
        at: At,
        src: AlgoPlace,
        dst: AlgoPlace,
    ) -> Result<(Vec<Step>, Span)> {
        let from = self.read(at, src)?;
        let (mut steps, into) = self.copy(at, dst, dst)?;
        steps.push(Step::Reduce { from, into });
        Ok((steps, into))
    }

    /// The steps that receive a chunk and combine it with `src` if there is one. The result is at `dst`,
    /// or in scratch if MSCCL only passes it on.
    pub(super) fn combine(
        &mut self,
        at: At,
        (from, sent): (usize, Span),
        src: Option<AlgoPlace>,
        dst: Option<AlgoPlace>,
    ) -> Result<(Vec<Step>, Span)> {
        let (mut steps, into) = match (src, dst) {
            (None, Some(dst)) => {
                let into = self.open(at, dst, sent)?;
                return Ok((vec![Step::Recv { into, from }], into));
            }
            (Some(src), Some(dst)) => self.copy(at, src, dst)?,
            (src, None) => {
                let src = src.context("a step that reads has a source")?;
                let source = self.read(at, src)?;
                self.spares += 1;
                let class = source.chunk % self.algo.chunks;
                let into = self.room_for(Content::Spare(self.spares), class);
                (vec![Step::Copy { from: source, into }], into)
            }
        };
        steps.push(Step::RecvReduce { into, from });
        Ok((steps, into))
    }

    /// In place: the copies of chunks of the output that stay those of the input.
    pub(super) fn rest(&self) -> Vec<Step> {
        let output_of = self.algo.collective.output(self.rank);
        let stays = |chunk: &usize| {
            self.algo.in_place && output_of.contains(*chunk) && self.is_untouched(*chunk)
        };
        let copy = |chunk| Step::Copy { from: input(chunk), into: output(chunk) };
        (0..self.algo.chunks).filter(stays).map(copy).collect()
    }

    /// True of a chunk that is, in place, still that of the input.
    fn is_untouched(&self, chunk: usize) -> bool {
        self.algo.collective.input(self.rank).contains(chunk) && !self.written.contains(&chunk)
    }

    /// The offset of a chunk in scratch.
    fn scratch(&self, at: At, place: AlgoPlace) -> Result<usize> {
        let all = self.algo.gpus[self.rank].scratch;
        let offset = place.offset;
        ensure!(offset < all, "{at} names chunk {offset} of {all} of its scratch (s_chunks)");
        Ok(offset)
    }

    /// The number within the whole of a chunk of the input or the output.
    fn chunk(&self, at: At, place: AlgoPlace) -> Result<usize> {
        let Algo { collective, chunks, in_place, .. } = *self.algo;
        let AlgoPlace { buffer, offset } = place;
        let held =
            if buffer == 'i' { collective.input(self.rank) } else { collective.output(self.rank) };
        // A rank's only chunk is the first of its buffer.
        let chunk = match held {
            HeldChunks::One(chunk) => (offset == 0).then_some(chunk),
            HeldChunks::All => Some(offset),
            HeldChunks::Nothing => in_place.then_some(offset),
        };
        chunk.filter(|chunk| *chunk < chunks).with_context(|| {
            format!("{at} names chunk {offset} of buffer {buffer}, which its GPU does not have")
        })
    }
}
