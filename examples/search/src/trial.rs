//! One training of a search: it can be stopped, moved to other ranks, and continued.

use crate::space::{SearchSpace, TrialSettings};
use maypole::{Communicator, Result};
use maypole_trainer::ranks::exchange::first_failure;
use maypole_trainer::ranks::group::{RankGroup, SumOrder};
use maypole_trainer::ranks::mesh::{Mesh, MeshAxis};
use maypole_trainer::train::checkpoint::load::Progress;
use maypole_trainer::train::optim::Rule;
use maypole_trainer::train::parallelism::Parallelism;
use maypole_trainer::train::text::Text;
use maypole_trainer::train::trainer::Trainer;
use serde::{Deserialize, Serialize};
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The loss above which a trial has diverged, as a multiple of its first loss.
const DIVERGED: f64 = 2.0;
/// The least number of held-out tokens on which the loss of a trial is computed.
const JUDGED: usize = 1 << 13;
/// The most points of a trial's curve in one rung.
const MOST_POINTS: u64 = 64;
/// The most characters that are kept of the message of a trial that crashed or was refused.
const MOST_WORDS: usize = 160;

/// The fate of a trial so far.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum TrialFate {
    /// It was trained to the end of its rung.
    Trained,
    /// Its loss was not finite or had doubled.
    Diverged,
    /// It panicked or a collective of its group failed: the error.
    Crashed(String),
    /// Its settings make no model: the reason.
    Refused(String),
}

/// The outcome of a trial in one rung.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct TrialOutcome {
    /// Its fate.
    pub fate: TrialFate,
    /// Steps done since its beginning.
    pub steps: u64,
    /// The loss on held-out text, if it was trained.
    pub loss: Option<f64>,
    /// The loss of its very first step, with which later losses are compared to detect divergence.
    pub first: Option<f64>,
    /// Training losses: tokens, and the mean loss of the steps since the point before.
    pub curve: Vec<(u64, f64)>,
}

impl TrialOutcome {
    fn ended(fate: TrialFate) -> Self {
        Self { fate, steps: 0, loss: None, first: None, curve: Vec::new() }
    }
}

/// Where a trial was stopped.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
struct TrialProgress {
    progress: Progress,
    first_loss: Option<f64>,
}

/// The texts of a search, and a function that is called before each step.
#[derive(Clone, Copy)]
pub struct TrialTexts<'a> {
    /// The text to train on.
    pub text: &'a Text,
    /// The text on which trials are compared.
    pub held_out: &'a Text,
    /// Number of different tokens.
    pub vocab: usize,
    /// Called before each step with the number of the trial and of the step. A panic in it, on
    /// any rank of the trial, counts as a crash of the trial.
    pub before: &'a (dyn Fn(usize, u64) + Sync),
}

/// A trial on the ranks of one group.
pub struct TrialRun {
    number: usize,
    settings: TrialSettings,
    /// The training, on this rank.
    pub trainer: Trainer<f32>,
    first_loss: Option<f64>,
}

impl TrialRun {
    /// Begins trial `number`. All ranks of `group` call it. For settings that make no model the
    /// inner error is a sentence with the cause.
    ///
    /// # Errors
    /// As the library's `split`.
    pub fn begin(
        space: &SearchSpace,
        number: usize,
        vocab: usize,
        group: &RankGroup,
    ) -> Result<std::result::Result<Self, String>> {
        let settings = space.settings(number);
        let config = space.config(&settings, vocab);
        let setup = Parallelism {
            order: SumOrder::Ranks,
            ..Parallelism::of(Mesh::ONE.with(MeshAxis::Dp, group.world()))
        };
        let possible = config.check().and_then(|()| setup.check(&config, settings.rows));
        if let Err(why) = possible {
            return Ok(Err(why));
        }
        let comm = if group.world() == 1 {
            Communicator::local(1).remove(0)
        } else {
            let key = group.rank() as i64;
            let comm = group.call(|comm| comm.split(Some(0), key))?;
            comm.expect("a rank with a color is in a group")
        };
        let rule = (Rule::ADAMW, space.schedule(&settings));
        let mut trainer = Trainer::new(comm, &config, setup, space.seed, rule)?;
        trainer.parts.clip.limit = Some(1.0);
        Ok(Ok(Self { number, settings, trainer, first_loss: None }))
    }

    /// Trains until `steps` steps are done, and computes the loss on held-out text. An error or a
    /// panic is returned as the outcome [`TrialFate::Crashed`]. Collective in the group of the
    /// trial: a panic before a step is the outcome on all its ranks. A panic within a step aborts the
    /// world, because the other ranks may be in any call of it.
    pub fn advance(&mut self, space: &SearchSpace, steps: u64, texts: TrialTexts) -> TrialOutcome {
        let mut curve = Vec::new();
        let went = catch_unwind(AssertUnwindSafe(|| self.train(space, steps, texts, &mut curve)));
        let done = self.trainer.step;
        let (fate, loss) = match went {
            Ok(Ok(Some(loss))) => (TrialFate::Trained, Some(loss)),
            Ok(Ok(None)) => (TrialFate::Diverged, None),
            Ok(Err(why)) => (TrialFate::Crashed(shortened(&why)), None),
            Err(panic) => {
                let why = panic_message(&*panic);
                self.trainer.groups.world.abort(&format!("trial {}: {why}", self.number));
                (TrialFate::Crashed(why), None)
            }
        };
        TrialOutcome { fate, steps: done, loss, first: self.first_loss, curve }
    }

    /// Calls `before` on all ranks of the trial. If it panics on one of them, all return the message
    /// of the first.
    fn prepare(&self, before: &(dyn Fn(usize, u64) + Sync)) -> std::result::Result<(), String> {
        let step = self.trainer.step;
        let panic = catch_unwind(AssertUnwindSafe(|| before(self.number, step))).err();
        let mine = panic.map(|panic| panic_message(&*panic));
        let group = &self.trainer.groups.world;
        if group.world() == 1 {
            return mine.map_or(Ok(()), Err);
        }
        match group.call(|comm| first_failure(comm, mine)) {
            Ok(found) => found.map_or(Ok(()), |(_, why)| Err(why)),
            Err(lost) => Err(lost.to_string()),
        }
    }

    /// Trains, and returns the loss on held-out text; `None` if the trial has diverged.
    fn train(
        &mut self,
        space: &SearchSpace,
        steps: u64,
        texts: TrialTexts,
        curve: &mut Vec<(u64, f64)>,
    ) -> std::result::Result<Option<f64>, String> {
        let rows = self.settings.rows;
        let tokens = (rows * space.context) as u64;
        let from = self.trainer.step;
        let each = (steps.saturating_sub(from)).div_ceil(MOST_POINTS).max(1);
        let mut sum = (0.0, 0);
        while self.trainer.step < steps {
            self.prepare(texts.before)?;
            let done = self.trainer.step(texts.text, rows).map_err(|error| error.to_string())?;
            let loss = done.report.loss;
            let first = *self.first_loss.get_or_insert(loss);
            if !loss.is_finite() || loss > DIVERGED * first {
                return Ok(None);
            }
            sum = (sum.0 + loss, sum.1 + 1);
            let step = self.trainer.step;
            if sum.1 == each || step == steps {
                curve.push((step * tokens, sum.0 / sum.1 as f64));
                sum = (0.0, 0);
            }
        }
        let loss = self.trainer.validate(texts.held_out, JUDGED);
        let loss = loss.map_err(|error| error.to_string())?;
        Ok(Some(loss).filter(|loss| loss.is_finite()))
    }

    /// What another group needs to continue the trial: the progress, the weights and both averages.
    ///
    /// # Errors
    /// As the collectives of the store.
    pub fn to_bytes(&mut self) -> Result<Vec<u8>> {
        let first_loss = self.first_loss;
        let trainer = &mut self.trainer;
        let (step, updates) = (trainer.step, trainer.optimizer().steps);
        let progress = Progress { step, updates };
        let progress = TrialProgress { progress, first_loss };
        let header = serde_json::to_vec(&progress).expect("numbers are written");
        let weights = trainer.parts.store.all_weights()?;
        let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
        bytes.extend(header);
        for numbers in [&weights, &trainer.optimizer().first, &trainer.optimizer().second] {
            bytes.extend_from_slice(bytemuck::cast_slice(numbers));
        }
        Ok(bytes)
    }

    /// Continues from what [`to_bytes`](Self::to_bytes) returned on a rank of another group.
    ///
    /// # Errors
    /// As the collectives of the store.
    ///
    /// # Panics
    /// If the bytes are those of another model.
    pub fn install(&mut self, bytes: &[u8]) -> Result<()> {
        let (length, rest) = bytes.split_first_chunk::<8>().expect("a length comes first");
        let (header, rest) = rest.split_at(u64::from_le_bytes(*length) as usize);
        let progress: TrialProgress = serde_json::from_slice(header).expect("numbers are read");
        let mut numbers: Vec<f32> = bytemuck::pod_collect_to_vec(rest);
        let mut first = numbers.split_off(self.trainer.parts.store.layout().len());
        let second = first.split_off(first.len() / 2);
        self.first_loss = progress.first_loss;
        self.trainer.go_on_from(progress.progress, [numbers, first, second])
    }

    /// Sets the loss of the very first step, of a trial that was read from a checkpoint.
    pub(crate) fn began_with(&mut self, loss: Option<f64>) {
        self.first_loss = loss;
    }
}

/// The outcome of settings that make no model.
pub(crate) fn refused(why: &str) -> TrialOutcome {
    TrialOutcome::ended(TrialFate::Refused(shortened(why)))
}

fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    shortened(&text.unwrap_or_else(|| "a panic without a message".to_owned()))
}

fn shortened(text: &str) -> String {
    text.chars().take(MOST_WORDS).collect()
}
