//! `perf --report`: one page with every figure.

use super::{printed, run, text};
use std::collections::{BTreeMap, BTreeSet};

#[test]
fn reports_hold_every_figure_and_load_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let there = folder.path().join("new/report");
    let line = "perf all-reduce barrier -n 2 --sizes 8,4K,64K --budget 2 --report";
    let shown = printed(&format!("{line} {}", there.display()));
    assert!(shown.contains(&there.join("index.html").display().to_string()), "{shown}");

    let page = std::fs::read_to_string(there.join("index.html")).unwrap();
    for part in [
        "over shm",
        "over tcp",
        "halving-doubling, 64K",
        "predicted: ",
        "raw TCP",
        "plain copy",
        "dissemination",
    ] {
        assert!(page.contains(part), "the page does not say {part}");
    }
    // Two plots of all-reduce a transport; a barrier has no sizes to plot.
    assert_eq!(page.matches("<figure>").count(), 4);
    assert!(
        !page.contains("http") && !page.contains("<script") && !page.contains("NaN"),
        "it loads nothing"
    );

    let results = std::fs::read_to_string(there.join("results.csv")).unwrap();
    let names: Vec<&str> = results.lines().next().unwrap().split(',').collect();
    let place = |name: &str| names.iter().position(|it| *it == name).unwrap();
    let lines: Vec<Vec<&str>> =
        results.lines().skip(1).map(|line| line.split(',').collect()).collect();
    let algorithms: BTreeSet<&str> = lines.iter().map(|line| line[place("algorithm")]).collect();
    assert!(algorithms.len() >= 7, "all that there are: {algorithms:?}");
    for line in &lines {
        assert_eq!((line.len(), line[place("wrong")]), (names.len(), "0"), "{line:?}");
        let number = |name: &str| line[place(name)].parse::<f64>();
        assert!(
            number("p50_us").unwrap() > 0.0 && number("predicted_us").unwrap() > 0.0,
            "{line:?}"
        );
        assert_eq!(number("limit_us").is_ok(), line[place("collective")] != "barrier", "{line:?}");
    }

    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    let output = run(&format!("perf --report {}", file.display()));
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains(&file.display().to_string()), "{}", text(&output.stderr));
}

/// Each name of `-a` is one series with one point at each size, also where the tuner chooses an
/// algorithm that `-a` names too.
#[test]
fn auto_is_a_series_of_its_own_in_a_report() {
    let folder = tempfile::tempdir().unwrap();
    let line = "perf all-reduce --threads -n 2 --transport shm -a auto,ring,one-shot \
                --sizes 64K,8,4K --budget 2 --report";
    let shown = printed(&format!("{line} {}", folder.path().display()));
    assert!(shown.contains("# report: "), "{shown}");

    let mut reader = csv::Reader::from_path(folder.path().join("results.csv")).unwrap();
    let lines: Vec<BTreeMap<String, String>> =
        reader.deserialize().collect::<Result<_, _>>().unwrap();
    let points: BTreeSet<_> =
        lines.iter().map(|line| (&line["requested"], &line["bytes"], &line["in_place"])).collect();
    assert_eq!(points.len(), lines.len(), "each point once: {lines:?}");
    assert_eq!(lines.len(), 3 * 3 * 2, "three series, three sizes, two placements");
    let auto = lines.iter().filter(|line| line["requested"] == "auto");
    for line in auto {
        assert_eq!(line["algorithm"], line["tuners_choice"]);
    }

    let page = std::fs::read_to_string(folder.path().join("index.html")).unwrap();
    assert!(page.contains("</svg><span>auto</span></label>"), "the legend names auto");
    let measured = page.lines().filter(|line| line.contains(" measured\">"));
    for line in measured {
        let path = line.split(" d=\"").nth(1).unwrap().split('"').next().unwrap();
        let x: Vec<f64> = path
            .split(['M', 'L'])
            .filter(|point| !point.is_empty())
            .map(|point| point.split(' ').next().unwrap().parse().unwrap())
            .collect();
        assert_eq!(x.len(), 3, "{path}");
        assert!(x.is_sorted_by(|a, b| a < b), "a line never runs back: {path}");
    }
    // Each of the three sizes is judged once.
    assert!(page.contains(" of 3</b> points"), "{page}");
}
