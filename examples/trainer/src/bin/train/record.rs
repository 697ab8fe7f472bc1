//! The losses of a run in a file, for programs that compare or draw them: one JSON object a step.

use anyhow::Context;
use maypole_trainer::session::Report;
use serde::Serialize;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

/// The file of rank 0, if one is wanted.
pub(crate) struct Record(Option<(File, PathBuf)>);

/// `{"step":1,"loss":5.58,"norm":1.2,"rate":0.0003}`: steps count from 1, and the loss is that before the step.
#[derive(Serialize)]
struct Line {
    step: u64,
    #[serde(flatten)]
    report: Report,
}

impl Record {
    /// A new file, or the end of the one that is there if `done` steps were done before.
    pub(crate) fn new(path: Option<&Path>, done: u64) -> anyhow::Result<Self> {
        let Some(path) = path else { return Ok(Self(None)) };
        let mut options = OpenOptions::new();
        let options = if done > 0 { options.append(true) } else { options.write(true).truncate(true) };
        let file = options.create(true).open(path).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(Self(Some((file, path.to_owned()))))
    }

    /// Step number `step` is done.
    pub(crate) fn step(&mut self, step: u64, report: Report) -> anyhow::Result<()> {
        let Some((file, path)) = &mut self.0 else { return Ok(()) };
        let line = serde_json::to_string(&Line { step, report })? + "\n";
        file.write_all(line.as_bytes()).with_context(|| format!("cannot write {}", path.display()))
    }
}
