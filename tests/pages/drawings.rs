//! Pictures are what `draw` prints: the files in `tests/golden`, and those in the pages of the
//! algorithms.
//!
//! `UPDATE=1 cargo test --test pages` writes them anew.

use maypole::algorithms::Algorithm;
use maypole::algorithms::hierarchical::{self, Levels};
use maypole::schedule::collective::Collective;
use maypole::schedule::{Layout, Schedule, Step, input, output};
use maypole_pictures::clocks::{Cost, Ports, simulate};
use maypole_pictures::draw;
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Compares `found` with the file. With `UPDATE`, writes the file first.
fn golden(path: &Path, found: &str) {
    if std::env::var_os("UPDATE").is_some() {
        fs::write(path, found).expect("the folder can be written");
    }
    let expected = fs::read_to_string(path).unwrap_or_default();
    assert!(found == expected, "{} differs; UPDATE=1 accepts this:\n{found}", path.display());
}

fn picture(algorithm: Algorithm, collective: Collective, world: usize) -> String {
    draw::text(&algorithm.schedules(collective, world).expect("it is in the table"))
}

#[test]
fn golden_pictures() {
    let four = |algorithm: Algorithm| {
        algorithm.collectives().iter().map(move |&collective| (algorithm, collective, 4))
    };
    let bigger = [
        (Algorithm::Tree, Collective::AllReduce, 7),
        (Algorithm::Binomial, Collective::Scatter { root: 2 }, 7),
        (Algorithm::OneShot, Collective::AllReduce, 16),
        (Algorithm::Ring, Collective::AllReduce, 16),
        (Algorithm::TwoShot, Collective::AllReduce, 16),
        (Algorithm::HalvingDoubling, Collective::AllReduce, 16),
        (Algorithm::Bruck, Collective::AllToAll, 16),
    ];
    for (algorithm, collective, world) in Algorithm::ALL.into_iter().flat_map(four).chain(bigger) {
        let name = format!("{algorithm}-{}-{world}.txt", collective.name());
        golden(&root().join("tests/golden").join(name), &picture(algorithm, collective, world));
    }
}

/// A terminal on a wide screen and a page in landscape have 200 columns.
#[test]
fn sixteen_ranks_fit_in_200_columns() {
    for (algorithm, world) in
        Algorithm::ALL.into_iter().flat_map(|algorithm| (1..=16).map(move |n| (algorithm, n)))
    {
        for collective in algorithm.collectives() {
            let picture = picture(algorithm, collective.with_root(world - 1), world);
            let widest = picture.lines().map(str::len).max().unwrap_or(0);
            assert!(widest <= 200, "{algorithm}, {collective:?}, {world} ranks: {widest} columns");
            assert!(
                picture.lines().count() <= 100,
                "{algorithm}, {collective:?}, {world} ranks:\n{picture}"
            );
        }
    }
}

/// A row is a message latency: the number of the last row is the number of alphas that the
/// simulator counts where bytes cost nothing.
#[test]
fn the_last_row_is_the_number_of_latencies() {
    let cost = Cost { alpha: 1.0, beta: 0.0, gamma: 0.0, ports: Ports::PerLink };
    for (algorithm, world) in
        Algorithm::named().flat_map(|algorithm| (1..=16).map(move |world| (algorithm, world)))
    {
        let hosts: Vec<usize> = (0..world).map(|rank| rank / 3).collect();
        for collective in algorithm.collectives() {
            let roots = if collective.root().is_some() { world } else { 1 };
            for collective in (0..roots).map(|root| collective.with_root(root)) {
                let schedules = algorithm.schedules_on(collective, &hosts).expect("in the table");
                let layout = Layout::even(world, schedules[0].chunks);
                let alphas = simulate(&schedules, &layout, 1, 1, cost).expect("proved").seconds;
                let picture = draw::text(&schedules);
                let last = last_row(&picture);
                assert_eq!(last as f64, alphas, "{algorithm} {collective:?} {world}\n{picture}");
            }
        }
    }
}

/// The largest number that a row of the picture begins with.
fn last_row(picture: &str) -> usize {
    let labels = picture.lines().filter_map(|line| line.split(' ').next()?.parse().ok());
    labels.max().unwrap_or(0)
}

/// Every block whose first line is of the kind `//! ring all_reduce, n = 4` shows that picture.
#[test]
fn pages_show_what_is_drawn() {
    let mut shown = Vec::new();
    for path in pages() {
        let page = fs::read_to_string(&path).expect("it is listed");
        golden_page(&path, &page, &mut shown);
    }
    let unshown: Vec<_> =
        Algorithm::ALL.into_iter().filter(|algorithm| !shown.contains(algorithm)).collect();
    assert!(unshown.is_empty(), "no page shows {unshown:?}");
}

fn pages() -> impl Iterator<Item = PathBuf> {
    let folder = fs::read_dir(root().join("src/algorithms")).expect("the folder is there");
    let paths = folder.map(|entry| entry.expect("it can be listed").path());
    paths.filter(|path| path.is_file()).chain([root().join("src/lib.rs")])
}

fn golden_page(path: &Path, page: &str, shown: &mut Vec<Algorithm>) {
    let mut drawn = String::new();
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        drawn += &format!("{line}\n");
        let Some(picture) = titled(line, shown) else { continue };
        for row in picture.lines() {
            drawn += &format!("//! {row}\n");
        }
        drawn += "//! ```\n";
        lines.by_ref().find(|line| *line == "//! ```").expect("the block ends");
    }
    // The page itself is compared, so that UPDATE=1 can put the pictures where they belong.
    if drawn != page {
        golden(path, &drawn);
    }
}

/// The picture that a line announces.
fn titled(line: &str, shown: &mut Vec<Algorithm>) -> Option<String> {
    let (algorithm, collective) =
        line.strip_prefix("//! ")?.strip_suffix(", n = 4")?.split_once(' ')?;
    let collective = Collective::all(0).into_iter().find(|known| known.name() == collective)?;
    if algorithm == "hierarchical" {
        let levels = Levels { local: Algorithm::Linear, across: Algorithm::TwoShot };
        let schedules =
            (0..4).map(|rank| hierarchical::schedule(collective, &[0, 0, 1, 1], rank, levels));
        return Some(draw::text(&schedules.collect::<Option<Vec<_>>>()?));
    }
    let algorithm = algorithm.parse().ok()?;
    shown.push(algorithm);
    Some(picture(algorithm, collective, 4))
}

/// The documentation of each collective has its contract in numbers.
#[test]
fn collectives_show_values_before_and_after() {
    let path = root().join("src/schedule/collective.rs");
    let mut page = fs::read_to_string(&path).expect("it is there");
    let end = "    /// ```\n";
    for collective in Collective::all(0) {
        let title = format!("    /// ```text\n    /// {}, n = 3\n", collective.name());
        let picture = draw::values::text(collective, 3);
        let drawn: String = picture.lines().map(|line| format!("    /// {line}\n")).collect();
        let (before, rest) = page.split_once(&title).expect("each collective has a picture");
        let (_, after) = rest.split_once(end).expect("the picture ends");
        page = format!("{before}{title}{drawn}{end}{after}");
    }
    golden(&path, &page);
}

#[test]
fn stuck_schedules_are_drawn_too() {
    let one = Schedule::new(
        1,
        vec![Step::Copy { from: input(0), into: output(0) }, Step::Send { from: output(0), to: 1 }],
    );
    let other = Schedule::new(
        1,
        vec![
            Step::Recv { into: output(0), from: 0 },
            Step::RecvReduce { into: output(0), from: 0 },
        ],
    );
    let expected = "     rank 0         rank 1\n\
                    0    out0 =in0 ->1\n\
                    1                   out0 <-0\n\
                    stuck               out0 +=0\n";
    assert_eq!(draw::text(&[one, other]), expected);
    assert_eq!(draw::text(&[]), "\n");
}
