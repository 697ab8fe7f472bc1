//! The house rules that a compiler does not keep. Each failure prints the sentence that was broken.

use std::fs;
use std::path::{Path, PathBuf};

/// Which modules of `src` each of them may name, and the sentence behind the row. Reading order is
/// from top to bottom.
const MAY_NAME: &[(&str, &str, &str)] = &[
    ("collective", "", "what a collective promises depends on nothing"),
    ("schedule", "", "a schedule is plain data and depends on nothing"),
    (
        "algorithms",
        "collective schedule",
        "an algorithm makes schedules; it knows none of their readers",
    ),
    ("walk", "schedule", "the walk reads schedules only"),
    (
        "verify",
        "collective schedule walk",
        "the checker knows what is promised and the law, never who executes",
    ),
    ("draw", "schedule walk", "a drawing shows steps, whatever they are for"),
    ("trace", "", "a trace shows what happened, whatever it was"),
    ("simulate", "schedule trace walk", "the simulator prices steps, whatever they are for"),
    (
        "topology",
        "algorithms collective schedule walk",
        "a topology is data about machines; it knows no executor and reads no machine itself",
    ),
    (
        "tuner",
        "algorithms collective schedule simulate topology",
        "the tuner is pure: equal questions have equal answers",
    ),
    ("lower", "collective schedule walk", "lowering is pure and knows no algorithm"),
    ("element", "", "elements depend on nothing"),
    ("error", "algorithms collective element", "errors are data"),
    ("detect", "topology", "detection fills in what a description has, and plans nothing with it"),
    ("execute", "lower schedule", "the executor knows programs, never collectives or algorithms"),
    ("tuned", "tuner", "where measured costs are kept is no matter of the pure tuner"),
    ("record", "execute lower trace", "the recorder watches the executor; it knows no collective"),
    ("launch", "", "who we are is read from the environment alone"),
    ("bootstrap", "service", "joining knows the control plane and no collective"),
    ("service", "bootstrap", "the control plane knows no collective"),
    (
        "comm",
        "algorithms bootstrap collective element error execute launch lower record schedule service topology tuned tuner verify",
        "the front door joins the halves; drawings and simulations are not its business",
    ),
];
const PURE: &str = "collective schedule algorithms walk verify draw trace simulate topology tuner lower element error";
const EFFECTS: &[&str] = &[
    "std::env",
    "std::fs",
    "std::io",
    "std::net",
    "std::os",
    "std::process",
    "std::thread",
    "Instant::now",
    "SystemTime",
];

#[test]
fn modules_name_only_what_their_row_says() {
    let modules = fs::read_to_string(root().join("src/lib.rs")).unwrap();
    for module in
        modules.lines().filter_map(|line| line.strip_prefix("pub mod ")?.strip_suffix(';'))
    {
        let row = MAY_NAME.iter().find(|row| row.0 == module);
        let (_, may, sentence) =
            row.unwrap_or_else(|| panic!("src/{module}.rs has no row in the table of this test"));
        for (file, code) in sources("src").into_iter().filter(|(file, _)| module_of(file) == module)
        {
            assert!(
                !code.contains("crate::{"),
                "{file}: one `use` a module, so that this table can read it"
            );
            for named in code.split("crate::").skip(1).map(word) {
                let may = may.split(' ').any(|it| it == named) || named == module;
                assert!(may, "{file} names `{named}`, but {sentence}");
            }
        }
    }
}

#[test]
fn what_is_pure_has_no_effects() {
    let pure = |file: &str| PURE.split(' ').any(|module| module == module_of(file));
    for (file, code) in sources("src").into_iter().filter(|(file, _)| pure(file)) {
        let effect = EFFECTS.iter().find(|effect| code.contains(**effect));
        assert_eq!(
            effect, None,
            "{file}: time, threads and files are arguments of the pure half, never looked up in it"
        );
        for leaf in ["maypole_transports::", "maypole_kernels::"] {
            for named in code.split(leaf).skip(1).map(word) {
                let data = ["board", "BinaryOp", "DataType", "Scalar"].contains(&named);
                assert!(
                    data,
                    "{file} names {leaf}{named}; the pure half takes sizes and types from the leaves, no more"
                );
            }
        }
    }
}

#[test]
fn leaves_know_no_collective() {
    for leaf in ["transports", "kernels"] {
        for (file, code) in sources(&format!("{leaf}/src")) {
            for word in ["collective", "algorithm", "schedule", "all_reduce", "maypole::"] {
                assert!(
                    !code.to_lowercase().contains(word),
                    "{file} says `{word}`: {leaf} knows no collective"
                );
            }
            for named in code.split("maypole_kernels::").skip(1).flat_map(words_of_use) {
                let seam = ["Region", "View", "ViewMut"].contains(&named);
                assert!(
                    seam,
                    "{file} names {named}: transports know memory, not the arithmetic on it"
                );
            }
        }
    }
}

#[test]
fn unsafe_code_system_calls_and_crates_stay_in_their_places() {
    for (file, code) in sources("src") {
        let found = code.lines().find(|line| line.replace("unsafe_code", "").contains("unsafe"));
        assert_eq!(found, None, "{file}: unsafe code lives in transports and kernels");
    }
    for file in ["src/lib.rs", "src/bin/maypole/main.rs"] {
        let code = fs::read_to_string(root().join(file)).unwrap();
        assert!(code.contains("#![forbid(unsafe_code)]"), "{file} forbids unsafe code");
    }
    for (file, code) in sources("examples/trainer/src") {
        let found = code.lines().find(|line| line.replace("unsafe_code", "").contains("unsafe"));
        assert!(
            found.is_none() || file.ends_with("/matmul.rs"),
            "{file}: the trainer calls unsafe code for matrix products alone, in matmul.rs"
        );
    }
    let manifest = |of: &str| fs::read_to_string(root().join(of).join("Cargo.toml")).unwrap();
    // The members' list and [workspace.dependencies] come before the package itself.
    let package = manifest("").split("[package]").last().unwrap().to_owned();
    for system in ["libc", "rustix", "socket2", "nix"] {
        let named = package.lines().any(|line| word(line) == system);
        assert!(
            !named,
            "maypole depends on {system}, but system calls live in transports and kernels"
        );
    }
    assert!(
        !manifest("kernels").contains("maypole-transports"),
        "kernels depend on no other crate of ours"
    );
    assert!(!manifest("transports").contains("\nmaypole."), "transports do not depend on maypole");
}

#[test]
fn the_top_level_is_fixed() {
    let folders = ["src", "transports", "kernels", "examples", "tests", "benches", "target"];
    for entry in
        fs::read_dir(root()).unwrap().map(Result::unwrap).filter(|entry| entry.path().is_dir())
    {
        let name = entry.file_name().into_string().unwrap();
        assert!(
            name.starts_with('.') || folders.contains(&&*name),
            "{name}/: a new folder has to earn its place"
        );
    }
}

#[test]
fn a_file_is_one_idea() {
    for (file, code) in ["src", "transports/src", "kernels/src", "examples/trainer"]
        .into_iter()
        .flat_map(whole_files)
    {
        let lines = code.lines().take_while(|line| !line.starts_with("#[cfg(test)]")).count();
        let algorithm = module_of(&file) == "algorithms" && !file.ends_with("mod.rs");
        let limit = if algorithm { 150 } else { 400 };
        let tests = file.ends_with("tests.rs") || file.contains("/tests/");
        assert!(
            tests || lines <= limit,
            "{file} has {lines} lines of at most {limit}: are these two ideas?"
        );
    }
    for (file, code) in whole_files("examples")
        .into_iter()
        .filter(|(file, _)| !file.starts_with("examples/trainer"))
    {
        assert!(code.lines().count() <= 60, "{file}: a lesson has at most 60 lines");
    }
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// `src/walk.rs` and `src/lower/fuse.rs` belong to `walk` and `lower`; the binary to `bin`.
fn module_of(file: &str) -> &str {
    let inner = file.strip_prefix("src/").unwrap_or(file);
    inner.split('/').next().unwrap().trim_end_matches(".rs")
}

fn word(text: &str) -> &str {
    text.split(|c: char| !(c.is_alphanumeric() || c == '_')).next().unwrap()
}

/// The names that follow `a_crate::`: one, or those in braces.
fn words_of_use(text: &str) -> Vec<&str> {
    match text.strip_prefix('{') {
        Some(group) => {
            group.split('}').next().unwrap().split(',').map(|name| word(name.trim())).collect()
        }
        None => vec![word(text)],
    }
}

/// Every Rust file below `folder`, by its path from the root, without comments and tests.
fn sources(folder: &str) -> Vec<(String, String)> {
    let code = |line: &&str| !line.trim_start().starts_with("//");
    let strip = |text: String| {
        let lines = text.lines().take_while(|line| !line.starts_with("#[cfg(test)]")).filter(code);
        lines.collect::<Vec<_>>().join("\n")
    };
    let tests = |file: &str| file.ends_with("tests.rs") || file.contains("/tests/");
    let files = whole_files(folder).into_iter().filter(|(file, _)| !tests(file));
    files.map(|(file, text)| (file, strip(text))).collect()
}

fn whole_files(folder: &str) -> Vec<(String, String)> {
    let (mut found, mut folders) = (Vec::new(), vec![root().join(folder)]);
    while let Some(folder) = folders.pop() {
        let entries =
            fs::read_dir(&folder).into_iter().flatten().map(|entry| entry.unwrap().path());
        let (inner, files): (Vec<PathBuf>, Vec<PathBuf>) = entries.partition(|path| path.is_dir());
        folders.extend(inner);
        for file in
            files.into_iter().filter(|path| path.extension().is_some_and(|kind| kind == "rs"))
        {
            let name = file.strip_prefix(root()).unwrap().to_str().unwrap().to_owned();
            found.push((name, fs::read_to_string(&file).unwrap()));
        }
    }
    found
}
