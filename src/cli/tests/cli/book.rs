//! The README and the book show the output of this command, and name options that it has.
//!
//! `UPDATE=1 cargo test --workspace --test cli book` writes that output.

use super::blocks::{comment, compare_consoles, pages, repository, wrong_options};
use super::{maypole, printed, text};
use std::fs;

#[test]
fn pages_show_what_the_command_prints() {
    compare_consoles("maypole ", |line| {
        let output = maypole(line).current_dir(repository()).output().expect("it starts");
        // 1: there is a flaw, or an exercise is not done.
        let is_answer = matches!(output.status.code(), Some(0 | 1));
        assert!(is_answer, "maypole {line}: {}", text(&output.stderr));
        text(&output.stdout)
    });
}

/// A line `<!-- picture: COMMAND -->` stands before a picture that this command draws.
#[test]
fn pictures_are_what_the_command_draws() {
    let mut compared = 0;
    for path in pages() {
        let page = fs::read_to_string(&path).expect("it is listed");
        let lines: Vec<&str> = page.lines().collect();
        for pair in lines.windows(2).filter(|pair| pair[1].starts_with("![")) {
            let place = format!("{}: {}", path.display(), pair[1]);
            let command = comment(pair[0]).and_then(|mark| mark.strip_prefix("picture: "));
            let command =
                command.unwrap_or_else(|| panic!("{place}: no command drew this picture"));
            let Some(arguments) = command.strip_prefix("maypole ") else { continue };
            let file = pair[1].split(['(', ')']).nth(1).expect("a picture is a link");
            compare_picture(&path.with_file_name(file), &printed(arguments));
            compared += 1;
        }
    }
    assert!(compared >= 3, "{compared} pictures");
}

fn compare_picture(file: &std::path::Path, drawn: &str) {
    if std::env::var_os("UPDATE").is_some() {
        fs::write(file, drawn).expect("the folder can be written");
    }
    let found = fs::read_to_string(file).unwrap_or_default();
    assert!(found == drawn, "{} is not what the command draws; UPDATE=1 writes it", file.display());
}

#[test]
fn pages_name_options_that_the_command_has() {
    let help = |subcommand: &str| {
        let output = maypole(&format!("{subcommand} --help")).output().expect("it starts");
        output.status.success().then(|| text(&output.stdout))
    };
    for path in pages() {
        let page = fs::read_to_string(&path).expect("it is listed");
        for program in ["maypole", "cargo run --release --"] {
            let wrong = wrong_options(&page, program, help);
            assert!(wrong.is_empty(), "{}: {wrong:#?}", path.display());
        }
    }
}
