//! Going on from the last checkpoint.

use crate::options::Job;
use anyhow::bail;
use maypole_trainer::checkpoint::{Manifest, latest, load, manifest};
use maypole_trainer::config::Config;
use maypole_trainer::hybrid::Worker;
use maypole_trainer::optim::Rule;

/// Puts `worker` where the last checkpoint of the job was left, if there is one.
pub(crate) fn resume(worker: &mut Worker<f32>, job: &Job) -> anyhow::Result<()> {
    let Some(place) = job.save.as_deref().and_then(latest) else { return Ok(()) };
    if let Some([theirs, ours]) = differences(&manifest(&place)?, job) {
        let give = "give the options of then, or another folder to --save";
        bail!("{} was trained with {theirs}, and this run has {ours}: {give}", place.display());
    }
    load(&mut worker.session, &place)?;
    if worker.groups.world.rank() == 0 {
        println!("from {}", place.display());
    }
    Ok(())
}

/// The options in which a checkpoint's model and optimizer differ from the job's: its own, and those of the job.
fn differences(found: &Manifest, job: &Job) -> Option<[String; 2]> {
    let (theirs, ours) = (options(found.config.clone(), found.rule), options(job.config.clone(), job.rule));
    let different = |these: &[String], those: &[String]| {
        let pairs = these.iter().zip(those).filter(|(this, that)| this != that);
        pairs.map(|(this, _)| this.as_str()).collect::<Vec<_>>().join(", ")
    };
    (theirs != ours).then(|| [different(&theirs, &ours), different(&ours, &theirs)])
}

/// What says how large a model is, and what trains it.
fn options(config: Config, rule: Rule) -> Vec<String> {
    let Config { vocab, context, width, heads, layers, experts } = config;
    let sizes = [("context", context), ("width", width), ("heads", heads), ("layers", layers), ("experts", experts)];
    let mut options: Vec<String> = sizes.map(|(name, size)| format!("--{name} {size}")).to_vec();
    options.push(format!("a vocabulary of {vocab} (--bpe)"));
    options.push(format!("--optimizer {}", if rule == Rule::Sgd { "sgd" } else { "adamw" }));
    options
}
