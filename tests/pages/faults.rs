//! The page of faults in the documentation names tests that exist.

use std::fs;
use std::path::Path;

const PAGE: &str = "src/comm/faults.md";

/// The cells of each row below the head of the table.
fn rows(page: &str) -> Vec<Vec<&str>> {
    let lines = page.lines().filter(|line| line.starts_with('|'));
    lines.skip(2).map(|line| line.trim_matches('|').split('|').map(str::trim).collect()).collect()
}

/// Describes a fault of the test that a row names; `None` if the test exists.
fn missing(test: &str) -> Option<String> {
    let name = test.strip_prefix('`').and_then(|rest| rest.strip_suffix('`'));
    let Some((file, function)) = name.and_then(|name| name.split_once("::")) else {
        return Some(format!("'{test}' is not `FILE::FUNCTION`"));
    };
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let Ok(text) = fs::read_to_string(root.join(file)) else {
        return Some(format!("there is no file {file}"));
    };
    let is_test = text.split("#[test]").skip(1).any(|after| {
        let (before, rest) = after.split_once("fn ").unwrap_or_default();
        let attributes = before.trim();
        let is_named = rest.split('(').next() == Some(function);
        is_named && (attributes.is_empty() || attributes.starts_with("#["))
    });
    (!is_test).then(|| format!("{file} has no test {function}"))
}

#[test]
fn every_fault_has_its_row_and_its_test() {
    let page = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(PAGE)).unwrap();
    let rows = rows(&page);
    assert!(rows.len() > 30, "the table is read");
    for row in &rows {
        let [fault, sees, _bound, test] = row[..] else { panic!("four cells: {row:?}") };
        assert!(!fault.is_empty() && !sees.is_empty(), "{row:?}");
        if let Some(why) = missing(test) {
            panic!("{PAGE}, '{fault}': {why}");
        }
    }
    let mut faults: Vec<&str> = rows.iter().map(|row| row[0]).collect();
    faults.sort_unstable();
    faults.dedup();
    assert_eq!(faults.len(), rows.len(), "each fault has one row");
}

#[test]
fn a_test_that_is_not_there_is_noticed() {
    let there = "`tests/pages/faults.rs::a_test_that_is_not_there_is_noticed`";
    assert_eq!(missing(there), None);
    assert!(missing("`tests/pages/faults.rs::missing`").is_some(), "no test");
    assert!(missing("`tests/no_such_file.rs::any`").is_some());
    assert!(missing("words").is_some());
}
