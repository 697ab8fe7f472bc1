//! `train export`: writes trained weights for other tools.

use crate::output;
use crate::output::files;
use anyhow::Context;
use maypole_lab::export::export;
use maypole_trainer::train::checkpoint::history::latest;
use maypole_trainer::train::checkpoint::manifest::MANIFEST;
use std::path::PathBuf;

#[derive(clap::Args)]
pub(crate) struct ExportArgs {
    /// A checkpoint, or a folder of checkpoints, of which the last is taken.
    checkpoint: PathBuf,
    /// The file to write.
    file: PathBuf,
}

pub(crate) fn run(args: &ExportArgs) -> anyhow::Result<()> {
    let ExportArgs { checkpoint, file } = args;
    let place = if checkpoint.join(MANIFEST).exists() {
        Some(checkpoint.clone())
    } else {
        latest(checkpoint)?
    };
    let place = place.with_context(|| {
        format!("there is no checkpoint in {}: see --save", checkpoint.display())
    })?;
    files::try_file("export", file)?;
    let config = export(&place, file).with_context(|| format!("export to {}", file.display()))?;
    let mut text = format!("{} holds the weights of {}", file.display(), place.display());
    if config.merges.is_none() {
        text += ", but not what its tokens stand for: the checkpoint does not say";
    }
    Ok(output::line(text)?)
}
