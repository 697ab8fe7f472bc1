//! The signal at which a page is made.

use anyhow::Context;
use maypole_transports::signals;

const SIGNAL_VARIABLE: &str = "MAYPOLE_STATUS_SIGNAL";

/// The number of the signal that `MAYPOLE_STATUS_SIGNAL` names, at which a page is made. It is not
/// passed on to ranks.
///
/// # Errors
/// If the variable names no signal that a program can handle.
pub(in crate::run) fn status_signal() -> anyhow::Result<Option<i32>> {
    let name = std::env::var(SIGNAL_VARIABLE).ok().filter(|name| !name.is_empty());
    let number = |name: String| {
        signals::number(&name).with_context(|| {
            format!(
                "{SIGNAL_VARIABLE}: '{name}' is no signal that a program can handle; name for \
                 example USR1"
            )
        })
    };
    name.map(number).transpose()
}
