//! Reading: restores a session on any mesh from a checkpoint.

use crate::ranks::group::RankGroup;
use crate::train::checkpoint::manifest::{MANIFEST, Manifest};
use crate::train::checkpoint::ranges::{WantedNumbers, read_wanted};
use crate::train::checkpoint::reshard::runs;
use crate::train::checkpoint::settings::{SettingChange, changes, refuse_others};
use crate::train::checkpoint::{CheckpointError, agree, damaged};
use crate::train::session::TrainingSession;
use std::path::Path;

/// Restores `session`, which may be on any mesh, from the checkpoint in `place`, and returns the
/// settings that differ from those of the run that wrote it. All ranks of `world` call it. Every
/// file is compared with its digest first.
///
/// # Errors
/// [`CheckpointError`]: the cause on a rank that has one, and the first cause on every other rank.
/// The session is then unchanged, unless a collective failed.
pub fn load(
    session: &mut TrainingSession<f32>,
    world: &RankGroup,
    place: &Path,
) -> Result<Vec<SettingChange>, CheckpointError> {
    let (manifest, digest) = agree(world, Manifest::read_with_digest(place))?;
    same_everywhere(world, &digest, &place.join(MANIFEST))?;
    let buffers = agree(world, read(session, &manifest, place))?;
    let differing = changes(&manifest, session);
    install(session, &manifest, buffers);
    session.store.share()?;
    Ok(differing)
}

/// Refuses a path that names different checkpoints on different hosts: ranks would go on from
/// different steps.
fn same_everywhere(
    world: &RankGroup,
    digest: &blake3::Hash,
    path: &Path,
) -> Result<(), CheckpointError> {
    let all = world.gather(digest.as_bytes())?;
    let digests = all.as_chunks::<32>().0;
    match digests.iter().position(|digest| *digest != digests[0]) {
        None => Ok(()),
        Some(rank) => Err(CheckpointError::Unlike { path: path.to_owned(), rank }),
    }
}

/// Returns the weights and both averages of the parameters that this rank updates.
fn read(
    session: &mut TrainingSession<f32>,
    manifest: &Manifest,
    place: &Path,
) -> Result<[Vec<f32>; 3], CheckpointError> {
    refuse_others(manifest, session, place)?;
    let layout = session.store.layout().clone();
    let owned = session.store.owned();
    let parts = owned.iter().map(|run| run.offset..run.offset + run.weights.len());
    let wanted: Vec<_> = parts.flat_map(|part| runs(&layout, part)).collect();
    let mut wanted = WantedNumbers::new(&wanted);
    read_wanted(place, &manifest.parts, &mut wanted)?;
    wanted.check().map_err(|why| damaged(&place.join(MANIFEST), None, why))?;
    Ok(wanted.buffers)
}

fn install(session: &mut TrainingSession<f32>, manifest: &Manifest, buffers: [Vec<f32>; 3]) {
    let [weights, first, second] = buffers;
    let mut rest = &weights[..];
    for run in &mut session.store.owned() {
        let (own, after) = rest.split_at(run.weights.len());
        run.weights.copy_from_slice(own);
        rest = after;
    }
    if session.optimizer.rule.states() > 0 {
        session.optimizer.first = first;
        session.optimizer.second = second;
    }
    session.step = manifest.step;
    session.optimizer.steps = manifest.updates;
    session.scale = session.scale.map(|own| manifest.scale.unwrap_or(own));
    session.plateau = session.plateau.map(|own| manifest.plateau.unwrap_or(own));
}
