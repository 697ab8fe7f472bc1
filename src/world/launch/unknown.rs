//! Variables that look like maypole's own but are not: most often a typing error.

use super::{Launch, VARIABLES};
use std::io::Write;
use std::sync::Once;

const PREFIX: &str = "MAYPOLE_";

/// Warns on standard error, once in a process, of `MAYPOLE_...` variables that do not exist, which
/// are ignored, and of variables of another launcher that contradict `launch`. Only rank 0 warns,
/// because launchers set the same variables on all ranks.
pub(crate) fn warn(launch: &Launch) {
    static TOLD: Once = Once::new();
    if launch.rank != 0 {
        return;
    }
    TOLD.call_once(|| {
        let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
        let overruled = launch.overruled.iter().map(|text| format!("maypole: {text}"));
        for warning in warnings(names).into_iter().chain(overruled) {
            // The error of a closed standard error is ignored.
            let _ = writeln!(std::io::stderr(), "{warning}");
        }
    });
}

/// One sentence for each unknown variable among `names`, in alphabetical order.
fn warnings(names: impl Iterator<Item = String>) -> Vec<String> {
    let warning = |(name, nearest): (String, Option<&str>)| {
        let meant = nearest.map(|nearest| format!(" (did you mean {nearest}?)"));
        let meant = meant.unwrap_or_default();
        format!("maypole: there is no variable {name}; it is ignored{meant}")
    };
    unknown_variables(names).into_iter().map(warning).collect()
}

/// The variables among `names` that look like maypole's own and do not exist, in alphabetical
/// order, each with the most similar existing one. They are ignored.
///
/// ```
/// use maypole::world::launch::unknown_variables;
/// let names = ["PATH", "MAYPOLE_TIMOUT"].map(str::to_owned).into_iter();
/// assert_eq!(unknown_variables(names), [("MAYPOLE_TIMOUT".to_owned(), Some("MAYPOLE_TIMEOUT"))]);
/// ```
pub fn unknown_variables(
    names: impl Iterator<Item = String>,
) -> Vec<(String, Option<&'static str>)> {
    let is_known = |name: &str| VARIABLES.iter().any(|variable| variable.name == name);
    let unknown = names.filter(|name| name.starts_with(PREFIX) && !is_known(name));
    let with_nearest = |name: String| {
        let nearest = nearest(&name);
        (name, nearest)
    };
    let mut unknown: Vec<_> = unknown.map(with_nearest).collect();
    unknown.sort_unstable();
    unknown
}

/// The existing variable with the least edit distance to `name`, if at most a third of the letters
/// after the prefix differ.
fn nearest(name: &str) -> Option<&'static str> {
    let own_part = name.len() - PREFIX.len();
    let distance = |known: &str| strsim::damerau_levenshtein(known, name);
    let nearest = VARIABLES.iter().map(|variable| variable.name).min_by_key(|it| distance(it))?;
    (distance(nearest) <= own_part.div_ceil(3)).then_some(nearest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(names: &[&str], expected: &[&str]) {
        assert_eq!(warnings(names.iter().map(|name| (*name).to_owned())), expected);
    }

    #[test]
    fn an_unknown_variable_is_told_with_the_nearest_name() {
        let names = ["PATH", "MAYPOLE_TRANSPROT", "MAYPOLE_TIMEOUT", "MAYPOLE_TIMOUT"];
        let timeout = "maypole: there is no variable MAYPOLE_TIMOUT; it is ignored (did you mean \
                       MAYPOLE_TIMEOUT?)";
        let transport = "maypole: there is no variable MAYPOLE_TRANSPROT; it is ignored \
                         (did you mean MAYPOLE_TRANSPORT?)";
        check(&names, &[timeout, transport]);
    }

    #[test]
    fn a_name_that_resembles_none_is_told_alone() {
        check(
            &["MAYPOLE_FAVOURITE_COLOUR"],
            &["maypole: there is no variable MAYPOLE_FAVOURITE_COLOUR; it is ignored"],
        );
        check(&["MAYPOLE_"], &["maypole: there is no variable MAYPOLE_; it is ignored"]);
    }

    #[test]
    fn known_variables_and_those_of_others_are_not_told() {
        let known: Vec<&str> = VARIABLES.iter().map(|variable| variable.name).collect();
        check(&known, &[]);
        check(&["maypole_timeout", "MAYPOLETIMEOUT", ""], &[]);
    }
}
