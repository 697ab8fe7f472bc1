//! Reads the values of the options of `maypole perf`. Each error has the given value and the valid
//! ones.

use super::off_cache;
use crate::sizes;
use std::time::Duration;

pub(super) fn rank(text: &str) -> Result<usize, String> {
    text.parse().map_err(|_| format!("{text:?} is not the number of a rank"))
}

pub(crate) fn positive(text: &str) -> Result<usize, String> {
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

pub(super) fn milliseconds(text: &str) -> Result<Duration, String> {
    text.parse().map(Duration::from_millis).map_err(|_| format!("{text:?} is not a number"))
}
