//! The losses of a run in a file, for programs that compare or draw them: one JSON object a step.

use anyhow::Context;
use maypole_trainer::train::watch::StepReport;
use serde::{Deserialize, Serialize};
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

/// The file of losses that rank 0 writes, if `--losses` names one.
pub(super) struct LossRecord(Option<(File, PathBuf)>);

/// The last two steps of this process: the ranks of a run are never further apart.
#[derive(Debug, Default)]
pub(super) struct LastReports([Option<(u64, StepReport)>; 2]);

impl LastReports {
    pub(super) fn push(&mut self, step: u64, report: StepReport) {
        self.0 = [self.0[1], Some((step, report))];
    }

    fn of(&self, step: u64) -> Option<StepReport> {
        self.0.iter().flatten().find(|it| it.0 == step).map(|it| it.1)
    }
}

/// `{"step":1,"loss":5.58,"norm":1.2,"rate":0.0003}`: steps count from 1, and the loss is that
/// before the step.
#[derive(Serialize)]
struct LossLine {
    step: u64,
    #[serde(flatten)]
    report: StepReport,
}

/// The step of an existing line.
#[derive(Deserialize)]
struct EarlierLine {
    step: u64,
}

/// The most bytes of a line: several times what [`LossLine`] takes.
const MOST_BYTES: u64 = 1_024;

impl LossRecord {
    /// Begins a new file. If `done` steps were done before, continues the existing file after step
    /// `done`. A rank that wrote the file until it died may have died before it wrote the last line:
    /// `reports` have that step.
    pub(super) fn new(
        path: Option<&Path>,
        done: u64,
        reports: &LastReports,
    ) -> anyhow::Result<Self> {
        let Some(report) = reports.of(done) else { return Self::open(path, done) };
        let mut record = Self::open(path, done - 1)?;
        record.step(done, report)?;
        Ok(record)
    }

    fn open(path: Option<&Path>, done: u64) -> anyhow::Result<Self> {
        let Some(path) = path else { return Ok(Self(None)) };
        let cannot = || format!("--losses: cannot write {}", path.display());
        if done > 0 {
            cut_back(path, done).with_context(cannot)?;
        }
        let mut options = OpenOptions::new();
        let options =
            if done > 0 { options.append(true) } else { options.write(true).truncate(true) };
        let file = options.create(true).open(path).with_context(cannot)?;
        Ok(Self(Some((file, path.to_owned()))))
    }

    /// Writes the line of step number `step`.
    pub(super) fn step(&mut self, step: u64, report: StepReport) -> anyhow::Result<()> {
        let Some((file, path)) = &mut self.0 else { return Ok(()) };
        let line = serde_json::to_string(&LossLine { step, report })? + "\n";
        file.write_all(line.as_bytes())
            .with_context(|| format!("--losses: cannot write {}", path.display()))
    }
}

/// Removes the lines after step `done` from a file: a killed run had done steps after its last
/// checkpoint, which are repeated. Pipes, terminals and paths under `/dev` are not truncated.
fn cut_back(path: &Path, done: u64) -> io::Result<()> {
    if !path.is_file() || path.starts_with("/dev") {
        return Ok(());
    }
    let path = path.canonicalize()?;
    let mut new = path.clone().into_os_string();
    new.push(".partial");
    let new = Path::new(&new);
    // Renaming is atomic: a run that is killed here leaves the old file or the new one.
    let kept = keep_until(&path, new, done).and_then(|()| fs::rename(new, &path));
    if kept.is_err() {
        // The error that is returned is the cause.
        let _ = fs::remove_file(new);
    }
    kept
}

/// Copies the lines of steps up to `done` to another file. Holds one line at a time, so the file may
/// be longer than memory.
fn keep_until(from: &Path, to: &Path, done: u64) -> io::Result<()> {
    let mut text = BufReader::new(File::open(from)?);
    let mut kept = BufWriter::new(File::create(to)?);
    let mut line = Vec::new();
    while read_line(&mut text, &mut line)? {
        let earlier: Option<EarlierLine> = serde_json::from_slice(&line).ok();
        if earlier.is_some_and(|it| it.step <= done) {
            kept.write_all(line.trim_ascii_end())?;
            kept.write_all(b"\n")?;
        }
    }
    kept.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()
}

/// Reads the next line; false at the end. Of a line of more than [`MOST_BYTES`] only the beginning
/// is kept, which is not valid JSON.
fn read_line(text: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<bool> {
    line.clear();
    text.take(MOST_BYTES).read_until(b'\n', line)?;
    if line.len() as u64 == MOST_BYTES && !line.ends_with(b"\n") {
        text.skip_until(b'\n')?;
    }
    Ok(!line.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_damaged_file_is_cut_back_to_its_valid_lines() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("losses");
        let long = format!("{{\"step\":2,\"loss\":1.5,\"more\":\"{}\"}}\n", "x".repeat(100_000));
        let line = |step: u64| format!("{{\"step\":{step},\"loss\":{step}.5}}\n");
        let text = [&line(1), "\u{0}\u{fffd}\n", &long, &line(3), &line(4), &line(9), "{\"st"];
        fs::write(&path, text.concat()).unwrap();
        cut_back(&path, 4).unwrap();
        let left = fs::read_to_string(&path).unwrap();
        assert_eq!(left, [line(1), line(3), line(4)].concat());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
