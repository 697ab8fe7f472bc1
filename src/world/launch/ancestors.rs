//! The environments of the processes above this one. They show the closest launcher: its variables
//! are in the processes that it started, and not in itself.

use std::collections::HashMap;
use std::fs;

/// The most processes above this one that are read.
const MOST: usize = 64;

/// The environments with which the processes above this one were started, the parent first. Ends
/// before the first one that cannot be read, such as a daemon of another user.
pub(super) struct Ancestors(Vec<HashMap<String, String>>);

impl Ancestors {
    pub(super) fn read() -> Self {
        let parents = std::iter::successors(parent("self"), |process| parent(process));
        Self(parents.take(MOST).map_while(|process| environment(&process)).collect())
    }

    /// How many of the processes, from the parent upwards, were started with all of `values`.
    pub(super) fn having(&self, values: &[(&str, String)]) -> usize {
        let has = |environment: &HashMap<String, String>| {
            values.iter().all(|(name, value)| {
                environment.get(*name).is_some_and(|found| found.trim() == value)
            })
        };
        self.0.iter().take_while(|environment| has(environment)).count()
    }
}

/// The number of the process that started `process`; `None` at the top.
fn parent(process: &str) -> Option<String> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let parent = status.lines().find_map(|line| line.strip_prefix("PPid:"))?.trim();
    (parent != "0").then(|| parent.to_owned())
}

/// `None` if the process cannot be read, or has overwritten its environment.
fn environment(process: &str) -> Option<HashMap<String, String>> {
    let bytes = fs::read(format!("/proc/{process}/environ")).ok().filter(|it| !it.is_empty())?;
    let variables = bytes.split(|byte| *byte == 0).filter_map(|variable| {
        let text = String::from_utf8_lossy(variable);
        text.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()))
    });
    Some(variables.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ancestors(environments: &[&[(&str, &str)]]) -> Ancestors {
        let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        Ancestors(environments.iter().map(|it| it.iter().map(own).collect()).collect())
    }

    #[test]
    fn variables_of_a_farther_launcher_are_in_more_processes() {
        // mpirun has RANK from its own parent, and gives each process another variable.
        let above = ancestors(&[&[("RANK", "0"), ("W", "1")], &[("RANK", "0"), ("W", "1")], &[]]);
        let having = |name: &str, value: &str| above.having(&[(name, value.to_owned())]);
        assert_eq!((having("RANK", "0"), having("RANK", "1"), having("OMPI", "0")), (2, 0, 0));
        assert_eq!(above.having(&[("RANK", "0".to_owned()), ("W", "2".to_owned())]), 0);
    }

    #[test]
    fn this_process_has_a_parent_with_an_environment() {
        assert!(parent("self").is_some());
        let path = std::env::var("PATH").unwrap();
        let above = Ancestors::read();
        assert!(above.having(&[("PATH", path)]) <= above.0.len());
    }
}
