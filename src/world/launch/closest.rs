//! Chooses among the variables of several launchers: those of the launcher that started this very
//! process take precedence.

use super::identity::{Identity, LauncherSet, alone, own, sets};
use super::variables::VariableReader;
use super::{LaunchError, Launcher};
use std::collections::HashMap;
use std::fs;

/// How many processes above this one have inherited variables with these values; equal numbers for
/// all variables where that is unknown. The launcher of the least number is the closest one.
pub(super) type Distance<'a> = &'a dyn Fn(&[(&str, String)]) -> usize;

/// Reads every launcher's variables, and chooses among the complete sets. The text names the
/// ignored sets, unless these launchers are nested as usual.
pub(super) fn identity(
    vars: VariableReader,
    distance: Distance,
) -> Result<(Identity, Option<String>), LaunchError> {
    if let Some(own) = own(vars)? {
        let others = sets(vars).unwrap_or_default();
        check_own(vars, &own, &others, distance)?;
        return Ok((own.identity, None));
    }
    let sets = sets(vars)?;
    let Some((chosen, note)) = choose(vars, &sets, distance)? else {
        return Ok((alone(vars)?, None));
    };
    chosen.agrees_with_lone_variables(vars)?;
    Ok((chosen.identity.clone(), note))
}

/// The chosen set, and a text about sets that it overrules. `None` without any set.
///
/// # Errors
/// [`LaunchError`] if the sets differ and no rule selects one.
fn choose<'a>(
    vars: VariableReader,
    sets: &'a [LauncherSet],
    distance: Distance,
) -> Result<Option<(&'a LauncherSet, Option<String>)>, LaunchError> {
    let Some(first) = sets.first() else { return Ok(None) };
    if sets.iter().all(|set| set.agrees_with(first)) {
        return Ok(Some((first, None)));
    }
    let distances: Vec<usize> = sets.iter().map(|set| distance(&set.values(vars))).collect();
    let least = distances.iter().min().copied();
    let near = sets.iter().zip(&distances).filter(|(_, it)| Some(**it) == least);
    let chosen = among_near(&near.map(|(set, _)| set).collect::<Vec<_>>())?;
    let overruled = sets.iter().filter(|set| !set.agrees_with(chosen) && !is_usual(chosen, set));
    let words: Vec<String> = overruled.map(LauncherSet::words).collect();
    let note = format!("{}; {} counts instead", words.join(", "), chosen.words());
    Ok(Some((chosen, (!words.is_empty()).then_some(note))))
}

/// The chosen set among those that are equally close.
fn among_near<'a>(near: &[&'a LauncherSet]) -> Result<&'a LauncherSet, LaunchError> {
    // A set of one process shows only that its launcher started one process.
    let chosen = near.iter().find(|set| set.identity.world > 1).unwrap_or(&near[0]);
    let differs = |set: &&&LauncherSet| set.identity.world > 1 && !set.agrees_with(chosen);
    let other = near.iter().filter(differs).find(|set| !is_usual(chosen, set));
    other.map_or(Ok(chosen), |other| Err(contradiction(chosen, other)))
}

/// True if a process of `outer` usually starts the launcher of `inner`, as srun starts torchrun or
/// the daemons of mpirun on each host.
fn is_usual(inner: &LauncherSet, outer: &LauncherSet) -> bool {
    let hides_nothing = inner.identity.world > 1 || outer.identity.world == 1;
    let is_nested = match inner.names.launcher {
        Launcher::Torchrun => inner.is_per_process,
        Launcher::OpenMpi | Launcher::Mpich => outer.names.launcher == Launcher::Slurm,
        _ => false,
    };
    hides_nothing && is_nested
}

/// Refuses `MAYPOLE_RANK` and `MAYPOLE_WORLD` that were inherited from a process above another
/// launcher, which has started several processes since.
fn check_own(
    vars: VariableReader,
    own: &LauncherSet,
    others: &[LauncherSet],
    distance: Distance,
) -> Result<(), LaunchError> {
    let others: Vec<&LauncherSet> = others.iter().filter(|set| !set.agrees_with(own)).collect();
    if others.is_empty() {
        return Ok(());
    }
    let of_own = distance(&own.values(vars));
    let closer = others.into_iter().find(|set| distance(&set.values(vars)) < of_own);
    closer.map_or(Ok(()), |closer| Err(contradiction(own, closer)))
}

fn contradiction(one: &LauncherSet, other: &LauncherSet) -> LaunchError {
    LaunchError::contradiction(&one.words(), &other.words())
}

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
