//! The part of a checkpoint that one rank writes: three buffers in a safetensors file, and in its
//! header the runs of the whole model that their numbers are.

use crate::train::checkpoint::manifest::PartDigest;
use crate::train::checkpoint::reshard::ParameterRun;
use crate::train::checkpoint::{CheckpointError, damaged, failed, unreadable};
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};
use std::borrow::Cow;
use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// The tensors of a part: weights and both averages of the optimizer.
pub(super) const NAMES: [&str; 3] = ["weights", "first", "second"];

/// The numbers of one rank.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RankPart<'a> {
    /// The elements of the whole model that the numbers belong to.
    pub runs: Vec<ParameterRun>,
    /// Weights, averages of gradients and averages of squares; an average that the optimizer does
    /// not have is empty.
    pub buffers: [Cow<'a, [f32]>; 3],
}

impl RankPart<'_> {
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

    /// Reads the bytes of a file. All sizes in the result agree.
    ///
    /// # Errors
    /// A sentence that describes the damage.
    pub fn from_bytes(bytes: &[u8]) -> Result<RankPart<'static>, String> {
        let (_, header) = SafeTensors::read_metadata(bytes).map_err(|why| why.to_string())?;
        let tensors = SafeTensors::deserialize(bytes).map_err(|why| why.to_string())?;
        let runs = parse_runs(header.metadata().as_ref())?;
        let mut buffers: [Cow<'static, [f32]>; 3] = Default::default();
        for (buffer, name) in buffers.iter_mut().zip(NAMES) {
            let tensor = tensors.tensor(name).map_err(|why| why.to_string())?;
            if tensor.dtype() != Dtype::F32 {
                return Err(format!("its {name} are {:?} and not F32", tensor.dtype()));
            }
            *buffer = Cow::Owned(bytemuck::allocation::pod_collect_to_vec(tensor.data()));
        }
        let part = RankPart { runs, buffers };
        part.check()?;
        Ok(part)
    }

    fn check(&self) -> Result<(), String> {
        let lengths = self.runs.iter().map(|run| run.len);
        let length = lengths.fold(0usize, usize::saturating_add);
        let weights = self.buffers[0].len();
        if length != weights {
            return Err(format!("its runs have {length} numbers, and it has {weights} weights"));
        }
        for (name, buffer) in NAMES.iter().zip(&self.buffers).skip(1) {
            let averages = buffer.len();
            if averages != weights && averages != 0 {
                return Err(format!("it has {averages} {name} averages of {weights} weights"));
            }
        }
        Ok(())
    }
}

/// The runs that the header of a part names. No run ends beyond `usize::MAX`.
pub(super) fn parse_runs(
    header: Option<&HashMap<String, String>>,
) -> Result<Vec<ParameterRun>, String> {
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
        None => Ok(file),
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
