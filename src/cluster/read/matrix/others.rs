//! Output of `nvidia-smi` instead of the matrix, or next to it: the tables of `nvidia-smi topo
//! -p2p`, and its own failures.

use super::header::{first_row, is_gpu};
use crate::read::text::{LocatedChar, ReadError, lines, words};

/// The cells of `nvidia-smi topo -p2p`: whether one GPU may access another one.
const CELLS: [&str; 7] = ["OK", "CNS", "GNS", "TNS", "NS", "DR", "U"];

/// True for a row of `nvidia-smi topo -p2p`. A row of one GPU alone has no cell but its own.
fn is_peer_row(line: &[LocatedChar]) -> bool {
    let words = words(line);
    let Some(label) = words.iter().position(|word| is_gpu(&word.text)) else { return false };
    let cells: Vec<&str> = words[label + 1..].iter().map(|word| word.text.as_str()).collect();
    let is_cell = |cell: &&str| CELLS.contains(cell);
    cells.iter().any(is_cell) && cells.iter().all(|cell| *cell == "X" || is_cell(cell))
}

/// The lines, with the rows of `nvidia-smi topo -p2p` left blank.
pub(super) fn without_peer_tables(mut text: Vec<Vec<LocatedChar>>) -> Vec<Vec<LocatedChar>> {
    for line in &mut text {
        if is_peer_row(line) {
            line.clear();
        }
    }
    text
}

/// Messages of `nvidia-smi` and the shell when it fails, in lower case.
const FAILURES: [&str; 7] = [
    "failed to run topology",
    "nvidia-smi has failed",
    "failed to initialize nvml",
    "couldn't communicate with the nvidia driver",
    "no devices were found",
    "unable to determine the device handle",
    "nvidia-smi: ",
];

/// Why a text has no matrix, if the text shows it.
pub(super) fn explain(text: &str, error: ReadError) -> ReadError {
    const NEEDED: &str = "the matrix that `nvidia-smi topo -m` prints";
    if first_row(&without_peer_tables(lines(text))).is_some() {
        return error;
    }
    for (number, line) in text.lines().enumerate() {
        let low = line.to_lowercase();
        let is_failure = FAILURES.iter().any(|failure| low.contains(failure));
        let is_of_peers = is_peer_row(&lines(line).concat());
        let why = match (is_failure, is_of_peers) {
            (true, _) => "; nvidia-smi itself has failed here",
            (_, true) => "; this is a row of `nvidia-smi topo -p2p`",
            _ => continue,
        };
        let found: String = line.trim().chars().take(80).collect();
        let column = 1 + line.chars().take_while(|char| char.is_whitespace()).count();
        return ReadError { line: number + 1, column, found, expected: format!("{NEEDED}{why}") };
    }
    error
}
