//! Reads the values of the options of `maypole perf`. Each error has the given value and the valid
//! ones.

use super::choices::{Selected, Subject};
use super::messages::MessageTest;
use super::off_cache;
use crate::{names, sizes};
use maypole::algorithms::Algorithm;
use std::time::Duration;

pub(super) fn subject(text: &str) -> Result<Subject, String> {
    let test = MessageTest::ALL.into_iter().find(|test| test.name() == text);
    match (text, test) {
        ("all", _) => Ok(Subject::Collectives(Selected::All)),
        ("p2p", _) => Ok(Subject::Messages(Selected::All)),
        (_, Some(test)) => Ok(Subject::Messages(Selected::One(test))),
        _ => names::collective(text)
            .map(|collective| Subject::Collectives(Selected::One(collective)))
            .map_err(|error| {
                format!(
                    "{error}; \"all\" means every collective, \"p2p\" messages between two ranks"
                )
            }),
    }
}

pub(super) fn selected_algorithm(text: &str) -> Result<Selected<Option<Algorithm>>, String> {
    match text {
        "all" => Ok(Selected::All),
        "auto" => Ok(Selected::One(None)),
        name => name.parse().map(|one| Selected::One(Some(one))).map_err(|error| {
            format!("{error}; \"auto\" means the tuner's choice, \"all\" every algorithm")
        }),
    }
}

/// Reads `all`, or what `one` reads.
pub(super) fn selected<T: Clone + Send + Sync + 'static>(
    one: impl Fn(&str) -> Result<T, String> + Clone + Send + Sync + 'static,
) -> impl Fn(&str) -> Result<Selected<T>, String> + Clone + Send + Sync + 'static {
    move |text| match text {
        "all" => Ok(Selected::All),
        _ => one(text).map(Selected::One),
    }
}

pub(super) fn rank(text: &str) -> Result<usize, String> {
    text.parse().map_err(|_| format!("{text:?} is not the number of a rank"))
}

/// `true` or `false`, or a number as in nccl-tests, where 0 is false.
pub(super) fn yes_or_no(text: &str) -> Result<bool, String> {
    match (text, text.parse::<u32>()) {
        ("true", _) => Ok(true),
        ("false", _) => Ok(false),
        (_, Ok(number)) => Ok(number > 0),
        _ => Err(format!("{text:?} is neither true (1) nor false (0)")),
    }
}

pub(super) fn positive(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) => Err("must be at least 1".to_owned()),
        Ok(number) => Ok(number),
        Err(_) => Err(format!("{text:?} is not a number")),
    }
}

/// The bytes of a region that no cache holds; `auto` for that of this machine.
pub(super) fn region(text: &str) -> Result<usize, String> {
    match text {
        "auto" => Ok(off_cache::region()),
        _ => sizes::parse(text),
    }
}

/// `NAME=VALUE`.
pub(super) fn assignment(text: &str) -> Result<(String, String), String> {
    let parts = text.split_once('=').filter(|(name, _)| !name.is_empty());
    let owned = parts.map(|(name, value)| (name.to_owned(), value.to_owned()));
    owned.ok_or_else(|| format!("{text:?} is not of the form NAME=VALUE"))
}

pub(super) fn ratio(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(ratio) if ratio > 0.0 && ratio.is_finite() => Ok(ratio),
        _ => Err(format!("{text:?} is not a ratio of speeds, such as 0.95")),
    }
}

pub(super) fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().map_err(|_| format!("{text:?} is not a number of seconds"))?;
    match Duration::try_from_secs_f64(seconds) {
        Ok(Duration::ZERO) => Err("must be more than 0".to_owned()),
        other => other.map_err(|error| error.to_string()),
    }
}
