//! The table "From OSU, IMB, nccl-tests and perftest" of the book: each of its commands runs.

use super::blocks::{book, commands};
use super::printed;

#[test]
fn every_command_of_the_table_runs() {
    crate::skip::takes_turns!(2);
    let page = std::fs::read_to_string(book().join("from-osu.md")).unwrap();
    let rows: Vec<&str> = page.lines().filter(|line| line.starts_with("| ")).skip(1).collect();
    for row in &rows {
        let command = commands(row).into_iter().find(|it| it.starts_with("maypole perf "));
        let command = command.unwrap_or_else(|| panic!("no command: {row}"));
        // Small sizes of few ranks take the same way through the options.
        let words = command.split(' ').map(|word| if word.ends_with('M') { "64" } else { word });
        let line = words.skip(1).collect::<Vec<_>>().join(" ");
        let line = line.replace("-n 4", "-n 2").replace("-g 4", "-g 2");
        let over = if line.contains("--transport") { "" } else { "--transport shm" };
        printed(&format!("{line} {over} --budget 1 --threads"));
    }
    assert!(rows.len() >= 18, "{} rows", rows.len());
}
