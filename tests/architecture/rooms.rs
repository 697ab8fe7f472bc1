//! The rule of rooms: code names only rooms that `table.txt` allows, and only its circles are left.

use crate::{paths, sources};
use std::collections::{BTreeMap, BTreeSet};

/// A path, what its code may name, and the reason.
type Row = (&'static str, &'static str, &'static str);

/// The rows of the table, and its circles.
fn table() -> [Vec<Row>; 2] {
    let row = |line: &'static str| {
        let mut cells = line.split('|').map(str::trim);
        let mut cell = || cells.next().unwrap_or_else(|| panic!("three cells: {line}"));
        (cell(), cell(), cell())
    };
    let lines = include_str!("table.txt").lines();
    let rows = lines.filter(|line| !line.is_empty() && !line.starts_with('#')).map(row);
    let (circles, rooms) = rows.partition(|(_, may, _)| *may == "circle");
    [rooms, circles]
}

/// The folders of the crates that the table rules, and the names by which other crates use them.
const CRATES: &[(&str, &str)] = &[
    ("kernels/src", "maypole_kernels"),
    ("transports/src", "maypole_transports"),
    ("examples/kernels/src", "maypole_trainer_kernels"),
    ("examples/trainer/src", "maypole_trainer"),
    ("examples/gpu/src", "maypole_trainer_gpu"),
    ("examples/corpus/src", "maypole_corpus"),
    ("examples/lab/src", "maypole_lab"),
    ("examples/planner/src", "maypole_planner"),
    ("examples/search/src", "maypole_search"),
    ("examples/train/src", "maypole_train"),
    ("src/cluster", "maypole_cluster"),
    ("src/pictures", "maypole_pictures"),
    ("src/testing", "maypole_testing"),
    ("src", "maypole"),
];
/// Programs within these folders: crates of their own, on top of all others.
const PROGRAMS: &[&str] = &["src/cli", "examples/train/src"];

/// A file, its module, and the modules and items that it names, from the folder of their crate on.
struct CodeFile {
    file: String,
    module: Vec<String>,
    names: BTreeSet<Vec<String>>,
}

impl CodeFile {
    fn new(file: &str, code: &str) -> Self {
        let module = module(file);
        let crates = CRATES.iter().map(|(folder, name)| (*folder, *name));
        let names = crates.chain([(&*module[0], "crate")]).flat_map(|(folder, name)| {
            let start = format!("{name}::");
            let begins =
                |at: &usize| !code[..*at].ends_with(|c: char| c.is_alphanumeric() || c == '_');
            let found = code.match_indices(&start).map(|(at, _)| at).filter(begins);
            let named = found.flat_map(|at| paths(&code[at + start.len()..])).collect::<Vec<_>>();
            let whole =
                |path: Vec<&str>| [folder].into_iter().chain(path).map(str::to_owned).collect();
            named.into_iter().map(whole).collect::<Vec<_>>()
        });
        let names = names.collect();
        Self { file: file.to_owned(), module, names }
    }
}

/// The folder of the crate of `path`, and the path from there on.
pub(crate) fn in_crate(path: &str) -> (&'static str, &str) {
    let below = |folder: &str| {
        let rest = path.strip_prefix(folder)?;
        (rest.is_empty() || rest.starts_with('/')).then(|| rest.trim_start_matches('/'))
    };
    let found = CRATES.iter().find_map(|(folder, _)| Some((*folder, below(folder)?)));
    found.unwrap_or_else(|| panic!("{path} is in no crate of the table"))
}

/// The folder of the crate of `path`, and its modules: `src/walk.rs` and `src/walk/mod.rs` are the
/// module `walk` of `src`.
fn module(path: &str) -> Vec<String> {
    let (folder, inner) = in_crate(path);
    let modules = inner.trim_end_matches(".rs").split('/').filter(|name| !name.is_empty());
    let mut module: Vec<String> = [folder].into_iter().chain(modules).map(str::to_owned).collect();
    module.pop_if(|last| ["lib", "mod"].contains(&&**last));
    module
}

/// One path of a row of the table.
struct Room<'a> {
    /// The number of the row that it is written in.
    row: usize,
    module: Vec<String>,
    may: Vec<Vec<String>>,
    reason: &'a str,
}

impl Room<'_> {
    fn folder(&self) -> &[String] {
        &self.module[..self.module.len() - 1]
    }
}

fn rooms<'a>(table: &[(&'a str, &'a str, &'a str)]) -> Vec<Room<'a>> {
    let mut rooms = Vec::new();
    for (row, (path, may, reason)) in table.iter().enumerate() {
        for module in written_as_one(path) {
            let neighbour = |name: &str| {
                let folder = module[..module.len() - 1].iter().cloned();
                folder.chain([name.to_owned()]).collect()
            };
            let may = may.split_whitespace().map(neighbour).collect();
            rooms.push(Room { row, module, may, reason });
        }
    }
    rooms
}

/// The modules that `path` means: `src/{a,b}` is `src/a` and `src/b`.
fn written_as_one(path: &str) -> Vec<Vec<String>> {
    let (folder, names) = path.split_once('{').unwrap_or((path, ""));
    let names = names.trim_end_matches('}').split(',');
    names.map(|name| module(&format!("{folder}{name}"))).collect()
}

/// Violations of the tables by `files`, and faults of the tables themselves, in sentences.
fn objections(
    table: &[(&str, &str, &str)],
    known: &[(&str, &str, &str)],
    files: &[CodeFile],
) -> Vec<String> {
    let rooms = rooms(table);
    let modules: BTreeSet<&[String]> = files
        .iter()
        .flat_map(|file| (1..=file.module.len()).map(|depth| &file.module[..depth]))
        .collect();
    let mut found = wrong_rows(&rooms, &modules);
    found.extend(files.iter().flat_map(|file| wrong_names(file, &rooms, &modules)));
    let known: Vec<_> = known.iter().map(|(path, ..)| written_as_one(path)).collect();
    let circles = circles(files, &rooms, &modules);
    for circle in circles.iter().filter(|circle| !known.contains(circle)) {
        let names: Vec<_> = circle.iter().map(|module| module.join("/")).collect();
        found.push(format!("{} name one another in a circle", names.join(", ")));
    }
    for circle in known.iter().filter(|circle| !circles.contains(circle)) {
        found.push(format!("{}: it is in no such circle any more", circle[0].join("/")));
    }
    found
}

/// Rows about modules that are not there, rows that name upwards, and modules without a row.
fn wrong_rows(rooms: &[Room<'_>], modules: &BTreeSet<&[String]>) -> Vec<String> {
    let mut wrong = Vec::new();
    for room in rooms {
        let path = room.module.join("/");
        if !modules.contains(&*room.module) {
            wrong.push(format!("{path}: a row of the table is about a module that is not there"));
        }
        let is_below = |name: &Vec<String>| {
            rooms.iter().any(|other| other.row < room.row && other.module == *name)
        };
        for name in room.may.iter().filter(|name| !is_below(name)) {
            let name = name.join("/");
            wrong.push(format!("{path} may not name {name}: no row above has it"));
        }
    }
    let ruled: BTreeSet<_> = rooms.iter().map(Room::folder).collect();
    let has_row = |module: &[String]| rooms.iter().any(|room| room.module == module);
    let is_ruled = |module: &&&[String]| ruled.contains(&module[..module.len() - 1]);
    for module in modules.iter().filter(is_ruled).filter(|module| !has_row(module)) {
        wrong.push(format!("{}: its neighbours have rows in the table", module.join("/")));
    }
    wrong
}

/// The modules at which the paths of `file` and of `names` part: those of the same folder.
fn parting<'a>(file: &'a CodeFile, names: &'a [String]) -> Option<(&'a [String], &'a [String])> {
    let pairs = file.module.iter().zip(names);
    let depth = pairs.take_while(|(here, there)| here == there).count() + 1;
    Some((file.module.get(..depth)?, names.get(..depth)?))
}

fn wrong_names(file: &CodeFile, rooms: &[Room<'_>], modules: &BTreeSet<&[String]>) -> Vec<String> {
    let mut wrong = Vec::new();
    for names in &file.names {
        let Some((here, there)) = parting(file, names) else { continue };
        let Some(room) = rooms.iter().find(|room| room.module == here) else { continue };
        let name = names[1..].join("::");
        if room.may.iter().any(|may| may == there) {
            continue;
        }
        if modules.contains(there) {
            wrong.push(format!("{} names `{name}`, but {}", file.file, room.reason));
        } else if there.len() == 2 {
            wrong.push(format!("{} names `{name}` of the crate: name its room", file.file));
        }
    }
    wrong
}

/// The modules of each folder without rows that name one another in circles.
fn circles(
    files: &[CodeFile],
    rooms: &[Room<'_>],
    modules: &BTreeSet<&[String]>,
) -> Vec<Vec<Vec<String>>> {
    let has_row = |module: &[String]| rooms.iter().any(|room| room.module == module);
    let mut arrows = BTreeSet::new();
    for file in files {
        let parted = file.names.iter().filter_map(|names| parting(file, names));
        arrows.extend(parted.filter(|(here, there)| modules.contains(there) && !has_row(here)));
    }
    let mut circles: BTreeMap<&[String], Vec<Vec<String>>> = BTreeMap::new();
    for module in in_circles(arrows) {
        circles.entry(&module[..module.len() - 1]).or_default().push(module.to_vec());
    }
    circles.into_values().collect()
}

/// The modules that are left of these arrows when all are taken away that end no way, or begin it.
fn in_circles<'a>(mut arrows: BTreeSet<(&'a [String], &'a [String])>) -> BTreeSet<&'a [String]> {
    loop {
        let from: BTreeSet<_> = arrows.iter().map(|arrow| arrow.0).collect();
        let to: BTreeSet<_> = arrows.iter().map(|arrow| arrow.1).collect();
        let before = arrows.len();
        arrows.retain(|(here, there)| to.contains(here) && from.contains(there));
        if arrows.len() == before {
            return from;
        }
    }
}

#[test]
fn code_names_only_what_the_table_allows() {
    let of_crate = |folder: &str| {
        let files = sources(folder).into_iter();
        files.filter(|(file, _)| in_crate(file).0 == folder).collect::<Vec<_>>()
    };
    let folders = CRATES.iter().flat_map(|(folder, _)| of_crate(folder));
    let is_library = |file: &str| !PROGRAMS.iter().any(|program| file.starts_with(program));
    let files: Vec<_> = folders
        .filter(|(file, _)| is_library(file))
        .map(|(file, code)| CodeFile::new(&file, &code))
        .collect();
    let [rooms, circles] = table();
    let found = objections(&rooms, &circles, &files);
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// The rooms of `crate_folder`, as the table orders them.
fn rooms_of(crate_folder: &str) -> Vec<String> {
    let [table, _] = table();
    let rooms = rooms(&table).into_iter().map(|room| room.module);
    rooms
        .filter(|path| path.len() == 2 && path[0] == crate_folder)
        .map(|path| path[1].clone())
        .collect()
}

/// Pages list the rooms in the order of the table.
#[test]
fn pages_list_the_rooms_in_the_order_of_the_table() {
    let read = |page: &str| std::fs::read_to_string(crate::root().join(page)).unwrap();
    let listed = |page: &str, start: &str, crate_folder: &str| {
        let text = read(page);
        let rooms = rooms_of(crate_folder);
        let rows = text.lines().filter_map(|line| line.strip_prefix(start));
        let names =
            rows.flat_map(|row| row.split('|').next().unwrap().split(", ").collect::<Vec<_>>());
        let names = names.filter(|name| name.starts_with(['`', '[']));
        let names = names.map(|name| name.trim().trim_matches(['`', '/', '[', ']']).to_owned());
        let names: Vec<_> = names.filter(|name| rooms.contains(name)).collect();
        assert_eq!(names, rooms, "{page} lists the rooms of {crate_folder} as the table does");
    };
    listed("src/lib.rs", "//! | ", "src");
    listed("ARCHITECTURE.md", "| ", "src");
    listed("examples/trainer/src/lib.rs", "//! | ", "examples/trainer/src");
    listed("ARCHITECTURE.md", "| ", "examples/trainer/src");
}

/// A crate of three rooms, of which one has a folder without rows.
fn planted() -> Vec<CodeFile> {
    vec![
        CodeFile::new("src/lib.rs", "pub use law::Law;"),
        CodeFile::new("src/law.rs", ""),
        CodeFile::new("src/walk/mod.rs", "use crate::{law::{self, Law}, walk::step::Step};"),
        CodeFile::new("src/walk/step.rs", "use crate::walk::Walk;\nuse crate::law::Law;"),
        CodeFile::new("src/draw/mod.rs", "use crate::walk::step::Step;"),
        CodeFile::new("src/draw/svg.rs", "use crate::draw::shapes;\nuse crate::law::Law;"),
        CodeFile::new("src/draw/shapes.rs", ""),
    ]
}

const PLANTED: &[(&str, &str, &str)] = &[
    ("src", "", "there is one crate"),
    ("src/law", "", "the law knows nothing"),
    ("src/walk", "law", "the walk reads the law"),
    ("src/draw", "law walk", "drawings show walks"),
];

/// The one objection to the planted crate with this file more.
fn objection_to(file: &str, code: &str) -> String {
    let mut files = planted();
    files.push(CodeFile::new(file, code));
    only(objections(PLANTED, &[], &files))
}

/// The one objection to the planted crate if this row is `at` that place of the table.
fn objection_by(at: usize, row: (&str, &str, &str)) -> String {
    let mut table = PLANTED.to_vec();
    table.splice(at..PLANTED.len().min(at + 1), [row]);
    only(objections(&table, &[], &planted()))
}

fn only(mut found: Vec<String>) -> String {
    assert_eq!(found.len(), 1, "{found:?}");
    found.remove(0)
}

#[test]
fn planted_mistakes_are_found() {
    assert_eq!(objections(PLANTED, &[], &planted()), [""; 0]);
    // The module of a file, from which a path of `super` starts.
    let deep = crate::absolute("src/walk/late.rs", "use super::super::draw::svg::{Svg};");
    let names_up = "src/law/deep/text.rs names `walk::Walk`, but the law knows nothing";
    let in_circle = "src/draw/shapes, src/draw/svg name one another in a circle";
    for (file, code, said) in [
        ("src/law/deep/text.rs", "fn f(_: crate::walk::Walk) {}", names_up),
        (
            "src/walk/late.rs",
            &deep,
            "src/walk/late.rs names `draw::svg::Svg`, but the walk reads the law",
        ),
        (
            "src/walk/late.rs",
            "use crate::Law;",
            "src/walk/late.rs names `Law` of the crate: name its room",
        ),
        ("src/draw/shapes/deep.rs", "use crate::draw::svg::WIDTH;", in_circle),
        ("src/new.rs", "", "src/new: its neighbours have rows in the table"),
    ] {
        assert_eq!(objection_to(file, code), said);
    }
    for (at, row, said) in [
        (
            4,
            ("src/gone", "", ""),
            "src/gone: a row of the table is about a module that is not there",
        ),
        (1, ("src/law", "draw", ""), "src/law may not name src/draw: no row above has it"),
        (3, ("src/draw", "law", "no"), "src/draw/mod.rs names `walk::step::Step`, but no"),
        (4, ("src/draw/shapes", "", ""), "src/draw/svg: its neighbours have rows in the table"),
        (4, ("src/draw/{shapes,svg}", "", "no"), "src/draw/svg.rs names `draw::shapes`, but no"),
    ] {
        assert_eq!(objection_by(at, row), said);
    }
    // A known circle may stay as long as it is one.
    let known = [("src/draw/{shapes,svg}", "circle", "a picture is made of shapes")];
    let gone = only(objections(PLANTED, &known, &planted()));
    assert_eq!(gone, "src/draw/shapes: it is in no such circle any more");
    let mut files = planted();
    files.push(CodeFile::new("src/draw/shapes/deep.rs", "use crate::draw::svg::WIDTH;"));
    assert_eq!(objections(PLANTED, &known, &files), [""; 0]);
}
