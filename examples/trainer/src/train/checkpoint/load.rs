//! Reading: restores a trainer on any mesh from a checkpoint.

use crate::ranks::group::RankGroup;
use crate::tensor::math::Real;
use crate::train::checkpoint::manifest::{MANIFEST, Manifest};
use crate::train::checkpoint::ranges::{WantedNumbers, read_wanted};
use crate::train::checkpoint::reshard::{ParameterRun, runs};
use crate::train::checkpoint::{CheckpointError, agree, damaged};
use crate::train::settings::RunRecord;
use crate::train::trainer::Trainer;
use maypole::Result;
use serde::{Deserialize, Serialize};
use std::fmt::Display;
use std::path::Path;

/// Restores `trainer`, which may be on any mesh, from the checkpoint in `place`, and returns the
/// record of the run that wrote it. All ranks call it. Every file is compared with its digest first.
///
/// # Errors
/// [`CheckpointError`]: the cause on a rank that has one, and the first cause on every other rank.
/// The trainer is then unchanged, unless a collective failed.
pub fn load(
    trainer: &mut Trainer<f32>,
    place: &Path,
) -> std::result::Result<Manifest, CheckpointError> {
    let world = &trainer.groups.world.clone();
    let (manifest, digest) = agree(world, Manifest::read_with_digest(place))?;
    same_everywhere(world, &digest, &place.join(MANIFEST))?;
    let buffers = agree(world, read(trainer, &manifest, place))?;
    let Manifest { step, updates, scale, skipped, .. } = manifest;
    let clip = &mut trainer.parts.clip;
    clip.skipped = skipped;
    clip.scale = clip.scale.map(|own| scale.unwrap_or(own));
    trainer.go_on_from(Progress { step, updates }, buffers)?;
    Ok(manifest)
}

/// The weights of the whole model in the checkpoint in `place`, and its manifest. Every file is
/// compared with its digest first.
///
/// # Errors
/// [`CheckpointError`].
pub fn read_whole(place: &Path) -> std::result::Result<(Manifest, Vec<f32>), CheckpointError> {
    let manifest = Manifest::read(place)?;
    let whole = ParameterRun { start: 0, len: manifest.config.parameters() };
    let mut wanted = WantedNumbers::weights(&[whole]);
    read_wanted(place, &manifest.parts, &mut wanted)?;
    wanted.check().map_err(|why| damaged(&place.join(MANIFEST), None, why))?;
    let [weights, ..] = wanted.buffers;
    Ok((manifest, weights))
}

/// Refuses a path that names different checkpoints on different hosts: ranks would resume from
/// different steps.
fn same_everywhere(
    world: &RankGroup,
    digest: &blake3::Hash,
    path: &Path,
) -> std::result::Result<(), CheckpointError> {
    let all = world.gather(digest.as_bytes())?;
    let digests = all.as_chunks::<32>().0;
    match digests.iter().position(|digest| *digest != digests[0]) {
        None => Ok(()),
        Some(rank) => Err(CheckpointError::Unlike { path: path.to_owned(), rank }),
    }
}

/// Returns the weights and both averages of the parameters that this rank updates.
fn read(
    trainer: &mut Trainer<f32>,
    manifest: &Manifest,
    place: &Path,
) -> std::result::Result<[Vec<f32>; 3], CheckpointError> {
    refuse_others(manifest, trainer, place)?;
    let layout = trainer.parts.store.layout().clone();
    let owned = trainer.parts.store.local_shards();
    let parts = owned.iter().map(|run| run.offset..run.offset + run.weights.len());
    let wanted: Vec<_> = parts.flat_map(|part| runs(&layout, part)).collect();
    let mut wanted = WantedNumbers::new(&wanted);
    read_wanted(place, &manifest.parts, &mut wanted)?;
    wanted.check().map_err(|why| damaged(&place.join(MANIFEST), None, why))?;
    Ok(wanted.buffers)
}

/// How far a training has come.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub struct Progress {
    /// Steps done.
    pub step: u64,
    /// Updates done: steps without those that were skipped.
    pub updates: u64,
}

impl<T: Real> Trainer<T> {
    /// Goes on from `progress`, with the weights and both averages of the parameters that this rank
    /// updates, run after run. Collective.
    ///
    /// # Errors
    /// As the collectives of the store.
    ///
    /// # Panics
    /// If there are fewer weights than this rank updates.
    pub fn go_on_from(&mut self, progress: Progress, numbers: [Vec<T>; 3]) -> Result<()> {
        let [weights, first, second] = numbers;
        let mut rest = &weights[..];
        for run in &mut self.parts.store.local_shards() {
            let (own, after) = rest.split_at(run.weights.len());
            run.weights.copy_from_slice(own);
            rest = after;
        }
        let optimizer = self.optimizer_mut();
        if optimizer.rule.states() > 0 {
            optimizer.first = first;
            optimizer.second = second;
        }
        optimizer.steps = progress.updates;
        self.step = progress.step;
        self.parts.store.all_gather_params()
    }
}

/// Refuses a trainer with another model, optimizer or vocabulary than the checkpoint's.
fn refuse_others(
    manifest: &Manifest,
    trainer: &Trainer<f32>,
    place: &Path,
) -> std::result::Result<(), CheckpointError> {
    same(place, &manifest.config, &trainer.parts.store.layout().config)?;
    same(place, &manifest.rule, &trainer.optimizer().rule)?;
    let (Some(before), Some(now)) = (&manifest.settings, &trainer.settings) else { return Ok(()) };
    let tokens = |settings: &RunRecord| {
        format!("tokens of the vocabulary {:016x}", settings.data.vocabulary)
    };
    same(place, &tokens(before), &tokens(now))
}

fn same(
    path: &Path,
    theirs: &impl Display,
    ours: &impl Display,
) -> std::result::Result<(), CheckpointError> {
    let theirs = theirs.to_string();
    let ours = ours.to_string();
    if theirs == ours {
        return Ok(());
    }
    Err(CheckpointError::Other { path: path.to_owned(), theirs, ours })
}
