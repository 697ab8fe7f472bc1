//! The pages `tests/consoles/*.md` show commands with their whole outputs, and each prints that.
//!
//! A command is a line of a shell, in a folder with the page's files: blocks behind `<!-- file: NAME -->`.
//! Both streams are shown, and an exit code other than 0. `...` stands for any lines, and `…` for any part of a
//! line. `UPDATE=1 cargo test -p maypole-cli --test cli consoles` writes what differs.

use super::alone;
use super::blocks::{blocks, compare_page, renewed, repository, with_blocks};
use std::fs;
use std::path::Path;

/// Runs a line of a shell, which must end within 100 seconds. Lines of progress are left out.
fn output(line: &str, folder: &Path) -> String {
    let programs = Path::new(env!("CARGO_BIN_EXE_maypole")).parent().expect("it is in a folder");
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").expect("it is set"));
    let mut command = alone("timeout");
    command.args(["100", "bash", "-c", &format!("set -o pipefail; exec 2>&1; {line}")]);
    command.current_dir(folder).env("PATH", path).env("MAYPOLE_TUNE", "off");
    let output = command.env("REPOSITORY", repository()).output().expect("a shell");
    let shown = String::from_utf8_lossy(&output.stdout);
    let mut lines: Vec<&str> = shown.lines().filter(|line| !line.ends_with(" so far")).collect();
    let code = format!("exit code {}", output.status.code().expect("a shell that ends"));
    lines.extend((!output.status.success()).then_some(&*code));
    lines.join("\n")
}

#[track_caller]
fn compare(name: &str) {
    let path = repository().join(format!("src/cli/tests/consoles/{name}.md"));
    let page = fs::read_to_string(&path).expect("it is a page");
    let folder = tempfile::tempdir().unwrap();
    for block in blocks(&page) {
        let name = block.mark.and_then(|mark| mark.strip_prefix("file: "));
        name.iter().for_each(|name| fs::write(folder.path().join(name), block.body).unwrap());
    }
    let right = with_blocks(&page, |block| {
        let shown = block.language == "console";
        shown.then(|| renewed(block.body, "", &|line| output(line, folder.path())))
    });
    compare_page(&path, &page, &right);
}

#[test]
fn descriptions() {
    compare("descriptions");
}

#[test]
fn files() {
    compare("files");
}

#[test]
fn launcher() {
    compare("launcher");
}

#[test]
fn predictions() {
    crate::skip::takes_turns!(2);
    compare("predictions");
}

#[test]
fn refused() {
    crate::skip::takes_turns!(2);
    compare("refused");
}

#[test]
fn topologies() {
    compare("topologies");
}
