//! The check of a packed program, which a kernel walks without any check of its own: damaged bytes
//! are refused, or touch only memory that the check allows.

use crate::fuzz::Fuzz;
use maypole::algorithms::Algorithm;
use maypole::lower::{BufferPlaces, DeviceProgram, LoweringInput, lower};
use maypole::schedule::collective::Collective;
use maypole::schedule::hosts::Boards;
use maypole::schedule::{Layout, Placement};
use maypole_kernels::packed::{
    BufferNeeds, PACK, PackedExtent, PackedFold, PackedNumbering, PackedProgram, PackedSource,
    check, place,
};

const WORLD: usize = 4;
const COUNT: usize = 903;

/// The program of rank 1.
fn program(algorithm: Algorithm, collective: Collective, window: usize) -> Vec<u8> {
    let schedules = algorithm.schedules(collective, WORLD).unwrap();
    let blocks = if collective.is_blocked() { WORLD } else { 1 };
    let request = LoweringInput {
        collective,
        schedules: &schedules,
        layout: &Layout::even(COUNT.next_multiple_of(blocks), schedules[0].chunks),
        element: 4,
        boards: &Boards::new(&[0; WORLD]),
        window,
        fingerprint: 1,
    };
    let program = lower(&request, 1, Placement::Apart).unwrap();
    let places = BufferPlaces { input: 0, output: 1 << 20 };
    DeviceProgram::new(&program, 1, places).unwrap().bytes().to_vec()
}

fn programs() -> Vec<Vec<u8>> {
    vec![
        program(Algorithm::Ring, Collective::AllReduce, 200),
        program(Algorithm::OneShot, Collective::AllReduce, 32 << 10),
        program(Algorithm::Linear, Collective::Gather { root: 1 }, 200),
    ]
}

/// Reads the same places of the bytes as a kernel. Panics where a kernel would leave them.
struct Walk<'a> {
    bytes: &'a [u8],
    program: PackedProgram,
    needs: BufferNeeds,
}

impl<'a> Walk<'a> {
    fn new(bytes: &'a [u8], needs: BufferNeeds) -> Self {
        Self { bytes, program: PackedProgram::of(bytes).unwrap(), needs }
    }

    fn entry<T: bytemuck::Pod>(&self, list: u64, at: u32) -> T {
        let start = list as usize + at as usize * size_of::<T>();
        assert_eq!(list % 8, 0, "lists are aligned");
        bytemuck::pod_read_unaligned(&self.bytes[start..start + size_of::<T>()])
    }

    /// Window `k` of `extent` as bytes from, and how many.
    fn window(&self, extent: &PackedExtent, k: u32) -> (u64, u64) {
        let PackedExtent { start, quotient, remainder, lacks } = *extent;
        let skipped = u64::from(k) * quotient + u64::from(k.min(remainder));
        let packs = quotient + u64::from(k < remainder);
        let is_last = k + 1 == if quotient > 0 { self.program.windows } else { remainder };
        (start + skipped * PACK, packs * PACK - if is_last { u64::from(lacks) } else { 0 })
    }

    /// `bytes` bytes from `start` on lie in the buffer, and are elements there.
    fn touch(&self, buffer: u32, (start, bytes): (u64, u64)) {
        let length = match buffer {
            place::INPUT => self.needs.input,
            place::OUTPUT => self.needs.output,
            place::SCRATCH => self.needs.scratch,
            place::NOWHERE => return,
            other => panic!("no buffer has the number {other}"),
        };
        // Nothing is touched by an empty window, which may begin less than a pack behind the end.
        let length = if bytes == 0 { length.saturating_add(PACK - 1) } else { length };
        assert!(start + bytes <= length, "{start} + {bytes} of {length}");
        assert_eq!(start % u64::from(self.program.element), 0, "elements are aligned");
    }

    fn source(&self, source: &PackedSource, fold: &PackedFold, k: u32) {
        let (_, bytes) = self.window(&fold.extent, k);
        if source.place != place::BOARD {
            let (start, _) = self.window(&source.extent, k);
            return self.touch(source.place, (start, bytes));
        }
        assert!(bytes <= self.needs.publication);
        assert!(source.peer < self.program.ranks);
        let numbering: PackedNumbering = self.entry(self.program.numberings, source.peer);
        if numbering.windows != 1 {
            let at = |stage: u32, len: u32| stage.saturating_sub(numbering.first).min(len - 1);
            let _: u32 = self.entry(numbering.before, at(source.stage, numbering.befores));
            let clock = k.wrapping_add(source.stage);
            let _: u64 = self.entry(numbering.sum, at(clock, numbering.sums));
        }
    }

    /// Walks at most a few windows of every fold: the first ones and the last.
    fn walk(&self) {
        for stage in 0..=self.program.stages.min(1000) {
            let first: u32 = self.entry(self.program.first_of, stage);
            assert!(first <= self.program.fold_count);
        }
        for at in 0..self.program.fold_count {
            let fold: PackedFold = self.entry(self.program.folds, at);
            assert!((1..=16).contains(&fold.count));
            let last = self.program.windows - 1;
            for k in [0, 1.min(last), fold.extent.remainder.min(last), last] {
                let (start, bytes) = self.window(&fold.extent, k);
                self.touch(fold.into, (start, bytes));
                assert!(fold.audience == 0 || bytes <= self.needs.publication);
                for nth in 0..fold.count {
                    let source: PackedSource = self.entry(self.program.sources, fold.first + nth);
                    self.source(&source, &fold, k);
                }
            }
        }
    }
}

#[test]
fn programs_need_what_their_calls_have() {
    let [ring, one_shot, gather] = programs().try_into().unwrap();
    let bytes = COUNT as u64 * 4;
    let ring = check(&ring).unwrap();
    assert_eq!((ring.input, ring.output), (bytes, bytes));
    assert!(ring.publication <= 208, "a window of 200 bytes has 13 packs: {ring:?}");
    let one_shot = check(&one_shot).unwrap();
    assert_eq!((one_shot.input, one_shot.output, one_shot.scratch), (bytes, bytes, 0));
    assert_eq!(one_shot.publication, bytes.next_multiple_of(PACK), "whole packs");
    assert_eq!(one_shot.publications, 1);
    let gather = check(&gather).unwrap();
    assert_eq!((gather.input, gather.output), (226 * 4, 4 * 226 * 4));
}

/// A field of the first entry of a list, set to another value.
fn with<T: bytemuck::Pod>(bytes: &[u8], list: u64, edit: impl Fn(&mut T)) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    let place = &mut bytes[list as usize..][..size_of::<T>()];
    let mut entry: T = bytemuck::pod_read_unaligned(place);
    edit(&mut entry);
    place.copy_from_slice(bytemuck::bytes_of(&entry));
    bytes
}

#[test]
fn programs_that_leave_their_buffers_are_refused() {
    let bytes = program(Algorithm::Ring, Collective::AllReduce, 200);
    let header = PackedProgram::of(&bytes).unwrap();
    let refused = |bytes: &[u8], why: &str| {
        let error = check(bytes).unwrap_err();
        assert!(error.contains(why), "{error} instead of {why}");
    };
    let head = |edit: fn(&mut PackedProgram)| with(&bytes, 0, edit);
    let fold = |edit: fn(&mut PackedFold)| with(&bytes, header.folds, edit);
    let source = |edit: fn(&mut PackedSource)| with(&bytes, header.sources, edit);
    refused(&bytes[..40], "behind the end");
    refused(&bytes[..bytes.len() - 8], "length");
    refused(&head(|it| it.element = 3), "elements");
    refused(&head(|it| it.ranks = 65), "64 ranks");
    refused(&head(|it| it.me = 4), "rank does not exist");
    refused(&head(|it| it.windows = 0), "no window");
    refused(&head(|it| it.windows = u32::MAX), "windows");
    refused(&head(|it| it.stages = u32::MAX), "windows");
    refused(&head(|it| it.stages = 1), "stage");
    refused(&head(|it| it.folds += 4), "multiple of eight");
    refused(&head(|it| it.sources = u64::MAX - 7), "behind the end");
    refused(&fold(|it| it.count = 17), "16 sources");
    refused(&fold(|it| it.count = 0), "16 sources");
    refused(&fold(|it| it.first = u32::MAX), "sources");
    refused(&fold(|it| it.audience = 1 << 4), "reader");
    refused(&fold(|it| it.into = place::BOARD), "no buffer");
    refused(&fold(|it| it.extent.quotient = u64::MAX / 2), "too long");
    refused(&fold(|it| it.extent.start = u64::MAX - 8), "");
    refused(&source(|it| it.place = place::NOWHERE), "nowhere");
    refused(&source(|it| it.extent.start += 2), "no multiple of an element");
    refused(&source(|it| it.extent.quotient += 1), "another length");
}

/// The bytes with the length that a program declares, so that other checks are reached.
fn with_its_length(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    let length = (bytes.len() as u64).to_le_bytes();
    if let Some(field) = bytes.first_chunk_mut() {
        *field = length;
    }
    bytes
}

#[test]
fn fuzz_packed_programs() {
    Fuzz::new("packed").corpus(programs()).inputs(200_000).run(|bytes| {
        let _ = check(bytes);
        let bytes = with_its_length(bytes);
        match check(&bytes) {
            Err(why) => why,
            Ok(needs) => {
                Walk::new(&bytes, needs).walk();
                "a program".to_owned()
            }
        }
    });
}
