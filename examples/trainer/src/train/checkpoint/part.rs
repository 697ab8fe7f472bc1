//! The part of a checkpoint that one rank writes: three buffers in a safetensors file, and in its
//! header the runs of the whole model that their numbers are.

use crate::train::checkpoint::manifest::PartDigest;
use crate::train::checkpoint::reshard::ParameterRun;
use crate::train::checkpoint::{CheckpointError, damaged, failed, unreadable};
use safetensors::Dtype;
use safetensors::tensor::{Metadata, TensorView};
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read, Seek};
use std::path::Path;

/// The tensors of a part: weights and both averages of the optimizer.
const NAMES: [&str; 3] = ["weights", "first", "second"];

/// The most bytes of a header, which is the format's own limit.
const MOST_HEADER: u64 = 100_000_000;

/// The numbers of one rank.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RankPart {
    /// The elements of the whole model that the numbers belong to.
    pub runs: Vec<ParameterRun>,
    /// Weights, averages of gradients and averages of squares; an average that the optimizer does
    /// not have is empty.
    pub buffers: [Vec<f32>; 3],
}

impl RankPart {
    /// The bytes of the file.
    ///
    /// # Errors
    /// A sentence of the safetensors library, if the header has more than 100 MB.
    pub fn to_bytes(&self) -> Result<Vec<u8>, String> {
        let runs: Vec<[usize; 2]> = self.runs.iter().map(|run| [run.start, run.len]).collect();
        let runs = serde_json::to_string(&runs).expect("numbers are JSON");
        let header = HashMap::from([("runs".to_owned(), runs)]);
        let views = NAMES.iter().zip(&self.buffers).map(|(name, buffer)| {
            let bytes = bytemuck::cast_slice(buffer);
            let view = TensorView::new(Dtype::F32, vec![buffer.len()], bytes);
            (*name, view.expect("four bytes a number"))
        });
        safetensors::serialize(views, Some(header)).map_err(|why| why.to_string())
    }
}

/// The header of a part: the runs of its numbers, and where its tensors begin. All sizes agree.
#[derive(Clone, Debug)]
pub struct PartHeader {
    /// The elements of the whole model that the numbers belong to, as in [`RankPart`].
    pub runs: Vec<ParameterRun>,
    /// The byte of the file at which each tensor begins; `None` for an average that is empty.
    pub starts: [Option<u64>; 3],
}

impl PartHeader {
    /// Reads the beginning of a file of `length` bytes. The inner error is a sentence that describes
    /// the damage.
    ///
    /// # Errors
    /// As reading from the file.
    pub fn read(mut from: impl Read, length: u64) -> io::Result<Result<Self, String>> {
        let cut_short = || Ok(Err("its header is cut short".to_owned()));
        if length < 8 {
            return cut_short();
        }
        let mut size = [0; 8];
        from.read_exact(&mut size)?;
        let size = u64::from_le_bytes(size);
        if size > MOST_HEADER || size > length - 8 {
            return cut_short();
        }
        let mut header = vec![0; size as usize];
        from.read_exact(&mut header)?;
        Ok(Self::parse(&header, 8 + size, length))
    }

    /// Parses the text of a header of a file of `length` bytes, whose tensors begin at `data`.
    fn parse(header: &[u8], data: u64, length: u64) -> Result<Self, String> {
        let metadata: Metadata = serde_json::from_slice(header).map_err(|why| why.to_string())?;
        let runs = parse_runs(metadata.metadata().as_ref())?;
        let numbers = runs.iter().map(|run| run.len).fold(0usize, usize::saturating_add);
        let mut starts = [None; 3];
        for (place, name) in starts.iter_mut().zip(NAMES) {
            let info = metadata.info(name).ok_or_else(|| format!("it has no {name}"))?;
            if info.dtype != Dtype::F32 {
                return Err(format!("its {name} are {:?} and not F32", info.dtype));
            }
            let (start, end) = info.data_offsets;
            let bytes = end.checked_sub(start).ok_or("a tensor ends before it begins")?;
            let empty = bytes == 0 && name != NAMES[0];
            if !empty && Some(bytes) != numbers.checked_mul(4) {
                return Err(format!(
                    "its runs have {numbers} numbers, and its {name} {bytes} bytes"
                ));
            }
            let inside = data.checked_add(end as u64).is_some_and(|end| end <= length);
            if !inside {
                return Err(format!("its {name} end after the file"));
            }
            *place = (!empty).then(|| data + start as u64);
        }
        Ok(Self { runs, starts })
    }
}

/// The runs that the header of a part names. No run ends beyond `usize::MAX`.
fn parse_runs(header: Option<&HashMap<String, String>>) -> Result<Vec<ParameterRun>, String> {
    let text = header.and_then(|header| header.get("runs")).ok_or("its header names no runs")?;
    let runs: Vec<[usize; 2]> = serde_json::from_str(text).map_err(|why| why.to_string())?;
    if let Some([start, len]) = runs.iter().find(|[start, len]| start.checked_add(*len).is_none()) {
        return Err(format!("it has {len} numbers from number {start} on"));
    }
    Ok(runs.into_iter().map(|[start, len]| ParameterRun { start, len }).collect())
}

/// Opens a file that has the length and the digest that the manifest records. The digest is
/// computed piece by piece.
pub(super) fn open_part(
    path: &Path,
    rank: usize,
    digest: &PartDigest,
    parts: &[PartDigest],
) -> Result<File, CheckpointError> {
    let file = File::open(path).map_err(unreadable(path, Some(rank)))?;
    let length = file.metadata().map_err(failed(path))?.len();
    if length != digest.bytes {
        let way = if length < digest.bytes { "cut short" } else { "lengthened" };
        let why = format!("it was {way}: it has {length} bytes of {}", digest.bytes);
        return Err(damaged(path, Some(rank), why));
    }
    let mut hasher = blake3::Hasher::new();
    hasher.update_reader((&file).take(digest.bytes)).map_err(failed(path))?;
    match difference(hasher.finalize(), digest, parts) {
        Some(why) => Err(damaged(path, Some(rank), why)),
        None => {
            (&file).rewind().map_err(failed(path))?;
            Ok(file)
        }
    }
}

/// Returns the difference of a file with the digest `found` from the one that was written, if there
/// is one.
fn difference(found: blake3::Hash, digest: &PartDigest, parts: &[PartDigest]) -> Option<String> {
    if found == digest.blake3 {
        return None;
    }
    if let Some(other) = parts.iter().find(|part| part.blake3 == found) {
        return Some(format!("it is {}: files were exchanged", other.file));
    }
    let written = digest.blake3;
    Some(format!(
        "it was changed after it was written: its digest is {found}, and the manifest has {written}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damaged_headers_are_refused_with_a_sentence() {
        for text in ["", "{}", "[]", "{\"__metadata__\":{\"runs\":\"[[0,1]]\"}}"] {
            assert!(
                !PartHeader::parse(text.as_bytes(), 100, 1000).unwrap_err().is_empty(),
                "{text}"
            );
        }
        let of = |offsets: &str| {
            let tensor = |name: &str| {
                format!("\"{name}\":{{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":{offsets}}}")
            };
            let names = NAMES.map(tensor).join(",");
            format!("{{\"__metadata__\":{{\"runs\":\"[[0,2]]\"}},{names}}}")
        };
        assert!(PartHeader::parse(of("[0,8]").as_bytes(), 100, 1000).is_err(), "tensors overlap");
    }
}
