//! Names on the command line, and errors that say what names there are.

use maypole::DataType;
use maypole::algorithms::Algorithm;
use maypole::schedule::collective::Collective;

/// A collective by its name, `all-reduce`, `all_reduce` or `allreduce`, at root 0.
pub(crate) fn collective(text: &str) -> Result<Collective, String> {
    let plain = |name: &str| name.replace(['-', '_'], "");
    let found =
        Collective::all(0).into_iter().find(|collective| plain(collective.name()) == plain(text));
    found.ok_or_else(|| format!("no collective is called {text:?}; there are {}", collectives()))
}

/// All of them, as the command line writes them.
pub(crate) fn collectives() -> String {
    listed(Collective::all(0).into_iter().map(dashed))
}

/// `all-reduce`.
pub(crate) fn dashed(collective: Collective) -> String {
    collective.name().replace('_', "-")
}

/// The algorithms that have an answer to `collective`.
pub(crate) fn algorithms_for(collective: Collective) -> Vec<Algorithm> {
    Algorithm::ALL.into_iter().filter(|algorithm| algorithm.supports(collective)).collect()
}

/// Why `algorithm` cannot do `collective`, and what can.
pub(crate) fn no_answer(algorithm: Algorithm, collective: Collective) -> String {
    let others = listed(
        Algorithm::named().filter(|one| one.supports(collective)).map(|one| one.to_string()),
    );
    format!("{algorithm} has no answer to {}; there are {others}", dashed(collective))
}

/// Most ranks of a world that is only thought of.
const MOST_RANKS: usize = 1024;

/// The collective at its root, if a world of `ranks` has one.
pub(crate) fn rooted(
    collective: Collective,
    root: usize,
    ranks: usize,
) -> anyhow::Result<Collective> {
    anyhow::ensure!(
        (1..=MOST_RANKS).contains(&ranks),
        "-n {ranks}: there are 1 to {MOST_RANKS} ranks"
    );
    anyhow::ensure!(root < ranks, "there is no rank {root} in a world of {ranks} to be the root");
    Ok(collective.with_root(root))
}

/// An element type by its name.
pub(crate) fn kind(text: &str) -> Result<DataType, String> {
    let found = DataType::ALL.into_iter().find(|kind| kind.name() == text);
    let names = || listed(DataType::ALL.into_iter().map(|kind| kind.name().to_owned()));
    found.ok_or_else(|| format!("no type is called {text:?}; there are {}", names()))
}

/// `a, b, c`.
pub(crate) fn listed(names: impl IntoIterator<Item = String>) -> String {
    names.into_iter().collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_collective_and_type_is_found_by_its_name() {
        for wanted in Collective::all(0) {
            assert_eq!(collective(&dashed(wanted)), Ok(wanted));
            assert_eq!(collective(wanted.name()), Ok(wanted));
            assert!(!algorithms_for(wanted).is_empty());
        }
        for wanted in DataType::ALL {
            assert_eq!(kind(wanted.name()), Ok(wanted));
        }
    }

    #[test]
    fn errors_say_what_there_is() {
        assert!(collective("sum").unwrap_err().contains("all-reduce"));
        assert!(kind("float").unwrap_err().contains("f32"));
    }
}
