//! The losses of a run in a file, for programs that compare or draw them: one JSON object a step.

use anyhow::Context;
use maypole_trainer::train::session::StepReport;
use serde::{Deserialize, Serialize};
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

/// The file of losses that rank 0 writes, if `--losses` names one.
pub(crate) struct LossRecord(Option<(File, PathBuf)>);

/// `{"step":1,"loss":5.58,"norm":1.2,"rate":0.0003}`: steps count from 1, and the loss is that
/// before the step.
#[derive(Serialize)]
struct LossLine {
    step: u64,
    #[serde(flatten)]
    report: StepReport,
}

/// The step of an existing line. Its numbers are `null` where they are not finite.
#[derive(Deserialize)]
struct EarlierLine {
    step: u64,
    loss: Option<f64>,
}

impl LossRecord {
    /// A new file, or, if `done` steps were done before, the one that is there up to that step; and
    /// the losses in it, of the last steps before that one without a gap.
    pub(crate) fn new(path: Option<&Path>, done: u64) -> anyhow::Result<(Self, Vec<f64>)> {
        let Some(path) = path else { return Ok((Self(None), Vec::new())) };
        let cannot = || format!("--losses: cannot write {}", path.display());
        let earlier =
            if done > 0 { cut_back(path, done).with_context(cannot)? } else { Vec::new() };
        let mut options = OpenOptions::new();
        let options =
            if done > 0 { options.append(true) } else { options.write(true).truncate(true) };
        let file = options.create(true).open(path).with_context(cannot)?;
        Ok((Self(Some((file, path.to_owned()))), earlier))
    }

    /// Writes the line of step number `step`.
    pub(crate) fn step(&mut self, step: u64, report: StepReport) -> anyhow::Result<()> {
        let Some((file, path)) = &mut self.0 else { return Ok(()) };
        let line = serde_json::to_string(&LossLine { step, report })? + "\n";
        file.write_all(line.as_bytes())
            .with_context(|| format!("--losses: cannot write {}", path.display()))
    }
}

/// Takes out of a file what comes after step `done`: a run that was killed did steps after its last
/// checkpoint, which are done again. Pipes, terminals and wherever `/dev/stdout` leads have no
/// past.
fn cut_back(path: &Path, done: u64) -> std::io::Result<Vec<f64>> {
    if !path.is_file() || path.starts_with("/dev") {
        return Ok(Vec::new());
    }
    let text = fs::read_to_string(path)?;
    let path = path.canonicalize()?;
    let read = |line| serde_json::from_str::<EarlierLine>(line).ok().map(|it| (line, it));
    let kept: Vec<(&str, EarlierLine)> =
        text.lines().filter_map(read).filter(|(_, it)| it.step <= done).collect();
    let lines: String = kept.iter().map(|(line, _)| format!("{line}\n")).collect();
    if lines != text {
        // In one moment, so that a run that is killed here leaves the old file or the new one.
        let mut new = path.clone().into_os_string();
        new.push(".partial");
        fs::write(&new, lines)?;
        fs::rename(&new, &path)?;
    }
    let steps =
        kept.iter().rev().zip((1..=done).rev()).take_while(|((_, it), step)| it.step == *step);
    let mut losses: Vec<f64> = steps.map(|((_, it), _)| it.loss.unwrap_or(f64::NAN)).collect();
    losses.reverse();
    Ok(losses)
}
