//! A program as bytes, for the kernel that walks it on a GPU (`kernels/cuda/walk.cu`).
//!
//! The bytes are the structs of [`packed`](maypole_kernels::packed): a header, and lists at byte
//! offsets from its start. They contain no pointer, so a copy in device memory works at any
//! address.
//!
//! # Lanes
//! On a GPU many blocks of threads walk the same program, each on its part of every window. They
//! are not in step. If two folds split the same bytes into different parts, one block could read
//! bytes that another block has not written yet. No algorithm of the table does that, because a
//! schedule sends chunks as it received them. A program that does is not packed.

use super::program::{Extent, Fold, Numbering, Program, SourceLocation};
use crate::schedule::Buffer;
use bytemuck::Pod;
use maypole_kernels::packed::{
    PACK, PackedExtent, PackedFold, PackedNumbering, PackedProgram, PackedSource, place,
};
use std::ops::Range;

/// The start of each buffer of a call, in bytes, in memory that they may share. In place, they do.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct BufferPlaces {
    /// Where the input begins.
    pub input: usize,
    /// Where the output begins.
    pub output: usize,
}

/// A program as bytes.
///
/// ```
/// use maypole::algorithms::Algorithm;
/// use maypole::lower::{BufferPlaces, DeviceProgram, LoweringInput, lower};
/// use maypole::schedule::collective::Collective;
/// use maypole::schedule::hosts::Boards;
/// use maypole::schedule::{Layout, Placement};
///
/// let schedules = Algorithm::Ring.schedules(Collective::AllReduce, 4).unwrap();
/// let request = LoweringInput {
///     collective: Collective::AllReduce,
///     schedules: &schedules,
///     layout: &Layout::even(1000, 4),
///     element: 4,
///     boards: &Boards::new(&[0; 4]),
///     window: 32 << 10,
///     fingerprint: 1,
/// };
/// let program = lower(&request, 0, Placement::Apart).unwrap();
/// let places = BufferPlaces { input: 0, output: 4000 };
/// let device = DeviceProgram::new(&program, 0, places).unwrap();
/// assert_eq!(device.bytes().len() % 8, 0);
/// ```
#[derive(Clone, Debug)]
pub struct DeviceProgram {
    bytes: Vec<u8>,
}

impl DeviceProgram {
    /// Packs the program of local rank `me`, whose buffers are at `places`. `None` if the kernel
    /// cannot walk it: if it has streams, if it runs on registered memory, or if its folds split the
    /// same bytes into different parts.
    pub fn new(program: &Program, me: usize, places: BufferPlaces) -> Option<Self> {
        if !program.streams.is_empty() || program.registered.is_some() {
            return None;
        }
        if crosses_lanes(touches(program, places)) {
            return None;
        }
        let mut bytes = vec![0; size_of::<PackedProgram>()];
        let folds = program.folds.iter().map(|fold| packed_fold(fold, program.windows));
        let folds: Vec<PackedFold> = folds.collect();
        let header = PackedProgram {
            folds: append(&mut bytes, &folds),
            sources: append(&mut bytes, &packed_sources(program)),
            first_of: append(&mut bytes, &program.first_of),
            numberings: append_numberings(&mut bytes, &program.numberings),
            bytes: bytes.len() as u64,
            windows: program.windows,
            stages: program.stages(),
            fold_count: folds.len() as u32,
            // A program without folds has no elements.
            element: program.folds.first().map_or(1, |fold| fold.extent.element),
            ranks: program.totals.len() as u32,
            me: me as u32,
        };
        bytes[..size_of::<PackedProgram>()].copy_from_slice(bytemuck::bytes_of(&header));
        Some(Self { bytes })
    }

    /// The bytes, a multiple of eight, to be copied to an address that is one, too.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

// ---- Bytes

fn place_of(buffer: Buffer) -> u32 {
    match buffer {
        Buffer::Input => place::INPUT,
        Buffer::Output => place::OUTPUT,
        Buffer::Scratch => place::SCRATCH,
    }
}

fn packed_extent(extent: &Extent, windows: u32) -> PackedExtent {
    let bytes = extent.bytes(windows);
    let packs = bytes.div_ceil(PACK);
    PackedExtent {
        start: extent.start as u64,
        quotient: packs / u64::from(windows),
        remainder: (packs % u64::from(windows)) as u32,
        lacks: (packs * PACK - bytes) as u32,
    }
}

fn packed_fold(fold: &Fold, windows: u32) -> PackedFold {
    PackedFold {
        extent: packed_extent(&fold.extent, windows),
        audience: fold.audience,
        into: fold.into.map_or(place::NOWHERE, place_of),
        stage: fold.stage,
        first: fold.first,
        count: fold.count.into(),
    }
}

fn packed_sources(program: &Program) -> Vec<PackedSource> {
    let packed = program.sources.iter().map(|source| PackedSource {
        extent: packed_extent(&source.extent, program.windows),
        place: match source.from {
            SourceLocation::Own(buffer) => place_of(buffer),
            _ => place::BOARD,
        },
        peer: source.peer,
        publication: source.publication,
        stage: source.stage,
    });
    packed.collect()
}

/// Appends a list, padded to eight bytes, and returns its offset.
fn append<T: Pod>(bytes: &mut Vec<u8>, list: &[T]) -> u64 {
    let start = bytes.len();
    bytes.extend_from_slice(bytemuck::cast_slice(list));
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    start as u64
}

fn append_numberings(bytes: &mut Vec<u8>, numberings: &[Numbering]) -> u64 {
    let packed: Vec<PackedNumbering> = numberings
        .iter()
        .map(|numbering| PackedNumbering {
            folds: numbering.folds,
            windows: numbering.windows,
            first: numbering.first,
            befores: numbering.before.len() as u32,
            before: append(bytes, &numbering.before),
            sum: append(bytes, &numbering.sum),
            sums: numbering.sum.len() as u32,
            unused: 0,
        })
        .collect();
    append(bytes, &packed)
}

// ---- Lanes

/// Bytes of this rank that a fold reads or writes, and how they are cut.
pub(super) struct Touch {
    /// In the memory of input and output, or in scratch.
    is_scratch: bool,
    bytes: Range<usize>,
    extent: Extent,
    is_write: bool,
}

impl Touch {
    fn new(
        buffer: Buffer,
        extent: Extent,
        windows: u32,
        places: BufferPlaces,
        is_write: bool,
    ) -> Self {
        let base = match buffer {
            Buffer::Input => places.input,
            Buffer::Output => places.output,
            Buffer::Scratch => 0,
        };
        let start = base + extent.start;
        let bytes = start..start + extent.bytes(windows) as usize;
        let extent = Extent { start, ..extent };
        Self { is_scratch: buffer == Buffer::Scratch, bytes, extent, is_write }
    }
}

/// True if some lane may touch bytes that another lane of the rank writes.
pub(super) fn crosses_lanes(mut touches: Vec<Touch>) -> bool {
    touches.retain(|touch| !touch.bytes.is_empty());
    touches.sort_by_key(|touch| (touch.is_scratch, touch.bytes.start));
    touches.iter().enumerate().any(|(at, touch)| {
        let overlaps = |other: &&Touch| {
            other.is_scratch == touch.is_scratch && other.bytes.start < touch.bytes.end
        };
        let mut overlapping = touches[at + 1..].iter().take_while(overlaps);
        overlapping.any(|other| (touch.is_write || other.is_write) && touch.extent != other.extent)
    })
}

pub(super) fn touches(program: &Program, places: BufferPlaces) -> Vec<Touch> {
    let mut touches = Vec::new();
    let touch =
        |buffer, extent, is_write| Touch::new(buffer, extent, program.windows, places, is_write);
    for fold in &program.folds {
        touches.extend(fold.into.map(|buffer| touch(buffer, fold.extent, true)));
        for source in &program.sources[fold.first as usize..][..usize::from(fold.count)] {
            if let SourceLocation::Own(buffer) = source.from {
                touches.push(touch(buffer, source.extent, false));
            }
        }
    }
    touches
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACES: BufferPlaces = BufferPlaces { input: 0, output: 8 };

    fn touch(buffer: Buffer, start: usize, len: usize, is_write: bool) -> Touch {
        Touch::new(buffer, Extent::new(start, len, 2, 4), 2, PLACES, is_write)
    }

    #[test]
    fn bytes_that_are_cut_differently_cross_lanes() {
        let written = || touch(Buffer::Output, 0, 10, true);
        let crosses = |other| crosses_lanes(vec![other, written()]);
        assert!(!crosses(touch(Buffer::Output, 0, 10, false)));
        // The same bytes through the input, which begins eight bytes before the output.
        assert!(!crosses(touch(Buffer::Input, 2, 10, false)));
        assert!(crosses(touch(Buffer::Input, 3, 10, false)));
        assert!(crosses(touch(Buffer::Output, 0, 9, false)));
        assert!(!crosses(touch(Buffer::Output, 10, 9, false)));
        assert!(!crosses(touch(Buffer::Scratch, 0, 9, true)));
        let read = touch(Buffer::Output, 5, 10, false);
        assert!(!crosses_lanes(vec![read, touch(Buffer::Output, 0, 10, false)]));
    }
}
