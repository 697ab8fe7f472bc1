//! An exercise: a file with a task, and a blank to fill.

use crate::input;
use crate::schedules::in_words;
use anyhow::{Context, Result, ensure};
use maypole::algorithms::Algorithm;
use maypole::schedule::collective::Collective;
use maypole::schedule::verify::verify;
use maypole::schedule::{Layout, Placement, Schedule, Step};
use maypole_pictures::clocks::{Cost, Ports, simulate};
use maypole_pictures::draw;
use maypole_pictures::file::ScheduleFile;
use maypole_pictures::rounds::StepRounds;
use serde::Deserialize;
use std::path::Path;

/// What stands where the learner has to write.
const BLANK: &str = "\"???\"";
/// A prediction is right if it is as near as this part of the true value.
const NEAR: f64 = 0.01;

/// The conditions of an exercise, apart from its task.
#[derive(Deserialize)]
struct ExerciseFile {
    #[serde(default)]
    want: Wanted,
    schedule: Option<ScheduleFile>,
    predict: Option<Prediction>,
}

/// What a schedule must not exceed.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wanted {
    /// The messages that follow one another.
    rounds: Option<usize>,
    /// The part of the vector that a rank sends.
    sent: Option<f64>,
}

/// A time to predict.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Prediction {
    collective: String,
    algorithm: String,
    ranks: usize,
    bytes: usize,
    alpha: f64,
    beta: f64,
    microseconds: String,
}

/// The part of a file that can be read while its blanks are open.
#[derive(Deserialize)]
struct TaskOnly {
    task: String,
}

/// How far an exercise is.
#[derive(Debug)]
pub(super) enum ExerciseProgress {
    /// It is correct, with a remark.
    Done(String),
    /// Its blanks are open.
    Open,
    /// It is wrong; the picture, if there is one, and why.
    Wrong(String, String),
}

/// An exercise as it stands in its file.
pub(super) struct Exercise {
    pub(super) task: String,
    pub(super) progress: ExerciseProgress,
}

impl Exercise {
    /// Reads and checks the file.
    ///
    /// # Errors
    /// If the file cannot be read, or has no task.
    pub(super) fn read(path: &Path) -> Result<Self> {
        let name = path.display();
        let text = input::text("", path, input::TEXT)?;
        let TaskOnly { task } = toml::from_str(&text).with_context(|| format!("{name}"))?;
        // The task may speak of blanks.
        let is_open = text.replacen(&task, "", 1).contains(BLANK);
        let progress = match toml::from_str::<ExerciseFile>(&text) {
            _ if is_open => ExerciseProgress::Open,
            Err(error) => ExerciseProgress::Wrong(String::new(), error.to_string()),
            Ok(file) => file.progress().with_context(|| format!("{name}"))?,
        };
        Ok(Self { task, progress })
    }
}

impl ExerciseFile {
    fn progress(&self) -> Result<ExerciseProgress> {
        match (&self.schedule, &self.predict) {
            (Some(file), None) => Ok(self.want.progress(file)),
            (None, Some(prediction)) => prediction.progress(),
            _ => anyhow::bail!("an exercise has either [schedule] or [predict]"),
        }
    }
}

impl Wanted {
    fn progress(&self, file: &ScheduleFile) -> ExerciseProgress {
        let schedules = file.schedules();
        let picture = draw::text(schedules);
        if let Err(flaw) = verify(file.collective(), schedules, Placement::Apart) {
            return ExerciseProgress::Wrong(picture, in_words(&flaw, schedules));
        }
        let (rounds, sent) = (rounds(schedules), sent(schedules));
        if let Some(most) = self.rounds.filter(|most| rounds > *most) {
            let why = format!("it is right, and {rounds} messages follow one another, not {most}");
            return ExerciseProgress::Wrong(picture, why);
        }
        if let Some(most) = self.sent.filter(|most| sent > *most) {
            let why = format!("it is right, and a rank sends {sent:.3} vectors, not {most}");
            return ExerciseProgress::Wrong(picture, why);
        }
        ExerciseProgress::Done(format!(
            "{picture}\nproved; {rounds} messages follow one another, and the busiest rank sends \
             {sent:.3} vectors"
        ))
    }
}

fn rounds(schedules: &[Schedule]) -> usize {
    StepRounds::new(schedules).last().unwrap_or(0)
}

/// The part of the vector that the busiest rank sends.
fn sent(schedules: &[Schedule]) -> f64 {
    let sends = |schedule: &Schedule| {
        schedule.steps.iter().filter(|step| matches!(step, Step::Send { .. })).count()
    };
    let most = schedules.iter().map(sends).max().unwrap_or(0);
    most as f64 / schedules[0].chunks as f64
}

impl Prediction {
    fn progress(&self) -> Result<ExerciseProgress> {
        let seconds = self.seconds()?;
        let Ok(guess) = self.microseconds.parse::<f64>() else {
            let why = format!("{:?} is not a number of microseconds", self.microseconds);
            return Ok(ExerciseProgress::Wrong(String::new(), why));
        };
        let (true_value, times) = (seconds * 1e6, guess / (seconds * 1e6));
        Ok(if (times - 1.0).abs() <= NEAR {
            ExerciseProgress::Done(format!("the simulator says {true_value:.2} microseconds"))
        } else {
            let why = format!("{guess} microseconds are {times:.2} times what the simulator says");
            ExerciseProgress::Wrong(String::new(), why)
        })
    }

    fn seconds(&self) -> Result<f64> {
        let collective: Collective = self.collective.parse()?;
        let algorithm: Algorithm = self.algorithm.parse()?;
        let schedules = algorithm.schedules(collective, self.ranks);
        let schedules = schedules.context("the algorithm does not implement the collective")?;
        ensure!(self.ranks > 0, "there are no ranks");
        let cost = Cost { alpha: self.alpha, beta: self.beta, gamma: 0.0, ports: Ports::Single };
        let layout = Layout::even(self.bytes, schedules[0].chunks);
        Ok(simulate(&schedules, &layout, 1, 1, cost)?.seconds)
    }
}
