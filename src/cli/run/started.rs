//! The processes that were started, and how ranks are named.

/// A process that was started.
#[derive(Debug)]
pub(super) struct StartedProcess {
    pub(super) rank: usize,
    pub(super) is_running: bool,
}

/// Ranks in ascending order, with three or more in a row as a range: `rank 3`, `ranks 0-2 5 7 8`; `ranks none`
/// without any.
pub(super) fn names_of(ranks: &[usize]) -> String {
    let runs = ranks.chunk_by(|one, next| one + 1 == *next);
    let name = |run: &[usize]| match run {
        [first, _, .., last] => format!("{first}-{last}"),
        few => few.iter().map(usize::to_string).collect::<Vec<_>>().join(" "),
    };
    let names: Vec<String> = runs.map(name).collect();
    let names = if names.is_empty() { "none".to_owned() } else { names.join(" ") };
    format!("{} {names}", if ranks.len() == 1 { "rank" } else { "ranks" })
}

/// The ranks of the processes that run: `rank 3`, `ranks 0 1 7`, `ranks 0-511`.
pub(super) fn running_names(started: &[StartedProcess]) -> String {
    let running = started.iter().filter(|process| process.is_running);
    let mut ranks: Vec<usize> = running.map(|process| process.rank).collect();
    ranks.sort_unstable();
    names_of(&ranks)
}

/// The verb after the names of ranks.
pub(super) fn are(names: &str) -> &'static str {
    if names.starts_with("ranks") { "are" } else { "is" }
}

/// `, 386 ranks were not started`, or nothing.
pub(super) fn not_started(missing: usize) -> String {
    match missing {
        0 => String::new(),
        1 => ", 1 rank was not started".to_owned(),
        missing => format!(", {missing} ranks were not started"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_in_a_row_are_named_by_their_ends() {
        for (ranks, names) in [
            (&[][..], "ranks none"),
            (&[3], "rank 3"),
            (&[0, 1], "ranks 0 1"),
            (&[0, 1, 2, 5, 7, 8], "ranks 0-2 5 7 8"),
        ] {
            assert_eq!(names_of(ranks), names);
        }
    }
}
