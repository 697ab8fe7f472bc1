//! The README and the book show the output of this command, and name its options.
//!
//! `UPDATE=1 cargo test --workspace --test command book` writes the output.

use super::blocks::{compare_consoles, pages, repository, wrong_options};
use std::fs;
use std::process::{Command, Output};

fn train(line: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_train"));
    command.args(line.split_whitespace()).current_dir(repository()).output().expect("it starts")
}

#[test]
fn pages_show_what_the_command_prints() {
    compare_consoles("cargo train ", |line| {
        let output = train(line);
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "cargo train {line}: {complaint}");
        String::from_utf8(output.stdout).expect("output is text")
    });
}

#[test]
fn pages_name_options_that_the_command_has() {
    let help = |subcommand: &str| {
        let output = train(&format!("{subcommand} --help"));
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
    };
    for path in pages() {
        let page = fs::read_to_string(&path).expect("it is listed");
        for program in ["cargo train", "cargo run --release -p maypole-train --"] {
            let wrong = wrong_options(&page, program, help);
            assert!(wrong.is_empty(), "{}: {wrong:#?}", path.display());
        }
    }
}
