//! The commit that the command is built from, for `--version` and the reports of `perf`.
//!
//! cargo also sets these variables where it runs the command, which reports unknown ones that begin with `MAYPOLE_`.

use std::process::Command;
use std::{env, fs};

fn main() {
    println!("cargo:rerun-if-env-changed=MAYPOLE_COMMIT");
    let named = env::var("MAYPOLE_COMMIT").ok();
    let mut version = env::var("CARGO_PKG_VERSION").expect("cargo sets it");
    if let Some(commit) = named.or_else(packed).or_else(checked_out) {
        println!("cargo:rustc-env=BUILT_COMMIT={commit}");
        version += &format!(" ({commit})");
    }
    println!("cargo:rustc-env=BUILT_VERSION={version}");
}

/// The commit that cargo noted when it packed this crate.
fn packed() -> Option<String> {
    let notes = fs::read_to_string(".cargo_vcs_info.json").ok()?;
    Some(notes.split("\"sha1\": \"").nth(1)?.get(..12)?.to_owned())
}

/// The commit of a checkout, in a release build: others would be built again after each commit.
fn checked_out() -> Option<String> {
    let git = |words: &str| {
        let output = Command::new("git").args(words.split(' ')).output().ok()?;
        let printed = String::from_utf8(output.stdout).ok()?.trim().to_owned();
        output.status.success().then_some(printed)
    };
    // A folder of another project may contain this crate.
    let ours = env::var("PROFILE").is_ok_and(|profile| profile == "release")
        && git("ls-files --error-unmatch build.rs").is_some();
    println!("cargo:rerun-if-changed={}", git("rev-parse --git-path logs/HEAD").filter(|_| ours)?);
    git("rev-parse --short=12 HEAD")
}
