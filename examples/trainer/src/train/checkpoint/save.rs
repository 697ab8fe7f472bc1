//! Writing: all ranks write concurrently, and the checkpoint appears atomically.

use crate::model::config::Config;
use crate::model::layout::ParameterLayout;
use crate::ranks::group::RankGroup;
use crate::ranks::shard::Shard;
use crate::train::checkpoint::files::{remove_folder, replace, replacing, sync_folder, write};
use crate::train::checkpoint::history::{folder_name, partial_name};
use crate::train::checkpoint::manifest::{FORMAT, MANIFEST, Manifest, PartDigest, part_name};
use crate::train::checkpoint::part::RankPart;
use crate::train::checkpoint::reshard::runs;
use crate::train::checkpoint::{CheckpointError, agree, failed};
use crate::train::trainer::{Parts, Trainer};
use std::fs;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Writes a checkpoint of `trainer` in `folder` and returns its path. All ranks call it, with the
/// same step.
///
/// # Errors
/// [`CheckpointError`]: the cause on a rank that has one, and the first cause on every other rank.
/// No checkpoint appears then, and its files are removed, unless it is complete.
pub fn save(trainer: &mut Trainer<f32>, folder: &Path) -> Result<PathBuf, CheckpointError> {
    if trainer.parts.store.diverges() {
        return Err(CheckpointError::Apart);
    }
    let place = folder.join(folder_name(trainer.step));
    let partial = folder.join(partial_name(trainer.step));
    let world = trainer.groups.world.clone();
    let saved = write_all(trainer, &world, &partial, &place);
    if world.rank() == 0 && saved.is_err() && !partial.join(MANIFEST).exists() {
        // No rank writes there any more. A failure to remove it is ignored: `saved` has the cause.
        let _ = remove_folder(&partial);
    }
    saved.map(|()| place)
}

fn write_all(
    trainer: &mut Trainer<f32>,
    world: &RankGroup,
    partial: &Path,
    place: &Path,
) -> Result<(), CheckpointError> {
    let first = world.rank() == 0;
    agree(world, if first { begin(partial) } else { Ok(()) })?;
    let rank = world.rank();
    let part = agree(world, write_part(trainer, rank, &partial.join(part_name(rank))))?;
    let digests = gather_digests(world, &part)?;
    let end = || {
        let manifest = manifest(trainer, digests);
        sync_folder(partial)?;
        replace(&partial.join(MANIFEST), &manifest.to_bytes())?;
        appear(partial, place)
    };
    agree(world, if first { end() } else { Ok(()) })
}

/// Makes an empty folder. Files that an interrupted run left under the same name must not become
/// part of this checkpoint.
fn begin(partial: &Path) -> Result<(), CheckpointError> {
    remove_folder(partial)?;
    fs::create_dir_all(partial).map_err(failed(partial))
}

fn manifest(trainer: &Trainer<f32>, parts: Vec<PartDigest>) -> Manifest {
    let Parts { clip, rate, .. } = &trainer.parts;
    Manifest {
        format: FORMAT,
        config: trainer.parts.store.layout().config.clone(),
        step: trainer.step,
        updates: trainer.optimizer().steps,
        rule: trainer.optimizer().rule,
        skipped: clip.skipped,
        scale: clip.scale,
        schedule: *rate,
        clip: clip.limit,
        settings: trainer.settings.clone(),
        parts,
    }
}

fn write_part(
    trainer: &mut Trainer<f32>,
    rank: usize,
    path: &Path,
) -> Result<PartDigest, CheckpointError> {
    let part = own_part(trainer);
    finite(&part, &trainer.parts.model.config)?;
    let bytes = part.to_bytes();
    let bytes = bytes.map_err(|why| failed(path)(io::Error::other(why)))?;
    write(path, &bytes)?;
    Ok(PartDigest::new(rank, &bytes))
}

/// Returns the numbers that this rank writes.
fn own_part(trainer: &mut Trainer<f32>) -> RankPart {
    let copy = trainer.groups.copies.shard();
    let copies = trainer.parts.store.copies();
    let layout = trainer.parts.store.layout().clone();
    let owned = trainer.parts.store.local_shards();
    let ranges: Vec<_> =
        owned.iter().map(|run| run.offset..run.offset + run.weights.len()).collect();
    let mut list = Vec::new();
    let mut buffers = [Vec::new(), Vec::new(), Vec::new()];
    let averages = {
        let optimizer = trainer.parts.update.optimizer();
        [&optimizer.first, &optimizer.second]
    };
    for ((part, state), run) in divide(&ranges, copies, copy).into_iter().zip(&owned) {
        buffers[0].extend_from_slice(&run.weights[part.start - run.offset..part.end - run.offset]);
        for (buffer, average) in buffers[1..].iter_mut().zip(averages) {
            buffer.extend_from_slice(average.get(state..state + part.len()).unwrap_or(&[]));
        }
        list.extend(runs(&layout, part));
    }
    RankPart { runs: list, buffers }
}

/// Refuses numbers from which no run could resume. A checkpoint of them must not replace a good one.
fn finite(part: &RankPart, config: &Config) -> Result<(), CheckpointError> {
    for (buffer, what) in part.buffers.iter().zip(["weights", "averages", "averages of squares"]) {
        let Some(at) = buffer.iter().position(|number| !number.is_finite()) else { continue };
        let mut numbers = part.runs.iter().flat_map(|run| run.start..run.start + run.len);
        let place = numbers.nth(at);
        let whole = ParameterLayout::whole(config);
        let entry =
            whole.entries.iter().find(|it| place.is_some_and(|at| it.range().contains(&at)));
        let tensor = entry.map_or_else(String::new, |entry| entry.name.clone());
        return Err(CheckpointError::NotFinite { what, tensor });
    }
    Ok(())
}

/// Returns the part of each owned run that this rank writes, as a range of the flat buffer and the
/// place where its optimizer state begins.
fn divide(owned: &[Range<usize>], copies: usize, copy: Shard) -> Vec<(Range<usize>, usize)> {
    let copy = if copies == 1 { Shard::WHOLE } else { copy };
    let mut before = 0;
    let part = |run: &Range<usize>| {
        let mine = copy.range(run.len());
        let state = before + mine.start;
        before += run.len();
        (run.start + mine.start..run.start + mine.end, state)
    };
    owned.iter().map(part).collect()
}

/// Returns the digests of all parts, in rank order.
fn gather_digests(world: &RankGroup, own: &PartDigest) -> Result<Vec<PartDigest>, CheckpointError> {
    let bytes = world.gather(&[own.bytes])?;
    let hashes = world.gather(own.blake3.as_bytes())?;
    let hashes = hashes.as_chunks::<32>().0.iter().map(|hash| blake3::Hash::from_bytes(*hash));
    let parts = bytes.into_iter().zip(hashes).enumerate();
    Ok(parts
        .map(|(rank, (bytes, blake3))| PartDigest { file: part_name(rank), bytes, blake3 })
        .collect())
}

/// Gives the folder its name, so that the checkpoint survives a loss of power.
fn appear(partial: &Path, place: &Path) -> Result<(), CheckpointError> {
    replacing(partial, place).into_iter().try_for_each(|operation| operation())?;
    sync_folder(place.parent().unwrap_or(Path::new("")))
}
