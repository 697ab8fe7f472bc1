//! Reads from a checkpoint only the numbers that a rank needs, directly into the rank's buffers.
//!
//! What it does: a part's file is compared with its digest piece by piece; its header lists its runs
//! of the whole model; and the elements that this rank needs are read from their offsets in the file
//! into the rank's own buffers. A rank holds its own numbers, a header, and a flag for each of its
//! parameters: 13 bytes a parameter, of which the numbers are 12.
//!
//! What is sharded: nothing more. Which collective runs where: none. Cost: each rank reads every
//! file for its digest, and its own numbers again.

use crate::train::checkpoint::manifest::{PartDigest, part_name};
use crate::train::checkpoint::part::{PartHeader, open_part};
use crate::train::checkpoint::reshard::{MissingParameters, ParameterRun};
use crate::train::checkpoint::{CheckpointError, damaged, failed};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// The numbers that a rank needs, and whether they have been read.
#[derive(Clone, Debug)]
pub(super) struct WantedNumbers {
    /// Runs of the whole model that do not overlap, ascending, and where each begins in the
    /// buffers.
    wanted: Vec<(ParameterRun, usize)>,
    /// Weights, and both averages.
    pub(super) buffers: [Vec<f32>; 3],
    read: Vec<bool>,
}

impl WantedNumbers {
    /// Wants these runs, one after the other in each buffer.
    pub(super) fn new(runs: &[ParameterRun]) -> Self {
        Self::of(runs, [true; 3])
    }

    /// Wants the weights of these runs, without the averages.
    pub(super) fn weights(runs: &[ParameterRun]) -> Self {
        Self::of(runs, [true, false, false])
    }

    fn of(runs: &[ParameterRun], buffers: [bool; 3]) -> Self {
        let mut at = 0;
        let mut wanted: Vec<(ParameterRun, usize)> = Vec::with_capacity(runs.len());
        for run in runs {
            wanted.push((*run, at));
            at += run.len;
        }
        wanted.sort();
        let buffers = buffers.map(|wanted| vec![0.0; if wanted { at } else { 0 }]);
        Self { wanted, buffers, read: vec![false; at] }
    }

    /// Reads the needed elements of `run`, whose numbers begin at offset `at` in each of `tensors` of
    /// `file`.
    fn take(
        &mut self,
        run: ParameterRun,
        at: usize,
        (file, header): (&File, &PartHeader),
    ) -> std::io::Result<()> {
        let end = run.start + run.len;
        let first = self.wanted.partition_point(|(own, _)| own.start + own.len <= run.start);
        for (own, place) in &self.wanted[first..] {
            if own.start >= end {
                break;
            }
            let start = own.start.max(run.start);
            let len = end.min(own.start + own.len) - start;
            let to = place + start - own.start;
            let from = at + start - run.start;
            for (buffer, start) in self.buffers.iter_mut().zip(&header.starts) {
                // An average that the optimizer did not have stands for zeros.
                let Some(start) = start.filter(|_| !buffer.is_empty()) else { continue };
                let bytes = bytemuck::cast_slice_mut(&mut buffer[to..to + len]);
                file.read_exact_at(bytes, start + 4 * from as u64)?;
            }
            self.read[to..to + len].fill(true);
        }
        Ok(())
    }

    /// Checks that everything was read.
    ///
    /// # Errors
    /// The first run of the whole model that no part has.
    pub(super) fn check(&self) -> Result<(), MissingParameters> {
        for (run, place) in &self.wanted {
            let mut flags = self.read[*place..place + run.len].iter();
            if let Some(first) = flags.position(|read| !read) {
                let missing = 1 + flags.take_while(|read| !**read).count();
                let start = run.start + first;
                return Err(MissingParameters(ParameterRun { start, len: missing }));
            }
        }
        Ok(())
    }
}

/// Reads the elements `wanted` from the parts of the checkpoint in `place`, each compared with its
/// digest first.
pub(super) fn read_wanted(
    place: &Path,
    parts: &[PartDigest],
    wanted: &mut WantedNumbers,
) -> Result<(), CheckpointError> {
    for (rank, digest) in parts.iter().enumerate() {
        let path = place.join(part_name(rank));
        let file = open_part(&path, rank, digest, parts)?;
        let header = PartHeader::read(&file, digest.bytes).map_err(failed(&path))?;
        let header = header.map_err(|why| damaged(&path, Some(rank), why))?;
        let mut at = 0;
        for run in &header.runs {
            wanted.take(*run, at, (&file, &header)).map_err(failed(&path))?;
            at += run.len;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_numbers_are_named_by_the_whole_model() {
        let run = |start, len| ParameterRun { start, len };
        let mut wanted = WantedNumbers::new(&[run(8, 4), run(2, 2)]);
        assert_eq!(wanted.check(), Err(MissingParameters(run(2, 2))));
        wanted.read[4..6].fill(true);
        wanted.read[0] = true;
        assert_eq!(wanted.check(), Err(MissingParameters(run(9, 3))));
        wanted.read.fill(true);
        assert_eq!(wanted.check(), Ok(()));
    }
}
