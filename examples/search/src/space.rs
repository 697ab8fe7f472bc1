//! The space of settings, and the settings of each trial.

use maypole_trainer::model::config::Config;
use maypole_trainer::tensor::random::uniform;
use maypole_trainer::train::schedule::{RateSchedule, RateShape};
use serde::{Deserialize, Serialize};

/// The numbers that a setting is drawn from.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(untagged, deny_unknown_fields)]
pub enum SettingRange {
    /// Any number from the lower to the upper end, evenly in its logarithm.
    Between {
        /// The lower end, above 0.
        from: f64,
        /// The upper end.
        to: f64,
    },
    /// One of these.
    OneOf(Vec<f64>),
}

/// What is searched, and how thoroughly. A field that a file leaves out has its default.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct SearchSpace {
    /// Trials that begin.
    pub trials: usize,
    /// Tokens that a trial of the last rung was trained on.
    pub tokens: u64,
    /// Tokens of the first rung.
    pub first_tokens: u64,
    /// One of every `keep` trials is promoted to the next rung, which is `keep` times as long.
    pub keep: usize,
    /// Ranks that train a trial together, each with other rows.
    pub ranks_per_trial: usize,
    /// The seed of the settings, the initial weights and the rows.
    pub seed: u64,
    /// Blocks of the model.
    pub layers: usize,
    /// Attention heads.
    pub heads: usize,
    /// Tokens of a row.
    pub context: usize,
    /// The highest learning rate.
    pub rate: SettingRange,
    /// The part of a trial's steps until the highest rate.
    pub warm_up: SettingRange,
    /// The width of the model.
    pub width: Vec<usize>,
    /// Rows of a batch.
    pub rows: Vec<usize>,
    /// The shape of the rate.
    pub shape: Vec<RateShape>,
}

impl Default for SearchSpace {
    fn default() -> Self {
        Self {
            trials: 16,
            tokens: 1 << 18,
            first_tokens: 1 << 14,
            keep: 4,
            ranks_per_trial: 1,
            seed: 1,
            layers: 2,
            heads: 4,
            context: 64,
            rate: SettingRange::Between { from: 1e-4, to: 1e-1 },
            warm_up: SettingRange::OneOf(vec![0.0, 0.1]),
            width: vec![64],
            rows: vec![8, 16],
            shape: vec![RateShape::Cosine, RateShape::Wsd, RateShape::Linear],
        }
    }
}

/// The settings of one trial.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct TrialSettings {
    /// The highest learning rate.
    pub rate: f64,
    /// The part of the steps until the highest rate.
    pub warm_up: f64,
    /// The width of the model.
    pub width: usize,
    /// Rows of a batch.
    pub rows: usize,
    /// The shape of the rate.
    pub shape: RateShape,
}

/// The most trials of a search.
const MOST_TRIALS: usize = 4096;
/// The most tokens of a trial.
const MOST_TOKENS: u64 = 1 << 40;

impl SearchSpace {
    /// The most bytes of a file that describes a space.
    pub const LONGEST: usize = 64 << 10;

    /// Reads a space from TOML.
    ///
    /// ```
    /// use maypole_search::space::SearchSpace;
    /// let space = SearchSpace::parse("trials = 4\nrate = [0.01, 0.001]").unwrap();
    /// assert_eq!((space.trials, space.keep), (4, 4));
    /// ```
    ///
    /// # Errors
    /// A sentence that names the invalid line, or the invalid value and the valid ones.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.len() > Self::LONGEST {
            let most = Self::LONGEST >> 10;
            return Err(format!("a description of a space has at most {most} KiB"));
        }
        let space: Self = toml::from_str(text).map_err(|error| error.to_string())?;
        space.check()?;
        Ok(space)
    }

    fn check(&self) -> Result<(), String> {
        if !(1..=MOST_TRIALS).contains(&self.trials) {
            return Err(format!("trials = {}: give 1 to {MOST_TRIALS}", self.trials));
        }
        if self.keep < 2 {
            return Err(format!(
                "keep = {}: one of every `keep` trials goes on, so give 2 or more",
                self.keep
            ));
        }
        if self.ranks_per_trial == 0 {
            return Err("ranks-per-trial = 0: a trial needs a rank".to_owned());
        }
        if self.first_tokens == 0 || self.first_tokens > self.tokens || self.tokens > MOST_TOKENS {
            return Err(format!(
                "first-tokens = {} and tokens = {}: a first rung has 1 token at least and no more \
                 than the last, which has {MOST_TOKENS} at most",
                self.first_tokens, self.tokens
            ));
        }
        for (name, range) in [("rate", &self.rate), ("warm-up", &self.warm_up)] {
            range.check(name)?;
        }
        let empty = [
            ("width", self.width.is_empty()),
            ("rows", self.rows.is_empty() || self.rows.contains(&0)),
            ("shape", self.shape.is_empty()),
        ];
        match empty.into_iter().find(|(_, empty)| *empty) {
            Some((name, _)) => Err(format!("{name}: give at least one, and none of 0")),
            None => Ok(()),
        }
    }

    /// The settings of trial number `trial`.
    pub fn settings(&self, trial: usize) -> TrialSettings {
        // Each setting has its own random stream: a change of one range changes no other setting.
        let draw = |stream: u64| uniform(self.seed.wrapping_add(stream << 32), trial as u64);
        TrialSettings {
            rate: self.rate.at(draw(1)),
            warm_up: self.warm_up.at(draw(2)),
            width: pick(&self.width, draw(3)),
            rows: pick(&self.rows, draw(4)),
            shape: pick(&self.shape, draw(5)),
        }
    }

    /// The tokens of each rung, ascending.
    pub fn rungs(&self) -> Vec<u64> {
        let longer = |tokens: &u64| tokens.checked_mul(self.keep as u64);
        let mut rungs: Vec<u64> = std::iter::successors(Some(self.first_tokens), longer)
            .take_while(|tokens| *tokens < self.tokens)
            .collect();
        rungs.push(self.tokens);
        rungs
    }

    /// The model of a trial, with a vocabulary of `vocab` tokens.
    pub fn config(&self, settings: &TrialSettings, vocab: usize) -> Config {
        Config {
            vocab,
            context: self.context,
            width: settings.width,
            heads: self.heads,
            layers: self.layers,
            experts: 0,
            ..Config::default()
        }
    }

    /// Steps of a trial that is trained on `tokens` tokens; at least one.
    pub fn steps(&self, settings: &TrialSettings, tokens: u64) -> u64 {
        (tokens / (settings.rows * self.context) as u64).max(1)
    }

    /// The learning rates of a trial, as if it came to the last rung.
    pub fn schedule(&self, settings: &TrialSettings) -> RateSchedule {
        let steps = self.steps(settings, self.tokens);
        RateSchedule {
            shape: settings.shape,
            peak: settings.rate,
            floor: settings.rate / 10.0,
            warm_up: (settings.warm_up * steps as f64) as u64,
            decay: steps / 5,
            steps,
        }
    }
}

impl SettingRange {
    fn check(&self, name: &str) -> Result<(), String> {
        let good = |number: &f64| number.is_finite() && *number >= 0.0;
        let fine = match self {
            Self::Between { from, to } => *from > 0.0 && from <= to && to.is_finite(),
            Self::OneOf(numbers) => !numbers.is_empty() && numbers.iter().all(good),
        };
        if fine {
            return Ok(());
        }
        Err(format!(
            "{name}: give numbers as [0.1, 0.2], or {{ from = 0.001, to = 0.1 }} with from above 0"
        ))
    }

    /// The number at `part` of the range, 0 to 1.
    fn at(&self, part: f64) -> f64 {
        match self {
            Self::Between { from, to } => from * (to / from).powf(part),
            Self::OneOf(numbers) => pick(numbers, part),
        }
    }
}

/// The choice at `part` of all, 0 to below 1.
fn pick<T: Copy>(choices: &[T], part: f64) -> T {
    choices[(part * choices.len() as f64) as usize]
}
