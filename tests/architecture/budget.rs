//! The budget of the house: code lines, without blanks, comments and unit tests. A feature pays with a deletion:
//! a change that exceeds a limit deletes lines elsewhere in the same part, and a change that saves
//! lines lowers the limit.

use super::{whole_files, without_tests};

// GPUs of several hosts took 640 lines of the core without a deletion (couriers, and the thread of
// each). Direct writes of couriers, and their ports, took 430, and 290 of tests with those of cut and slow links;
// slots in the memory of GPUs for them (GPUDirect) took 720.
// Layers on GPUs are crates beside the trainer, which took 1,265 of its lines.
/// A part of the house, the most lines that it has today, and how many it is to have.
struct Part {
    name: &'static str,
    most: usize,
    goal: usize,
}

const PARTS: [Part; 6] = [
    Part { name: "core", most: 41_299, goal: 38_000 },
    Part { name: "command line", most: 11_113, goal: 10_500 },
    Part { name: "tests of the library", most: 29_858, goal: 29_000 },
    Part { name: "trainer", most: 7_665, goal: 7_500 },
    Part { name: "crates beside the trainer", most: 13_608, goal: 10_500 },
    Part { name: "bindings", most: 6_536, goal: 5_500 },
];

/// How far below its number a part may be: then the number is lowered, so that nothing takes the room back.
const SLACK: usize = 400;

/// The part that a file counts in; `None` for the book, lessons, programs, benches and tests of examples and
/// bindings.
fn part(path: &str) -> Option<&'static str> {
    let folders: Vec<&str> = path.split('/').collect();
    let is_test = folders[0] == "tests" || folders[1..folders.len() - 1].contains(&"tests");
    match (folders[0], folders.get(1).copied().unwrap_or_default(), is_test) {
        _ if folders.contains(&"target") => None,
        ("examples" | "bindings" | "benches", _, true) => None,
        (_, _, true) => Some("tests of the library"),
        ("src", "cli", _) => Some("command line"),
        ("src", "cluster" | "pictures" | "testing", _) => None,
        ("src" | "transports" | "kernels", ..) => Some("core"),
        ("bindings", ..) => Some("bindings"),
        ("examples", "trainer", _) => Some("trainer"),
        ("examples", "book" | "programs", _) => None,
        ("examples", _, _) if folders.len() > 2 => Some("crates beside the trainer"),
        _ => None,
    }
}

/// Code lines of a file: its unit tests count only where the file is one of tests. Other names for the
/// search in the documentation are documentation.
fn code_lines(path: &str, text: &str) -> usize {
    let kept = match part(path) {
        Some("tests of the library") => text.to_owned(),
        _ if path.ends_with("tests.rs") => String::new(),
        _ => without_tests(text),
    };
    let is_text = |line: &str| line.starts_with("//") || line.starts_with("#[doc(alias");
    kept.lines().map(str::trim).filter(|line| !line.is_empty() && !is_text(line)).count()
}

#[test]
fn each_part_keeps_to_its_budget() {
    let mut lines = [0; PARTS.len()];
    for folder in ["src", "transports", "kernels", "bindings", "examples", "tests"] {
        for (path, text) in whole_files(folder) {
            if let Some(at) = PARTS.iter().position(|it| Some(it.name) == part(&path)) {
                lines[at] += code_lines(&path, &text);
            }
        }
    }
    for (Part { name, most, goal }, lines) in PARTS.iter().zip(lines) {
        println!("{name}: {lines} of {most} code lines; the goal is {goal}");
        assert!(
            lines <= *most,
            "{name} has {lines} code lines, and {most} are allowed: delete some"
        );
        let least = most.saturating_sub(SLACK).max(*goal);
        assert!(lines >= least, "{name} has {lines} code lines: lower its number in this file");
    }
}

#[test]
fn unit_tests_comments_and_blanks_are_no_code() {
    let text = "use a;\n\n// no\n#[doc(alias = \"x\")]\nfn f() {\n    g();\n}\n#[cfg(test)]\nmod x;\n#[cfg(test)]\nmod tests {\n    \
                fn t() {\n    }\n}\nconst A: u8 = 1;\n";
    assert_eq!(code_lines("src/a.rs", text), 5);
    assert_eq!(code_lines("tests/a.rs", text), 12);
    assert_eq!(code_lines("src/a_tests.rs", text), 0);
    assert_eq!(part("src/cli/tests/cli/a.rs"), Some("tests of the library"));
    assert_eq!(part("examples/lab/tests/a.rs"), None);
    assert_eq!(part("examples/01_hello.rs"), None);
    assert_eq!(part("transports/src/a.rs"), Some("core"));
}
