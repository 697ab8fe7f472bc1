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
use crate::train::checkpoint::part::{NAMES, open_part, parse_runs};
use crate::train::checkpoint::reshard::{MissingParameters, ParameterRun};
use crate::train::checkpoint::{CheckpointError, damaged, failed};
use safetensors::Dtype;
use safetensors::tensor::Metadata;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// The most bytes of a header, which is the format's own limit.
const MOST_HEADER: u64 = 100_000_000;

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
    fn take(&mut self, run: ParameterRun, at: usize, part: &PartFile) -> std::io::Result<()> {
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
            for (buffer, tensor) in self.buffers.iter_mut().zip(&part.tensors) {
                // An average that the optimizer did not have stands for zeros.
                let Some(offset) = tensor.filter(|_| !buffer.is_empty()) else { continue };
                let bytes = bytemuck::cast_slice_mut(&mut buffer[to..to + len]);
                part.file.read_exact_at(bytes, offset + 4 * from as u64)?;
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

/// The open file of a part, and where each tensor begins in it; `None` for an empty one.
struct PartFile {
    file: File,
    tensors: [Option<u64>; 3],
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
        let header = header(&file, digest.bytes).map_err(failed(&path))?;
        let parsed = header.ok_or_else(|| "its header is cut short".to_owned());
        let parsed = parsed.and_then(|(header, data)| parse(&header, data, digest.bytes));
        let (runs, tensors) = parsed.map_err(|why| damaged(&path, Some(rank), why))?;
        let part = PartFile { file, tensors };
        let mut at = 0;
        for run in runs {
            wanted.take(run, at, &part).map_err(failed(&path))?;
            at += run.len;
        }
    }
    Ok(())
}

/// The header of a file of `length` bytes, and where its data begin; `None` if it has none.
fn header(file: &File, length: u64) -> std::io::Result<Option<(Vec<u8>, u64)>> {
    if length < 8 {
        return Ok(None);
    }
    let mut size = [0; 8];
    file.read_exact_at(&mut size, 0)?;
    let size = u64::from_le_bytes(size);
    if size > MOST_HEADER || size > length - 8 {
        return Ok(None);
    }
    let mut header = vec![0; size as usize];
    file.read_exact_at(&mut header, 8)?;
    Ok(Some((header, 8 + size)))
}

/// The runs of a part, and where its tensors begin. All sizes agree.
fn parse(
    header: &[u8],
    data: u64,
    length: u64,
) -> Result<(Vec<ParameterRun>, [Option<u64>; 3]), String> {
    let metadata: Metadata = serde_json::from_slice(header).map_err(|why| why.to_string())?;
    let runs = parse_runs(metadata.metadata().as_ref())?;
    let numbers = runs.iter().map(|run| run.len).fold(0usize, usize::saturating_add);
    let mut tensors = [None; 3];
    for (tensor, name) in tensors.iter_mut().zip(NAMES) {
        let info = metadata.info(name).ok_or_else(|| format!("it has no {name}"))?;
        if info.dtype != Dtype::F32 {
            return Err(format!("its {name} are {:?} and not F32", info.dtype));
        }
        let (start, end) = info.data_offsets;
        let bytes = end.checked_sub(start).ok_or("a tensor ends before it begins")?;
        let empty = bytes == 0 && name != NAMES[0];
        if !empty && Some(bytes) != numbers.checked_mul(4) {
            return Err(format!("its runs have {numbers} numbers, and its {name} {bytes} bytes"));
        }
        let inside = data.checked_add(end as u64).is_some_and(|end| end <= length);
        if !inside {
            return Err(format!("its {name} end after the file"));
        }
        *tensor = (!empty).then(|| data + start as u64);
    }
    Ok((runs, tensors))
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

    #[test]
    fn damaged_headers_are_refused_with_a_sentence() {
        for text in ["", "{}", "[]", "{\"__metadata__\":{\"runs\":\"[[0,1]]\"}}"] {
            assert!(!parse(text.as_bytes(), 100, 1000).unwrap_err().is_empty(), "{text}");
        }
        let of = |offsets: &str| {
            let tensor = |name: &str| {
                format!("\"{name}\":{{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":{offsets}}}")
            };
            let names = NAMES.map(tensor).join(",");
            format!("{{\"__metadata__\":{{\"runs\":\"[[0,2]]\"}},{names}}}")
        };
        assert!(parse(of("[0,8]").as_bytes(), 100, 1000).is_err(), "tensors overlap");
    }
}
