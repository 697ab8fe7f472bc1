//! The date of a run.

use std::time::{SystemTime, UNIX_EPOCH};

/// Now, as `2031-02-28 13:05 UTC`.
pub(crate) fn now() -> String {
    date(SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()))
}

/// Formats seconds since 1970 as `2031-02-28 13:05 UTC`. Years begin in March, so that leap days
/// are their last ("chrono-Compatible Low-Level Date Algorithms", Hinnant 2013).
fn date(seconds: u64) -> String {
    let days = seconds / 86_400 + 719_468;
    let minutes = seconds / 60 % 1440;
    let era = days / 146_097;
    let day = days % 146_097;
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, later) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    format!(
        "{}-{month:02}-{day:02} {:02}:{:02} UTC",
        era * 400 + year + later,
        minutes / 60,
        minutes % 60
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        let dates = [
            (0, "1970-01-01 00:00"),
            (951_782_399, "2000-02-28 23:59"),
            (1_709_210_096, "2024-02-29 12:34"),
        ];
        for (seconds, expected) in dates {
            assert_eq!(date(seconds), format!("{expected} UTC"));
        }
    }
}
