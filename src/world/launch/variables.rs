//! All variables of maypole's own, and how one variable is read. `variables.md` lists and describes
//! them, for programs and for the book.

use std::sync::LazyLock;
use std::time::Duration;

use super::LaunchError;

/// A variable that maypole reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Variable {
    /// Its name.
    pub name: &'static str,
    /// Its meaning and its default, as one or two Markdown sentences.
    pub meaning: &'static str,
    /// Whether it must have the same value on all ranks of a job: joining compares these.
    pub equal_on_all_ranks: bool,
}

/// Every variable of maypole's own that its code reads, as a Markdown table: its name, its meaning
/// and default, and `yes` if it must have the same value on all ranks. The book shows this table.
///
/// # Examples
///
/// ```
/// use maypole::world::launch::{VARIABLES, VARIABLES_AS_MARKDOWN};
///
/// let head = "| variable | meaning | equal on all ranks |\n|---|---|---|\n";
/// assert!(VARIABLES_AS_MARKDOWN.starts_with(head));
/// assert!(VARIABLES.iter().any(|it| it.name == "MAYPOLE_TRANSPORT" && it.equal_on_all_ranks));
/// ```
pub const VARIABLES_AS_MARKDOWN: &str = include_str!("variables.md");

/// The rows of [`VARIABLES_AS_MARKDOWN`].
pub static VARIABLES: LazyLock<Vec<Variable>> =
    LazyLock::new(|| VARIABLES_AS_MARKDOWN.lines().skip(2).filter_map(Variable::of_row).collect());

impl Variable {
    fn of_row(row: &'static str) -> Option<Self> {
        let row = row.strip_prefix("| `")?.strip_suffix(" |")?;
        let (row, equal) = row.rsplit_once(" | ")?;
        let (name, meaning) = row.split_once("` | ")?;
        Some(Self { name, meaning, equal_on_all_ranks: equal == "yes" })
    }
}

/// The environment, as a function from name to value. An empty variable counts as not set.
#[derive(Clone, Copy)]
pub(super) struct VariableReader<'a>(pub(super) &'a dyn Fn(&str) -> Option<String>);

impl VariableReader<'_> {
    pub(super) fn text(&self, name: &str) -> Option<String> {
        (self.0)(name).map(|value| value.trim().to_owned()).filter(|value| !value.is_empty())
    }

    pub(super) fn number(&self, name: &'static str) -> Result<Option<usize>, LaunchError> {
        self.parse(name, "a whole number", |text| text.parse().ok())
    }

    pub(super) fn port(&self, name: &'static str) -> Result<Option<u16>, LaunchError> {
        self.parse(name, "a port from 1 to 65535", |text| {
            text.parse().ok().filter(|port| *port > 0)
        })
    }

    pub(super) fn descriptor(&self, name: &'static str) -> Result<Option<i32>, LaunchError> {
        let expected = "the number of a descriptor that was inherited from the launcher, 3 or more";
        self.parse(name, expected, |text| text.parse().ok().filter(|number| *number > 2))
    }

    fn parse<T>(
        &self,
        variable: &'static str,
        expected: &'static str,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Result<Option<T>, LaunchError> {
        let Some(value) = self.text(variable) else { return Ok(None) };
        parse(&value).map(Some).ok_or_else(|| LaunchError::malformed(variable, value, expected))
    }
}

pub(super) fn timeout(vars: VariableReader) -> Result<Duration, LaunchError> {
    let parse = |text: &str| {
        let timeout = Duration::try_from_secs_f64(text.parse().ok()?).ok()?;
        (timeout >= Duration::from_millis(1)).then_some(timeout)
    };
    let timeout = vars.parse("MAYPOLE_TIMEOUT", "a number of seconds greater than 0", parse)?;
    Ok(timeout.unwrap_or(Duration::from_secs(300)))
}
