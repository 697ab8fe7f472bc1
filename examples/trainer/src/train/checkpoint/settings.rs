//! What has changed of the settings that decide the result of a run, when it resumes.
//!
//! Without the same model, optimizer and vocabulary the numbers of a checkpoint mean nothing: such
//! a run is refused. With another rate, other rows or another precision they mean the same, but the
//! run is no continuation of the one before: each change is announced. Another mesh
//! changes only rounding, and is not announced.

use crate::expert_parallel::router::Router;
use crate::train::checkpoint::CheckpointError;
use crate::train::checkpoint::manifest::Manifest;
use crate::train::schedule::{RateSchedule, RateShape};
use crate::train::settings::RunSettings;
use crate::train::trainer::Trainer;
use std::fmt::{self, Display};
use std::path::Path;

/// A setting that differs from that of the run that wrote the checkpoint.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SettingChange {
    /// The option of `train` that sets it.
    pub option: &'static str,
    /// The value when the checkpoint was written.
    pub before: String,
    /// The value in this run.
    pub now: String,
    /// The effect of the change; empty where the option says it.
    pub effect: &'static str,
}

impl Display for SettingChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { option, before, now, effect } = self;
        write!(f, "{option} was {before} and is {now}")?;
        if effect.is_empty() { Ok(()) } else { write!(f, ": {effect}") }
    }
}

/// The effect of every change of how rows are drawn.
const OTHER_ROWS: &str = "this run draws other rows of the text";

/// Refuses a trainer with another model, optimizer or vocabulary than the checkpoint's.
pub(super) fn refuse_others(
    manifest: &Manifest,
    trainer: &Trainer<f32>,
    place: &Path,
) -> Result<(), CheckpointError> {
    same(place, &manifest.config, &trainer.parts.store.layout().config)?;
    same(place, &manifest.rule, &trainer.optimizer().rule)?;
    let (Some(before), Some(now)) = (&manifest.settings, &trainer.settings) else { return Ok(()) };
    let tokens = |settings: &RunSettings| {
        format!("tokens of the vocabulary {:016x}", settings.data.vocabulary)
    };
    same(place, &tokens(before), &tokens(now))
}

fn same(path: &Path, theirs: &impl Display, ours: &impl Display) -> Result<(), CheckpointError> {
    let theirs = theirs.to_string();
    let ours = ours.to_string();
    if theirs == ours {
        return Ok(());
    }
    Err(CheckpointError::Other { path: path.to_owned(), theirs, ours })
}

/// Returns the settings of `trainer` that differ from those in `manifest`.
pub(super) fn changes(manifest: &Manifest, trainer: &Trainer<f32>) -> Vec<SettingChange> {
    let mut list = schedule_changes(&manifest.schedule, &trainer.parts.rate.schedule);
    list.extend(change("--clip", &Limit(manifest.clip), &Limit(trainer.parts.clip.limit), ""));
    let (Some(before), Some(now)) = (&manifest.settings, &trainer.settings) else { return list };
    list.extend(change("--rows", &before.rows, &now.rows, OTHER_ROWS));
    list.extend(change("--seed", &before.seed, &now.seed, OTHER_ROWS));
    list.extend(change("--precision", &before.precision, &now.precision, ""));
    list.extend(change("--fault", &Named(&before.fault), &Named(&now.fault), ""));
    list.extend(router_changes(before.router.as_ref(), now.router.as_ref()));
    let [text, new] = [before, now].map(|settings| format!("text {:016x}", settings.data.text));
    list.extend(change("--data", &text, &new, "this run learns from another text"));
    list
}

fn schedule_changes(before: &RateSchedule, now: &RateSchedule) -> Vec<SettingChange> {
    let mut list = Vec::new();
    list.extend(change("--rate", &before.peak, &now.peak, ""));
    list.extend(change("--shape", &before.shape.name(), &now.shape.name(), ""));
    if now.shape == RateShape::Constant {
        return list;
    }
    let every = "the rate of every step changes with it";
    list.extend(change("--steps", &before.steps, &now.steps, every));
    list.extend(change("--warm-up", &before.warm_up, &now.warm_up, every));
    list
}

fn router_changes(before: Option<&Router>, now: Option<&Router>) -> Vec<SettingChange> {
    let (Some(before), Some(now)) = (before, now) else { return Vec::new() };
    let [share, new] = [before, now].map(|router| Limit(router.capacity.map(f64::from)));
    let group = change("--group", &before.group, &now.group, "");
    change("--capacity", &share, &new, "").into_iter().chain(group).collect()
}

fn change(
    option: &'static str,
    before: &(impl Display + ?Sized),
    now: &(impl Display + ?Sized),
    effect: &'static str,
) -> Option<SettingChange> {
    let before = before.to_string();
    let now = now.to_string();
    (before != now).then_some(SettingChange { option, before, now, effect })
}

/// A number that may be left out.
struct Limit(Option<f64>);

impl Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(limit) => write!(f, "{limit}"),
            None => f.write_str("without limit"),
        }
    }
}

/// A name that may be left out.
struct Named<'a>(&'a Option<String>);

impl Display for Named<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.as_deref().unwrap_or("none"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(before: RateSchedule, now: RateSchedule) -> Vec<String> {
        schedule_changes(&before, &now).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_change_of_the_rate_is_said_and_a_longer_run_at_the_same_rate_is_none() {
        let constant = RateSchedule { steps: 10, warm_up: 1, ..RateSchedule::constant(0.5) };
        let longer = RateSchedule { steps: 20, warm_up: 2, ..constant };
        assert_eq!(said(constant, longer), [""; 0]);
        assert_eq!(
            said(constant, RateSchedule { peak: 0.25, ..longer }),
            ["--rate was 0.5 and is 0.25"]
        );
        let cosine = RateSchedule { shape: RateShape::Cosine, ..constant };
        assert_eq!(said(constant, cosine), ["--shape was constant and is cosine"]);
        assert_eq!(
            said(cosine, RateSchedule { shape: RateShape::Cosine, warm_up: 1, ..longer }),
            ["--steps was 10 and is 20: the rate of every step changes with it"]
        );
    }
}
