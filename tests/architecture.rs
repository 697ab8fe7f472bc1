//! The rules of the code that the compiler does not check. Each failure prints the rule that was
//! broken.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// The rooms of `src` from the ground up, the rooms that each may name, and the reason, which a
/// failure prints. A room may only name rooms above it in this table, so there is no circle between
/// rooms.
const ROOMS: &[(&str, &str, &str)] = &[
    (
        "schedule",
        "",
        "schedules and their readers are plain data; they know no maker and no executor",
    ),
    ("algorithms", "schedule", "an algorithm makes schedules; it knows none of their readers"),
    ("lower", "schedule", "lowering is pure and knows no algorithm"),
    ("topology", "algorithms schedule", "a topology is data about machines; it knows no executor"),
    (
        "tuner",
        "algorithms schedule topology",
        "the tuner is pure: equal questions have equal answers",
    ),
    ("execute", "lower schedule", "the executor knows programs, never collectives or algorithms"),
    ("world", "", "processes become ranks without any collective"),
    ("element", "", "what an element is depends on nothing"),
    ("error", "algorithms element world", "an error is data that every room above can make"),
    ("control", "execute schedule topology world", "how ranks agree depends on no call"),
    ("status", "control error world", "a status is read of what calls have noted"),
    (
        "engine",
        "algorithms control element error execute lower schedule status topology tuner world",
        "an engine makes calls; it does not know how its ranks joined",
    ),
    (
        "requests",
        "control element engine error execute schedule world",
        "requests lend an engine to a thread, whatever they call",
    ),
    (
        "comm",
        "algorithms control element engine error execute requests schedule status topology \
         tuner world",
        "the front door joins all rooms",
    ),
    (
        "cuda",
        "algorithms comm control element engine error lower schedule topology tuner world",
        "the same calls on the memory of GPUs: a kernel takes the place of the executor",
    ),
];
/// Parts of the room `schedule`, the other parts that each may name, and the reason, which a
/// failure prints. A name that is in no row is allowed.
const PARTS: &[(&str, &str, &str)] = &[
    ("schedule/collective", "", "what a collective promises depends on nothing"),
    ("schedule/walk", "", "the walk reads schedules only"),
    (
        "schedule/verify",
        "collective walk",
        "the checker knows the law and what is promised, and no executor",
    ),
    ("schedule/conflict", "walk", "conflict order is a reading of the law alone"),
    ("schedule/draw", "conflict", "a drawing shows steps, whatever they are for"),
    ("schedule/trace", "", "a trace shows what happened, whatever it was"),
    (
        "schedule/simulate",
        "conflict trace walk",
        "the simulator prices steps, whatever they are for",
    ),
];
/// The folders of `topology` from the ground up, and the folders that each may name.
const TOPOLOGY: &[(&str, &str)] = &[
    ("model", ""),
    ("transport", ""),
    ("stream_links", "transport"),
    ("read", "model"),
    ("build", "model read"),
    ("search", "model"),
    ("predict", "model search"),
    ("picture", "model search"),
    ("device_links", "model search"),
    ("detect", "model read build device_links"),
];
/// Rooms without effects, and the parts of them that exist for an effect.
const PURE: &str = "schedule algorithms lower topology tuner";
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

/// The folders of the trainer from the ground up: a folder names itself and folders above it in
/// this list.
const TRAINER: &[(&str, &str)] = &[
    ("tensor", "a layer computes on slices; it knows no model and no other rank"),
    ("ranks", "groups of ranks know numbers and shards, and no axis"),
    ("tensor_parallel", "layers that are divided over ranks; they know no model"),
    ("model", "a model is made of layers; other axes enter it at its interfaces"),
    ("averaging", "ranks that train apart have stores of their own; they know no other axis"),
    ("data_parallel", "a form of data parallelism is a store; it knows no other axis"),
    ("context_parallel", "context parallelism knows no axis below it in this list"),
    ("expert_parallel", "experts are divided layers; they know no pipeline and no training"),
    ("pipeline_parallel", "a pipeline moves numbers between stages, whatever they compute"),
    ("unequal_ranks", "a division follows times; it knows models to time them, and no training"),
    ("advise", "the planner is arithmetic; it knows schedules, and no training"),
    ("check/faults", "a deliberate mistake decorates an axis; it knows no run"),
    ("train", "a run joins the axes; what checks it comes after it"),
    ("search", "a search trains trials; nothing below it knows that it is one of many"),
    ("check", "checks look at everything"),
];

#[test]
fn every_path_of_a_rule_is_there() {
    let trainer = TRAINER.iter().map(|row| format!("examples/trainer/src/{}", row.0));
    let others = NOT_PURE.iter().chain(WRITERS).map(|path| path.to_string());
    for path in trainer.chain(others) {
        let there = root().join(&path).exists() || root().join(format!("{path}.rs")).exists();
        assert!(there, "{path}: a rule names a file or folder that is not there");
    }
}

#[test]
fn the_trainer_names_only_folders_below() {
    let lib = fs::read_to_string(root().join("examples/trainer/src/lib.rs")).unwrap();
    let folders = lib.lines().filter_map(|line| line.strip_prefix("pub mod ")?.strip_suffix(';'));
    for folder in folders {
        assert!(TRAINER.iter().any(|row| row.0 == folder), "{folder} is in the trainer's table");
    }
    let place = |path: &str| {
        let rows = TRAINER.iter().enumerate();
        let fitting = rows.filter(|(_, row)| is_in(path, row.0));
        fitting.max_by_key(|(_, row)| row.0.len()).map(|(place, _)| place)
    };
    for (file, code) in sources("examples/trainer/src") {
        let path = file.strip_prefix("examples/trainer/src/").unwrap();
        if path == "lib.rs" || path.starts_with("bin/") {
            continue;
        }
        let own = place(path).unwrap_or_else(|| panic!("{file} is in a folder of the table"));
        assert!(!code.contains("crate::{"), "{file}: one `use` a folder, so that this can be read");
        for named in code.split("crate::").skip(1) {
            let words: Vec<&str> = named.split("::").take(2).map(word).collect();
            let other = place(&words.join("/")).unwrap_or_else(|| panic!("{file} names {words:?}"));
            assert!(other <= own, "{file} names `{}`, but {}", words.join("::"), TRAINER[own].1);
        }
    }
}

#[test]
fn rooms_name_only_rooms_below_them() {
    let lib = fs::read_to_string(root().join("src/lib.rs")).unwrap();
    let rooms = lib
        .lines()
        .filter_map(|line| line.trim_start_matches("pub ").strip_prefix("mod ")?.strip_suffix(';'));
    let rooms = rooms.filter(|room| *room != "fuzz");
    assert_eq!(rooms.count(), ROOMS.len(), "src has the rooms of this test's table and no others");
    for (at, (room, may, sentence)) in ROOMS.iter().enumerate() {
        for below in may.split_whitespace() {
            let lower = ROOMS[..at].iter().any(|row| row.0 == below);
            assert!(lower, "{room} may not name {below}: arrows run downwards only");
        }
        for (file, code) in part_of("src", &format!("src/{room}")) {
            assert!(
                !code.contains("crate::{"),
                "{file}: one `use` a room, so that this table can read it"
            );
            for named in code.split("crate::").skip(1).map(word) {
                let may = may.split(' ').any(|it| it == named) || named == *room;
                assert!(may, "{file} names `{named}`, but {sentence}");
            }
        }
    }
    for entry in fs::read_dir(root().join("src")).unwrap().map(Result::unwrap) {
        let name = entry.file_name().into_string().unwrap();
        let known = ["lib.rs", "bin"].contains(&&*name)
            || ROOMS.iter().any(|row| row.0 == name.trim_end_matches(".rs"));
        assert!(known, "src/{name}: every file is in a room of the table");
    }
}

#[test]
fn readers_of_schedules_know_only_what_they_read() {
    for (part, may, sentence) in PARTS {
        let module = part.split('/').next_back().unwrap();
        for (file, code) in part_of("src/schedule", &format!("src/{part}")) {
            for named in code.split("crate::schedule::").skip(1).flat_map(words_of_use) {
                let part = PARTS.iter().any(|row| row.0.ends_with(&format!("/{named}")));
                let may = !part || named == module || may.split(' ').any(|it| it == named);
                assert!(may, "{file} names `{named}`, but {sentence}");
            }
        }
    }
}

#[test]
fn folders_of_topology_name_only_folders_below_them() {
    for (at, (folder, may)) in TOPOLOGY.iter().enumerate() {
        for below in may.split_whitespace() {
            let lower = TOPOLOGY[..at].iter().any(|row| row.0 == below);
            assert!(lower, "{folder} may not name {below}: arrows run downwards only");
        }
        for (file, code) in part_of("src/topology", &format!("src/topology/{folder}")) {
            for named in code.split("crate::topology::").skip(1).flat_map(words_of_use) {
                let may = may.split(' ').any(|it| it == named) || named == *folder;
                assert!(may, "{file} names `{named}`, but {folder} knows only: {may}");
            }
        }
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
            for named in code.split(leaf).skip(1).flat_map(words_of_use) {
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
                // A board of GPUs starts kernels, which a driver runs.
                let kernels = ["cuda", "packed", "Scalar"].contains(&named);
                let seam = ["Region", "SharedRegion", "View", "ViewMut"].contains(&named)
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

/// The pages of the command line that write: the one writer, and the forwarding of what ranks write.
const WRITERS: &[&str] = &["src/bin/maypole/output.rs", "src/bin/maypole/run/lines.rs"];
/// Calls that write to a standard stream or a file, and that panic, or lose the error, if they
/// cannot write.
const WRITES: &[&str] =
    &["print!(", "println!(", "stdout().lock()", "stdout(),", "fs::write(", "File::create("];

#[test]
fn one_page_writes_what_the_command_line_prints() {
    for (file, code) in sources("src/bin") {
        let found = WRITES.iter().find(|write| code.contains(**write));
        assert!(
            found.is_none() || WRITERS.contains(&&*file),
            "{file} says `{}`: a closed pipe and a full disk are handled in output.rs",
            found.unwrap()
        );
    }
    for (file, code) in sources("src") {
        assert!(
            !code.contains("println!("),
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
    assert_eq!(words_of_use("{a::{b, c}, d as e,\n    f};"), ["a", "d", "f"]);
    assert_eq!(words_of_use("walk::Walk;"), ["walk"]);
}

#[test]
fn code_behind_tests_is_read() {
    let text = "a\n#[cfg(test)]\nmod tests;\nb\n#[cfg(test)]\nmod more {\n    fn f() {\n    }\n}\n\
                c\n    #[cfg(test)]\n    fn g(\n        h: u8,\n    ) {\n    }\n    d";
    assert_eq!(without_tests(text), "a\nb\nc\n    d");
}

#[test]
fn the_top_level_is_fixed() {
    let folders =
        ["src", "transports", "kernels", "bindings", "examples", "tests", "benches", "target"];
    for entry in
        fs::read_dir(root()).unwrap().map(Result::unwrap).filter(|entry| entry.path().is_dir())
    {
        let name = entry.file_name().into_string().unwrap();
        assert!(
            name.starts_with('.') || folders.contains(&&*name),
            "{name}/: the folders of the top level are fixed; change the list with care"
        );
    }
}

#[test]
fn a_folder_of_comm_has_at_most_12_files() {
    let mut folders: BTreeMap<String, usize> = BTreeMap::new();
    for (file, _) in whole_files("src/comm") {
        let folder = file.rsplit_once('/').expect("a file in a folder").0;
        *folders.entry(folder.to_owned()).or_default() += 1;
    }
    for (folder, files) in folders {
        assert!(files <= 12, "{folder} has {files} files of at most 12: put some into a folder");
    }
}

#[test]
fn files_are_short() {
    for (file, code) in ["src", "transports/src", "kernels/src", "examples/trainer"]
        .into_iter()
        .flat_map(whole_files)
    {
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
        let crates = ["examples/trainer/"];
        if crates.iter().any(|of| file.starts_with(of)) {
            continue;
        }
        assert!(code.lines().count() <= 60, "{file}: a lesson has at most 60 lines");
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

/// `src/walk.rs` and `src/lower/fuse.rs` belong to `walk` and `lower`; the binary to `bin`.
fn module_of(file: &str) -> &str {
    let inner = file.strip_prefix("src/").unwrap_or(file);
    inner.split('/').next().unwrap().trim_end_matches(".rs")
}

fn word(text: &str) -> &str {
    text.split(|c: char| !(c.is_alphanumeric() || c == '_')).next().unwrap()
}

/// The names that follow `a_module::`: one, or those in braces.
fn words_of_use(text: &str) -> Vec<&str> {
    let Some(group) = text.strip_prefix('{') else { return vec![word(text)] };
    let mut depth = 0;
    let mut names = vec![word(group.trim_start())];
    for (at, letter) in group.char_indices() {
        match letter {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => names.push(word(group[at + 1..].trim_start())),
            _ => {}
        }
    }
    names.retain(|name| !name.is_empty());
    names
}

/// `code` of `file` with every path that begins with `super` written from the root of its crate, so
/// that the rules about paths hold for these paths, too.
fn absolute(file: &str, code: &str) -> String {
    let inner = file.split_once("src/").map_or(file, |(_, inner)| inner);
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

/// The [`sources`] below `folder` that belong to `part`. Panics if there are none.
fn part_of(folder: &str, part: &str) -> Vec<(String, String)> {
    let files: Vec<_> = sources(folder).into_iter().filter(|(file, _)| is_in(file, part)).collect();
    assert!(!files.is_empty(), "{part}: a rule names a file or folder that is not there");
    files
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
    let mut found = Vec::new();
    let mut folders = vec![root().join(folder)];
    while let Some(folder) = folders.pop() {
        let entries = fs::read_dir(&folder).unwrap_or_else(|error| {
            panic!("{}: {error}; a rule names a folder that is not there", folder.display())
        });
        let entries = entries.map(|entry| entry.unwrap().path());
        let (inner, files): (Vec<PathBuf>, Vec<PathBuf>) = entries.partition(|path| path.is_dir());
        folders.extend(inner);
        for file in
            files.into_iter().filter(|path| path.extension().is_some_and(|kind| kind == "rs"))
        {
            let name = file.strip_prefix(root()).unwrap().to_str().unwrap().to_owned();
            found.push((name, fs::read_to_string(&file).unwrap()));
        }
    }
    assert!(!found.is_empty(), "{folder}: a rule names a folder without code");
    found
}
