//! The rules of the code that the compiler does not check. Each failure prints the rule that was
//! broken.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

#[path = "architecture/budget.rs"]
mod budget;
#[path = "architecture/rooms.rs"]
mod rooms;
#[path = "architecture/surface.rs"]
mod surface;
#[path = "architecture/trainer.rs"]
mod trainer;

/// Rooms without effects, and the parts of them that exist for an effect.
const PURE: &str = "schedule algorithms lower topology tuner cluster pictures";
const NOT_PURE: &[&str] = &["src/topology/detect", "src/tuner/saved.rs"];
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

/// The code of the trainer's crates.
const TRAINER: &[&str] = &[
    "examples/trainer/src",
    "examples/gpu/src",
    "examples/corpus/src",
    "examples/lab/src",
    "examples/planner/src",
    "examples/search/src",
    "examples/train/src",
];

#[test]
fn every_path_of_a_rule_is_there() {
    for path in NOT_PURE.iter().chain(WRITERS) {
        let there = root().join(path).exists() || root().join(format!("{path}.rs")).exists();
        assert!(there, "{path}: a rule names a file or folder that is not there");
    }
}

#[test]
fn pure_rooms_have_no_effects() {
    let pure = |file: &str| {
        let excepted = NOT_PURE.iter().any(|part| is_in(file, part));
        !excepted && PURE.split(' ').any(|room| room == module_of(file))
    };
    for (file, code) in sources("src").into_iter().filter(|(file, _)| pure(file)) {
        let effect = EFFECTS.iter().find(|effect| code.contains(**effect));
        assert_eq!(
            effect, None,
            "{file}: time, threads and files are arguments of the pure half, never looked up in it"
        );
        for leaf in ["maypole_transports::", "maypole_kernels::"] {
            for named in code.split(leaf).skip(1).flat_map(first_words) {
                let sizes = ["board", "HEAD", "LONGEST_AHEAD", "packed"].contains(&named);
                let data = sizes || ["BinaryOp", "DataType", "Scalar"].contains(&named);
                assert!(
                    data,
                    "{file} names {leaf}{named}; the pure half takes only sizes and types \
                     from the leaves"
                );
            }
        }
    }
}

#[test]
fn the_executor_knows_no_collective() {
    for (file, code) in sources("src/execute") {
        assert!(!code.contains("Collective"), "{file} names a collective: it runs programs");
    }
}

/// Words of schedules and collectives, in lower case without `_`: parts of `AllReduce` and `ALL_REDUCE`.
const OF_SCHEDULES: &str = "collective algorithm schedule maypole:: allreduce allgather \
                            reducescatter alltoall broadcast gather scatter";

/// The code of a leaf, and that of the kernels.
fn leaf_code(leaf: &str) -> Vec<(String, String)> {
    let kernels = files_of("kernels/cuda", &["h", "cu"]).into_iter();
    let code = |line: &str| line.split("//").next().unwrap_or_default().to_owned() + "\n";
    let kernels = kernels.map(|(file, text)| (file, text.lines().map(code).collect()));
    sources(&format!("{leaf}/src")).into_iter().chain(kernels).collect()
}

#[test]
fn leaves_know_no_collective() {
    for leaf in ["transports", "kernels"] {
        for (file, code) in leaf_code(leaf) {
            let words = code.to_lowercase().replace('_', "");
            let found = OF_SCHEDULES.split(' ').find(|word| words.contains(word));
            assert_eq!(found, None, "{file}: {leaf} knows no collective");
            for named in code.split("maypole_kernels::").skip(1).flat_map(first_words) {
                // A board of GPUs starts kernels, which a driver runs.
                let kernels = ["cuda", "packed", "Scalar"].contains(&named);
                let memory = ["Region", "SharedRegion", "View", "ViewMut", "string_copies_crawl"];
                let seam = memory.contains(&named)
                    || (file.starts_with("transports/src/cuda/") && kernels);
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
    for (file, text) in whole_files("src") {
        assert!(!text.contains("unsafe {"), "{file}: not in its tests either");
    }
    for file in [
        "src/lib.rs",
        "src/cli/main.rs",
        "src/cluster/lib.rs",
        "src/pictures/lib.rs",
        "src/testing/lib.rs",
    ] {
        let code = fs::read_to_string(root().join(file)).unwrap();
        assert!(code.contains("#![forbid(unsafe_code)]"), "{file} forbids unsafe code");
    }
    for (file, code) in TRAINER.iter().flat_map(|folder| sources(folder)) {
        let found = code.lines().find(|line| line.replace("unsafe_code", "").contains("unsafe"));
        assert!(
            found.is_none() || file.ends_with("/matmul.rs"),
            "{file}: the trainer calls unsafe code for matrix products alone, in matmul.rs"
        );
    }
    let manifest = |of: &str| fs::read_to_string(root().join(of).join("Cargo.toml")).unwrap();
    // The list of members and [workspace.dependencies] come before `[package]`.
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

/// The pages of the command line that write: the one writer, the forwarding of ranks' output, and the build script.
const WRITERS: &[&str] = &["src/cli/output.rs", "src/cli/run/lines.rs", "src/cli/build.rs"];
/// Calls that write to a standard stream or a file, and that panic, or lose the error, if they
/// cannot write.
const WRITES: &[&str] =
    &["print!(", "println!(", "stdout().lock()", "stdout(),", "fs::write(", "File::create("];

#[test]
fn one_page_writes_what_the_command_line_prints() {
    for (file, code) in sources("src/cli") {
        let found = WRITES.iter().find(|write| code.contains(**write));
        assert!(
            found.is_none() || WRITERS.contains(&&*file),
            "{file} says `{}`: a closed pipe and a full disk are handled in output.rs",
            found.unwrap()
        );
    }
    for (file, code) in sources("src") {
        assert!(
            !code.contains("println!(") || WRITERS.contains(&&*file),
            "{file} prints: this macro panics in a program whose streams are closed"
        );
    }
}

#[test]
fn paths_with_super_are_read() {
    let code = "use super::walk::{Walk, Law};\nuse super::super::tuner::Plan;";
    let expected = "use crate::schedule::walk::{Walk, Law};\nuse crate::tuner::Plan;";
    assert_eq!(absolute("src/schedule/verify.rs", code), expected);
    assert_eq!(absolute("src/schedule/verify/mod.rs", code), expected);
    let tree = "{a::{b, c::{self, d}}, e as f,\n    g::*};\nuse h::i;";
    let expected: [&[&str]; 5] =
        [&["a", "b"], &["a", "c", "self"], &["a", "c", "d"], &["e"], &["g"]];
    assert_eq!(paths(tree), expected);
    assert_eq!(paths("walk::Walk;"), [["walk", "Walk"]]);
}

#[test]
fn code_behind_tests_is_read() {
    let text = "a\n#[cfg(test)]\nmod tests;\nb\n#[cfg(test)]\nmod more {\n    fn f() {\n    }\n}\n\
                c\n    #[cfg(test)]\n    fn g(\n        h: u8,\n    ) {\n    }\n    d";
    assert_eq!(without_tests(text), "a\nb\nc\n    d");
}

/// The folders of the top level.
const FOLDERS: &[&str] =
    &["src", "transports", "kernels", "bindings", "examples", "tests", "benches", "target"];

#[test]
fn the_top_level_is_fixed() {
    for entry in
        fs::read_dir(root()).unwrap().map(Result::unwrap).filter(|entry| entry.path().is_dir())
    {
        let name = entry.file_name().into_string().unwrap();
        assert!(
            name.starts_with('.') || FOLDERS.contains(&&*name),
            "{name}/: the folders of the top level are fixed; change the list with care"
        );
    }
}

/// Names of types that stand for two things. No name is to be added.
const DOUBLE: &[&str] = &["Group"];

#[test]
fn a_type_has_a_name_of_its_own() {
    let mut seen: BTreeMap<String, String> = BTreeMap::new();
    for (file, code) in ["src", "transports/src", "kernels/src"].into_iter().flat_map(sources) {
        for line in code.lines().filter(|_| !file.starts_with("src/cli/")) {
            let words: Vec<&str> = line.split([' ', '<', '(', ';', '{', ':']).collect();
            let kind = words.iter().position(|word| ["struct", "enum", "trait"].contains(word));
            let begins = |start: &&str| line.trim_start().starts_with(start);
            let is_item = ["pub", "struct", "enum", "trait"].iter().any(begins);
            let name = kind.filter(|_| is_item).and_then(|kind| words.get(kind + 1));
            let Some(name) = name.filter(|name| name.starts_with(char::is_uppercase)) else {
                continue;
            };
            let other = seen.insert((*name).to_owned(), file.clone());
            let other = other.filter(|other| *other != file && !DOUBLE.contains(name));
            assert_eq!(other, None, "{file} has a type {name}, too");
        }
    }
}

#[test]
fn files_are_short() {
    let crates = ["src", "transports/src", "kernels/src", "examples/kernels/src"];
    for (file, code) in crates.iter().chain(TRAINER).flat_map(|folder| whole_files(folder)) {
        let lines = without_tests(&code).lines().count();
        let lists = file.ends_with("mod.rs") || file.ends_with("table.rs");
        let algorithm = module_of(&file) == "algorithms" && !lists;
        let limit = if algorithm { 150 } else { 400 };
        let tests = file.ends_with("tests.rs") || file.contains("/tests/");
        assert!(
            tests || lines <= limit,
            "{file} has {lines} lines of at most {limit}: split it into one file an idea"
        );
    }
    for (file, code) in whole_files("examples") {
        let pages = ["examples/from_nccl/", "examples/programs/"];
        let is_page = pages.iter().any(|folder| file.starts_with(folder));
        if file.matches('/').count() > 1 && !is_page {
            continue;
        }
        assert!(code.lines().count() <= 60, "{file}: a lesson and a program have at most 60 lines");
    }
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// True if `file` belongs to `part`: to the part `src/draw` belong `src/draw.rs` and all files
/// below `src/draw/`.
fn is_in(file: &str, part: &str) -> bool {
    let rest = file.strip_prefix(part);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/') || rest == ".rs")
}

/// `src/walk.rs` and `src/lower/fuse.rs` belong to `walk` and `lower`; the command line to `cli`.
fn module_of(file: &str) -> &str {
    let inner = file.strip_prefix("src/").unwrap_or(file);
    inner.split('/').next().unwrap().trim_end_matches(".rs")
}

fn word(text: &str) -> &str {
    text.split(|c: char| !(c.is_alphanumeric() || c == '_')).next().unwrap()
}

/// The paths that `text` begins with: one, or all of a tree in braces.
fn paths(text: &str) -> Vec<Vec<&str>> {
    if let Some(tree) = text.strip_prefix('{') {
        return branches(tree).into_iter().flat_map(paths).collect();
    }
    let first = word(text);
    let rest = text[first.len()..].strip_prefix("::").map_or_else(|| vec![Vec::new()], paths);
    let whole = |rest| [first].into_iter().chain(rest).filter(|name| !name.is_empty()).collect();
    rest.into_iter().map(whole).collect()
}

/// The parts of a tree of paths, up to the brace that closes it.
fn branches(tree: &str) -> Vec<&str> {
    let deeper = |letter| i32::from(letter == '{') - i32::from(letter == '}');
    let mut depth = 0;
    let closes = |letter: char| {
        depth += deeper(letter);
        depth < 0
    };
    let end = tree.find(closes).unwrap_or(tree.len());
    let mut depth = 0;
    let parts = tree[..end].split(|letter: char| {
        depth += deeper(letter);
        depth == 0 && letter == ','
    });
    parts.map(str::trim).filter(|part| !part.is_empty()).collect()
}

/// The first name of each of the [`paths`] that `text` begins with.
fn first_words(text: &str) -> Vec<&str> {
    paths(text).iter().filter_map(|path| path.first().copied()).collect()
}

/// `code` of `file` with every path that begins with `super` written from the root of its crate, so
/// that the rules about paths hold for these paths, too.
fn absolute(file: &str, code: &str) -> String {
    let (_, inner) = rooms::in_crate(file);
    let mut module: Vec<&str> = inner.trim_end_matches(".rs").split('/').collect();
    module.pop_if(|last| *last == "mod");
    let mut absolute = String::new();
    let mut rest = code;
    while let Some(at) = rest.find("super::") {
        absolute.push_str(&rest[..at]);
        rest = &rest[at..];
        let mut parent = module.as_slice();
        while let Some(next) = rest.strip_prefix("super::") {
            rest = next;
            parent = parent.split_last().map_or(parent, |(_, above)| above);
        }
        absolute.push_str("crate::");
        parent.iter().for_each(|name| absolute.push_str(&format!("{name}::")));
    }
    absolute + rest
}

/// Every Rust file below `folder`, by its path from the root, without comments and tests, and with
/// [`absolute`] paths.
fn sources(folder: &str) -> Vec<(String, String)> {
    let strip = |text: String| {
        let code = without_tests(&text);
        let lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
        lines.collect::<Vec<_>>().join("\n")
    };
    let tests = |file: &str| file.ends_with("tests.rs") || file.contains("/tests/");
    let files = whole_files(folder).into_iter().filter(|(file, _)| !tests(file));
    let read = |(file, text): (String, String)| {
        let code = absolute(&file, &strip(text));
        (file, code)
    };
    files.map(read).collect()
}

/// `text` without the items that are compiled for tests alone. An item ends with its line if that
/// ends with a semicolon, and otherwise with the brace that closes it at the same indentation.
fn without_tests(text: &str) -> String {
    let mut kept = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if !line.trim_start().starts_with("#[cfg(test)]") {
            kept.push(line);
            continue;
        }
        let indentation = &line[..line.len() - line.trim_start().len()];
        let end = format!("{indentation}}}");
        let item = lines.by_ref().find(|line| !line.trim_start().starts_with(['#', '/']));
        if item.is_some_and(|item| !item.ends_with([';', '}', ','])) {
            lines.by_ref().find(|line| *line == end);
        }
    }
    kept.join("\n")
}

/// Every Rust file below `folder`. Panics if there is none: a rule about a folder that was renamed
/// would hold for nothing.
fn whole_files(folder: &str) -> Vec<(String, String)> {
    files_of(folder, &["rs"])
}

/// As [`whole_files`], with these endings.
fn files_of(folder: &str, endings: &[&str]) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut folders = vec![root().join(folder)];
    while let Some(folder) = folders.pop() {
        let entries = fs::read_dir(&folder).unwrap_or_else(|error| {
            panic!("{}: {error}; a rule names a folder that is not there", folder.display())
        });
        let entries = entries.map(|entry| entry.unwrap().path());
        let (inner, files): (Vec<PathBuf>, Vec<PathBuf>) = entries.partition(|path| path.is_dir());
        folders.extend(inner);
        let ends =
            |path: &PathBuf| endings.iter().any(|end| path.extension() == Some(end.as_ref()));
        for file in files.into_iter().filter(ends) {
            let name = file.strip_prefix(root()).unwrap().to_str().unwrap().to_owned();
            found.push((name, fs::read_to_string(&file).unwrap()));
        }
    }
    assert!(!found.is_empty(), "{folder}: a rule names a folder without code");
    found
}
