//! Changed settings of a resumed run, as far as they determine its result.
//!
//! A checkpoint is valid only for the same model, optimizer and vocabulary: another run is refused. With
//! another learning rate, other sequences or another precision it stays valid, but the result differs from
//! that of an uninterrupted run: each change is announced. Another mesh changes only rounding, and is not
//! announced.

use super::TrainOptions;
use super::job::TrainingJob;
use maypole_trainer::expert_parallel::router::Router;
use maypole_trainer::train::checkpoint::manifest::Manifest;
use maypole_trainer::train::schedule::{RateSchedule, RateShape};
use std::fmt::{self, Display};

/// A setting that differs from that of the run that wrote the checkpoint.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct SettingChange {
    /// The option of `train` that sets it.
    pub(crate) option: &'static str,
    /// The value when the checkpoint was written.
    pub(crate) before: String,
    /// The value in this run.
    pub(crate) now: String,
    /// The effect of the change; empty where the option's name states it.
    pub(crate) effect: &'static str,
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

/// The settings of `job` that differ from those of the run that wrote a checkpoint.
pub(crate) fn changes(manifest: &Manifest, job: &TrainingJob) -> Vec<SettingChange> {
    let mut list = schedule_changes(&manifest.schedule, &job.schedule);
    let [before, now] = [manifest.clip, job.options.optimizer.clip()].map(Limit);
    list.extend(change("--clip", &before, &now, ""));
    let Some(record) = &manifest.settings else { return list };
    let (before, now) = (TrainOptions::recorded(&record.options), &job.options);
    let (own, own_now) = (&before.optimizer, &now.optimizer);
    list.extend(change("--rows", &own.rows(), &own_now.rows(), OTHER_ROWS));
    list.extend(change("--seed", &own.seed(), &own_now.seed(), OTHER_ROWS));
    let [was, is] = [own, own_now].map(|it| it.precision.as_deref().unwrap_or("f32"));
    list.extend(change("--precision", was, is, ""));
    let [was, is] = [&before, now].map(|it| it.lab.fault.as_deref().unwrap_or("none"));
    list.extend(change("--fault", was, is, ""));
    list.extend(router_changes(record.router.as_ref(), job.setup.router.as_ref()));
    let [was, is] =
        [record.data.text, job.text.fingerprint()].map(|text| format!("text {text:016x}"));
    list.extend(change("--data", &was, &is, "this run learns from another text"));
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
