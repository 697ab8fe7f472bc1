//! Checkpoints: each rank writes what it updates, and any mesh can go on from it.
//!
//! * **Sharded:** the writing. No rank gathers the model; the copies of a data-parallel group write
//!   a part each.
//! * **Collective:** one number a rank, three times: all were able to begin, all have written, the
//!   name is there.
//! * **Cost:** 12 bytes a parameter with AdamW (weights and two averages), divided by all ranks.
//!
//! A checkpoint is a folder `step-00000100` with `manifest.json` and one `rank-000.safetensors` a
//! rank, which says in its header which runs of the whole model its numbers are (see
//! [`reshard`](crate::train::reshard)). It appears in one moment: files are written and flushed in
//! `step-00000100.partial`, and the folder gets its name when all ranks are done. A run that is
//! killed while it writes leaves a folder that is never read.
//!
//! A run that resumes on the same mesh goes on as if it had not stopped, to the last bit: rows and
//! rates are functions of the step, so there is no state besides, but for the scale of losses in
//! `f16`. Local SGD is the exception: its ranks have an optimizer each, and a checkpoint has one.
//! Experts [move](crate::expert_parallel::rebalance) by loads that are counted from the last
//! move on: a checkpoint of a step at which they did not move has lost the count, so that they may
//! move otherwise, which changes losses by rounding alone.

use crate::model::config::Config;
use crate::model::layout::ParameterLayout;
use crate::ranks::group::RankGroup;
use crate::ranks::shard::Shard;
use crate::tensor::precision::LossScale;
use crate::train::optim::Rule;
use crate::train::reshard::{ParameterRun, RunPool, runs};
use crate::train::session::TrainingSession;
use crate::train::text::DataFingerprint;
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::fmt;
use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// The contents of the manifest, which is written once for all ranks.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Manifest {
    /// The model.
    pub config: Config,
    /// Steps done.
    pub step: u64,
    /// Steps that the optimizer took: fewer, if some were skipped.
    pub updates: u64,
    /// The optimizer.
    pub rule: Rule,
    /// What losses are multiplied by, if they are, and what it was made of.
    pub scale: Option<LossScale>,
    /// What it was trained on, if that was said.
    pub source: Option<DataFingerprint>,
    /// Files.
    pub ranks: usize,
}

/// Why a checkpoint was not written or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CheckpointError {
    /// A file cannot be written or read. The disk's fault, or the path's.
    #[error("{path}: {why}")]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        why: io::Error,
    },
    /// A file is not what this module writes.
    #[error("{path} is no part of a checkpoint: {why}")]
    Damaged {
        /// Which.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The checkpoint is of another model, another optimizer, or other tokens.
    #[error("{path} has {theirs}, and this run {ours}: give it the same, or a folder of its own")]
    Other {
        /// Which.
        path: PathBuf,
        /// What it has.
        theirs: String,
        /// What this run has.
        ours: String,
    },
    /// Ranks [train apart](crate::data_parallel::local_sgd).
    #[error(
        "ranks that train apart have an optimizer each, and a checkpoint has one: save with another sharding"
    )]
    Apart,
    /// Another rank could not write its part; it says why.
    #[error("rank {0} could not write its part")]
    Rank(usize),
    /// Ranks could not tell one another how it went.
    #[error(transparent)]
    Collective(#[from] maypole::Error),
}

/// Writes a checkpoint of `session` below `folder` and returns where. All ranks of `world` call it,
/// with the same step; `copy` says which of the ranks that update the same parameters this one is.
///
/// # Errors
/// [`CheckpointError`]; no checkpoint appears then.
pub fn save(
    session: &mut TrainingSession<f32>,
    world: &RankGroup,
    copy: Shard,
    folder: &Path,
) -> Result<PathBuf, CheckpointError> {
    if session.store.diverges() {
        return Err(CheckpointError::Apart);
    }
    let place = folder.join(format!("step-{:08}", session.step));
    let partial = place.with_extension("partial");
    let file = partial.join(format!("rank-{:03}.safetensors", world.rank()));
    let mut begun = Ok(());
    if world.rank() == 0 {
        // What an interrupted run left under the same name must not become part of this one.
        let fresh = |path: &Path| if path.exists() { fs::remove_dir_all(path) } else { Ok(()) };
        begun =
            fresh(&partial).and_then(|()| fs::create_dir_all(&partial)).map_err(failed(&partial));
    }
    agree(world, begun)?;
    agree(world, write_part(session, copy, &file))?;
    let mut named = Ok(());
    if world.rank() == 0 {
        named = write_manifest(session, world.world(), &partial)
            .and_then(|()| appear(&partial, &place));
    }
    agree(world, named)?;
    Ok(place)
}

/// All ranks go on, or all know that one could not.
fn agree(world: &RankGroup, mine: Result<(), CheckpointError>) -> Result<(), CheckpointError> {
    let failures = world.gather(&[u8::from(mine.is_err())])?;
    mine?;
    failures
        .iter()
        .position(|failed| *failed != 0)
        .map_or(Ok(()), |rank| Err(CheckpointError::Rank(rank)))
}

fn failed(path: &Path) -> impl Fn(io::Error) -> CheckpointError + use<> {
    let path = path.to_owned();
    move |why| CheckpointError::File { path: path.clone(), why }
}

/// Which runs of what this rank updates it writes, as parts of the flat buffer and of the
/// optimizer's state.
fn parts(owned: &[Range<usize>], copies: usize, copy: Shard) -> Vec<(Range<usize>, usize)> {
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

fn write_part(
    session: &mut TrainingSession<f32>,
    copy: Shard,
    file: &Path,
) -> Result<(), CheckpointError> {
    let copies = session.store.copies();
    let layout = session.store.layout().clone();
    let owned = session.store.owned();
    let ranges: Vec<_> =
        owned.iter().map(|run| run.offset..run.offset + run.weights.len()).collect();
    let mut list = Vec::<ParameterRun>::new();
    let mut buffers = [Vec::new(), Vec::new(), Vec::new()];
    for ((part, state), run) in parts(&ranges, copies, copy).into_iter().zip(&owned) {
        buffers[0].extend_from_slice(&run.weights[part.start - run.offset..part.end - run.offset]);
        for (buffer, average) in
            buffers[1..].iter_mut().zip([&session.optimizer.first, &session.optimizer.second])
        {
            buffer.extend_from_slice(average.get(state..state + part.len()).unwrap_or(&[]));
        }
        list.extend(runs(&layout, part));
    }
    let list: Vec<[usize; 2]> = list.into_iter().map(|run| [run.start, run.len]).collect();
    let header = HashMap::from([(
        "runs".to_owned(),
        serde_json::to_string(&list).expect("numbers are JSON"),
    )]);
    let view = |name, buffer: &'_ [f32]| -> (&'static str, Vec<u8>, usize) {
        (name, bytemuck::cast_slice(buffer).to_vec(), buffer.len())
    };
    let bytes =
        [view("weights", &buffers[0]), view("first", &buffers[1]), view("second", &buffers[2])];
    let tensors = bytes.iter().map(|(name, bytes, len)| {
        (*name, TensorView::new(Dtype::F32, vec![*len], bytes).expect("four bytes a number"))
    });
    safetensors::serialize_to_file(tensors, Some(header), file)
        .map_err(|why| damaged(file, &why))?;
    File::open(file).and_then(|file| file.sync_all()).map_err(failed(file))
}

fn write_manifest(
    session: &TrainingSession<f32>,
    ranks: usize,
    folder: &Path,
) -> Result<(), CheckpointError> {
    let config = session.store.layout().config.clone();
    let path = folder.join("manifest.json");
    let TrainingSession { step, scale, source, .. } = *session;
    let updates = session.optimizer.steps;
    let rule = session.optimizer.rule;
    let manifest = Manifest { config, step, updates, rule, scale, source, ranks };
    let text = serde_json::to_vec_pretty(&manifest).expect("a manifest is JSON");
    fs::write(&path, text).and_then(|()| File::open(&path)?.sync_all()).map_err(failed(&path))
}

/// Gives the folder its name, so that it stays even if the power goes.
fn appear(partial: &Path, place: &Path) -> Result<(), CheckpointError> {
    let sync =
        |path: &Path| File::open(path).and_then(|folder| folder.sync_all()).map_err(failed(path));
    sync(partial)?;
    if place.exists() {
        fs::remove_dir_all(place).map_err(failed(place))?;
    }
    fs::rename(partial, place).map_err(failed(place))?;
    sync(place.parent().expect("it lies in a folder"))
}

/// The last checkpoint below `folder`, if there is one that is whole.
pub fn latest(folder: &Path) -> Option<PathBuf> {
    let entries = fs::read_dir(folder).ok()?.filter_map(Result::ok).map(|entry| entry.path());
    let whole = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        name.starts_with("step-")
            && path.extension().is_none()
            && path.join("manifest.json").exists()
    };
    entries.filter(whole).max()
}

/// What the manifest in `place` says.
///
/// # Errors
/// [`CheckpointError::File`] or [`CheckpointError::Damaged`].
pub fn manifest(place: &Path) -> Result<Manifest, CheckpointError> {
    let path = place.join("manifest.json");
    let text = fs::read(&path).map_err(failed(&path))?;
    serde_json::from_slice(&text).map_err(|why| damaged(&path, &why))
}

/// Puts `session`, which may be on any mesh, where the checkpoint in `place` was left. All ranks
/// call it.
///
/// # Errors
/// [`CheckpointError`]; the session is as it was unless ranks lost one another.
pub fn load(session: &mut TrainingSession<f32>, place: &Path) -> Result<(), CheckpointError> {
    let manifest = manifest(place)?;
    let layout = session.store.layout().clone();
    same(place, &manifest.config, &layout.config)?;
    same(place, &manifest.rule, &session.optimizer.rule)?;
    if let (Some(theirs), Some(ours)) = (manifest.source, session.source) {
        let tokens = |source: DataFingerprint| {
            format!("tokens of the vocabulary {:016x}", source.vocabulary)
        };
        same(place, &tokens(theirs), &tokens(ours))?;
    }
    let pool = read_all(place, manifest.ranks)?;
    let mut owned = session.store.owned();
    let mut buffers: [Vec<f32>; 3] = Default::default();
    for run in
        owned.iter().flat_map(|run| runs(&layout, run.offset..run.offset + run.weights.len()))
    {
        pool.read(run, &mut buffers).map_err(|why| damaged(place, &why))?;
    }
    let [mut weights, first, second] = buffers;
    for run in &mut owned {
        run.weights.copy_from_slice(&weights[..run.weights.len()]);
        weights.drain(..run.weights.len());
    }
    if session.optimizer.rule.states() > 0 {
        session.optimizer.first = first;
        session.optimizer.second = second;
    }
    session.step = manifest.step;
    session.optimizer.steps = manifest.updates;
    session.scale = session.scale.map(|own| manifest.scale.unwrap_or(own));
    Ok(session.store.share()?)
}

fn same(
    path: &Path,
    theirs: &impl fmt::Display,
    ours: &impl fmt::Display,
) -> Result<(), CheckpointError> {
    let theirs = theirs.to_string();
    let ours = ours.to_string();
    if theirs == ours {
        Ok(())
    } else {
        Err(CheckpointError::Other { path: path.to_owned(), theirs, ours })
    }
}

fn damaged(path: &Path, why: &dyn std::fmt::Display) -> CheckpointError {
    CheckpointError::Damaged { path: path.to_owned(), why: why.to_string() }
}

/// Weights and both averages of all ranks.
pub(crate) fn read_all(place: &Path, ranks: usize) -> Result<RunPool<3>, CheckpointError> {
    let mut pool = RunPool::default();
    for rank in 0..ranks {
        let path = place.join(format!("rank-{rank:03}.safetensors"));
        let bytes = fs::read(&path).map_err(failed(&path))?;
        read_part(&bytes, &mut pool).map_err(|why| damaged(&path, &why))?;
    }
    Ok(pool)
}

fn read_part(bytes: &[u8], pool: &mut RunPool<3>) -> Result<(), String> {
    let (_, header) = SafeTensors::read_metadata(bytes).map_err(|why| why.to_string())?;
    let tensors = SafeTensors::deserialize(bytes).map_err(|why| why.to_string())?;
    let list = header
        .metadata()
        .as_ref()
        .and_then(|header| header.get("runs"))
        .ok_or("its header names no runs")?;
    let list: Vec<[usize; 2]> = serde_json::from_str(list).map_err(|why| why.to_string())?;
    let list: Vec<ParameterRun> =
        list.into_iter().map(|[start, len]| ParameterRun { start, len }).collect();
    let buffer = |name| -> Result<Vec<f32>, String> {
        let tensor = tensors.tensor(name).map_err(|why| why.to_string())?;
        Ok(bytemuck::allocation::pod_collect_to_vec(tensor.data()))
    };
    let buffers = [buffer("weights")?, buffer("first")?, buffer("second")?];
    if buffers[0].len() != list.iter().map(|run| run.len).sum::<usize>() {
        return Err("its runs are not as long as its weights".to_owned());
    }
    pool.add(&list, buffers.each_ref().map(Vec::as_slice));
    Ok(())
}

/// Writes the weights of the checkpoint in `place` as one safetensors file, tensors by name: what
/// other tools read.
///
/// # Errors
/// [`CheckpointError`].
pub fn export(place: &Path, file: &Path) -> Result<(), CheckpointError> {
    let manifest = manifest(place)?;
    let layout = ParameterLayout::whole(&manifest.config);
    let pool = read_all(place, manifest.ranks)?;
    let mut tensors = Vec::new();
    for entry in &layout.entries {
        let mut buffers: [Vec<f32>; 3] = Default::default();
        let run = ParameterRun { start: entry.global, len: entry.len() };
        pool.read(run, &mut buffers).map_err(|why| damaged(place, &why))?;
        let shape = if entry.full[1] == 1 { vec![entry.full[0]] } else { entry.full.to_vec() };
        tensors.push((
            entry.name.clone(),
            shape,
            bytemuck::cast_slice::<f32, u8>(&buffers[0]).to_vec(),
        ));
    }
    let views = tensors.iter().map(|(name, shape, bytes)| {
        (name, TensorView::new(Dtype::F32, shape.clone(), bytes).expect("four bytes a number"))
    });
    safetensors::serialize_to_file(views, None, file).map_err(|why| damaged(file, &why))
}
