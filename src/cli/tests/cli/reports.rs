//! `perf --report`: one page with every figure.

use super::browser::{self, Browser};
use super::{objects, printed, run, skip::skipped, text};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// JavaScript functions that read texts, colours and sizes of a page.
const SEEN: &str = include_str!("seen.js");

#[test]
fn reports_hold_every_figure_and_load_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let there = folder.path().join("new/report");
    let line = "perf all-reduce barrier -n 2 --sizes 8,4K,64K --budget 2 --report";
    let shown = printed(&format!("{line} {}", there.display()));
    assert!(shown.contains(&there.join("index.html").display().to_string()), "{shown}");

    let page = std::fs::read_to_string(there.join("index.html")).unwrap();
    for part in ["http:", "https:", "NaN", "src=", "<link", "import "] {
        assert!(!page.contains(part), "{part}: it loads nothing");
    }

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
    }

    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    let output = run(&format!("perf --report {}", file.display()));
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains(&file.display().to_string()), "{}", text(&output.stderr));

    let Some(mut browser) = Browser::start() else { return skipped(browser::MISSING) };
    browser.open(&there.join("index.html"), "", &[]);
    let said = browser.value("document.documentElement.outerHTML");
    let said = said.as_str().unwrap();
    for part in ["over shm", "over tcp", "halving-doubling, 64K", "predicted: ", "dissemination"] {
        assert!(said.contains(part), "the page does not say {part}");
    }
    // Two plots of all-reduce a transport; a barrier has no sizes to plot.
    let count = |browser: &mut Browser, what| {
        browser.value(&format!("[...document.querySelectorAll('{what}')].length"))
    };
    assert_eq!(count(&mut browser, ".plots figure"), 4);
    assert!(!said.contains("NaN") && !said.contains("undefined"), "{said}");
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

    let Some(mut browser) = Browser::start() else { return skipped(browser::MISSING) };
    browser.open(&folder.path().join("index.html"), "", &[]);
    let texts =
        |what| format!("[...document.querySelectorAll('{what}')].map(it => it.textContent)");
    let legend = browser.value(&texts(".legend span"));
    assert_eq!(legend, json!(["auto", "ring", "one-shot", "predicted"]));
    let measured = browser
        .value("[...document.querySelectorAll('.measured .line')].map(it => it.getAttribute('d'))");
    let measured: Vec<String> = serde_json::from_value(measured).unwrap();
    assert_eq!(measured.len(), 2 * 3, "times and bandwidths of three series");
    for path in measured {
        let x: Vec<f64> = path
            .split(['M', 'L'])
            .filter(|point| !point.is_empty())
            .map(|point| point.split(' ').next().unwrap().parse().unwrap())
            .collect();
        assert_eq!(x.len(), 3, "{path}");
        assert!(x.is_sorted_by(|a, b| a < b), "a line never runs back: {path}");
    }
    // Each of the three sizes is judged once.
    let judged = browser.value(&texts(".facts + p"));
    assert!(judged[0].as_str().unwrap().contains(" of 3 points"), "{judged}");
    browser.value("document.querySelector('.pick-s1').click()");
    let hidden =
        "[...document.querySelectorAll('figure .s1')].map(it => getComputedStyle(it).display)";
    assert_eq!(
        browser.value(hidden),
        json!(vec!["none"; 4]),
        "the box hides the lines of the ring"
    );
}

/// Opens the page of a report with other results in it.
fn open_planted(browser: &mut Browser, folder: &std::path::Path, rows: Value) {
    let line = "perf all-reduce --threads -n 2 --transport shm --sizes 8 --budget 1 --report";
    printed(&format!("{line} {}", folder.display()));
    let page = std::fs::read_to_string(folder.join("index.html")).unwrap();
    let (before, rest) = page.split_once("id=\"data\">").unwrap();
    let (data, after) = rest.split_once("</script>").unwrap();
    let mut data: Value = serde_json::from_str(data).unwrap();
    data["rows"] = rows;
    data["header"]["command"] = "perf <b> & co".into();
    let data = data.to_string().replace('<', "\\u003c");
    let page = format!("{before}id=\"data\">{data}</script>{after}");
    std::fs::write(folder.join("planted.html"), page).unwrap();
    browser.open(&folder.join("planted.html"), "", &[]);
}

/// Figures that are planted are judged, fitted, marked and drawn as they are.
#[test]
fn a_page_judges_and_fits_planted_figures() {
    let Some(mut browser) = Browser::start() else { return skipped(browser::MISSING) };
    let folder = tempfile::tempdir().unwrap();
    // Times of 2 us and 4000 bytes a microsecond; the other algorithm takes `times` as long.
    let row = |requested: &str, algorithm: &str, bytes: u64, choice: &str, times: f64| {
        let us = (2.0 + bytes as f64 / 4e3) * times;
        json!({
            "collective": "all_reduce", "transport": "shm", "requested": requested,
            "algorithm": algorithm, "bytes": bytes, "count": bytes / 4, "type": "f32", "op": "sum",
            "root": null, "registered": false, "in_place": false, "busbw_GBps": 1.0,
            "predicted_us": us / 2.0, "tuners_choice": choice,
            "time_us": { "min": us, "p50": us, "p90": us, "p99": us, "mean": us, "stdev": 0.0 },
        })
    };
    let matrix = json!({
        "test": "latency", "transport": "shm", "bytes": 8, "verdict": "slow link: 0->1\n",
        "matrix_us": [[null, 8.0, 1.0], [1.0, null, 1.0], [1.0, 1.0, null]],
    });
    let mut rows = vec![matrix];
    for bytes in [8, 4096, 1 << 20] {
        // At the last size, the choice is twice as slow as the other algorithm.
        let choice = if bytes > 4096 { "ring" } else { "two-shot" };
        rows.push(row("auto", choice, bytes, choice, if bytes > 4096 { 2.0 } else { 1.0 }));
        rows.push(row("two-shot", "two-shot", bytes, choice, 1.0));
        rows.push(row("ring", "ring", bytes, choice, 2.0));
    }
    open_planted(&mut browser, folder.path(), json!(rows));
    let texts =
        |what| format!("[...document.querySelectorAll('{what}')].map(it => it.textContent)");
    let judged = browser.value(&texts(".facts + p"))[0].as_str().unwrap().to_owned();
    for part in ["At 2 of 3 points", "took 2.00 times as long", "off by a factor of 2.00"] {
        assert!(judged.contains(part), "{part}: {judged}");
    }
    let facts = browser.value(&texts(".facts dd"));
    assert!(facts.to_string().contains("perf <b> & co"), "{facts}");
    let lines = browser.value(&texts("#overview td"));
    let expected = ["shm", "2.00", "4.00", "0 %", "1M", "264"];
    assert_eq!(lines, json!(expected), "of the fastest algorithm at each size");
    assert_eq!(browser.value(&texts(".figures .best")).as_array().unwrap().len(), 3 + 2);
    assert_eq!(browser.value(&texts(".figures .chosen")).as_array().unwrap().len(), 3);
    let fills = "[...document.querySelectorAll('.heat rect')].map(it => it.getAttribute('fill'))";
    let fills: Vec<String> = serde_json::from_value(browser.value(fills)).unwrap();
    let [dark, pale] = ["rgb(128, 0, 38)", "rgb(255, 247, 209)"]
        .map(|colour| fills.iter().filter(|fill| *fill == colour).count());
    assert_eq!((dark, pale), (1, 5), "{fills:?}");
    let ticks = browser.value(&texts(".plots text[text-anchor=middle]"));
    assert!(ticks.to_string().contains("\"64\",\"512\""), "powers, few: {ticks}");
}

/// A figure as the page shows it.
fn shown(value: &Value) -> String {
    let us = value.as_f64().unwrap();
    let digits = [1.0, 10.0, 100.0].iter().filter(|bound| us < **bound).count();
    format!("{us:.digits$}")
}

/// A size as the page shows it.
fn size(object: &Value) -> String {
    match object["bytes"].as_u64().unwrap() {
        bytes if bytes >= 1024 => format!("{}K", bytes / 1024),
        bytes => bytes.to_string(),
    }
}

/// The cells of the row of percentiles that `object` has.
fn percentiles(object: &Value) -> Vec<String> {
    let text = |key: &str| object[key].as_str().unwrap().to_owned();
    let mut row = vec![text("transport"), size(object)];
    let rate = if object.get("collective").is_some() {
        let place = if object["in_place"] == true { "in place" } else { "out of place" };
        row.extend([text("requested"), place.to_owned()]);
        "busbw_GBps"
    } else {
        let pairs = object["pairs"].as_array().unwrap().iter();
        row.push(pairs.map(|pair| format!("{}-{}", pair[0], pair[1])).collect());
        "rate_GBps"
    };
    let time = &object["time_us"];
    row.extend(["p50", "p90", "p99", "stdev"].map(|name| shown(&time[name])));
    row.push(shown(&object[rate]));
    row
}

/// The page shows the figures of the JSON files, and fits windows of telephones and of desks in
/// light and dark colours.
#[test]
fn a_browser_shows_the_figures_of_the_json_at_two_widths_in_light_and_dark() {
    crate::skip::takes_turns!(4);
    let folder = tempfile::tempdir().unwrap();
    let there = |name: &str| folder.path().join(name);
    let line = "perf all-reduce barrier -n 3 -a auto,ring --sizes 8,4K,64K --budget 2 --threads \
                --transport shm";
    let [old, new] = ["old", "new"].map(|name| there(name).display().to_string());
    printed(&format!("{line} --report {old}"));
    // The earlier run was ten times as slow.
    let earlier = std::fs::read_to_string(there("old/results.json")).unwrap();
    let slower = objects(&earlier).into_iter().map(|mut object| {
        if let Some(samples) = object["samples_us"].as_array_mut() {
            samples.iter_mut().for_each(|us| *us = (us.as_f64().unwrap() * 10.0).into());
        }
        format!("{object}\n")
    });
    std::fs::write(there("old/results.json"), slower.collect::<String>()).unwrap();
    let json = there("new.json");
    let shown = printed(&format!(
        "{line} --report {new} --compare {old} --samples --json {}",
        json.display()
    ));
    assert!(shown.contains("first: ") && shown.contains("  all-reduce of 8 bytes"), "{shown}");
    let results = objects(&std::fs::read_to_string(there("new/results.json")).unwrap());
    let written = objects(&std::fs::read_to_string(json).unwrap());
    assert_eq!(results.len(), written.len());
    assert!(written.iter().all(|line| results.contains(line)), "the report holds --json --samples");

    let Some(mut browser) = Browser::start() else { return skipped(browser::MISSING) };
    for (width, colours) in [(360, "light"), (1200, "dark"), (360, "dark"), (1200, "light")] {
        browser.resize(width, 900);
        let media = [("prefers-color-scheme", colours)];
        browser.open(&there("new/index.html"), "", &media);
        browser.value("document.querySelectorAll('details').forEach(it => it.open = true)");
        browser.value(SEEN);
        let wide = browser.value("widths()");
        assert!(wide[0].as_u64() <= wide[1].as_u64(), "{wide} at {width}, {colours}");
        assert_eq!(wide[2], width);
        let pale = browser.value("pale()");
        assert_eq!(pale, json!([]), "texts that can hardly be read at {width}, {colours}");
        let small = browser.value("small()");
        assert_eq!(small, json!([]), "texts that are too small at {width}");
    }
    compare_percentiles(&mut browser, &results);
    compare_fits(&mut browser, &results);
    let changes = browser.value("[...document.querySelectorAll('.changes tr')].length");
    assert!(changes.as_u64().unwrap() > 1, "every row became faster by ten times");
}

/// The page has a row of percentiles for each measurement.
fn compare_percentiles(browser: &mut Browser, results: &[Value]) {
    let rows: Vec<Vec<String>> =
        serde_json::from_value(browser.value("cells('.percentiles')")).unwrap();
    let measured = results.iter().filter(|it| it.get("matrix_us").is_none());
    let mut expected: Vec<_> = measured.map(percentiles).collect();
    assert_eq!(rows.len(), expected.len());
    expected.retain(|row| !rows.contains(row));
    assert_eq!(expected, [[""; 0]; 0], "not among {rows:#?}");
}

/// The heat maps have the figures of the matrices.
fn compare_pairs(browser: &mut Browser, results: &[Value]) {
    let titles = "[...document.querySelectorAll('svg.heat')].map(map => [map.ariaLabel, \
                  ...[...map.querySelectorAll('title')].map(it => it.textContent)])";
    let mut expected = Vec::new();
    for matrix in results.iter().filter(|it| it.get("matrix_us").is_some()) {
        let word = |key: &str| matrix[key].as_str().unwrap();
        let (test, over) = (word("test"), word("transport"));
        let mut map = vec![format!("{test} of {} bytes over {over}, us", matrix["bytes"])];
        for (from, row) in matrix["matrix_us"].as_array().unwrap().iter().enumerate() {
            for (to, us) in row.as_array().unwrap().iter().enumerate() {
                let us = us.as_f64().map(|us| format!("{us:.3} us"));
                let us = us.unwrap_or_else(|| "not measured".to_owned());
                map.push(format!("{from} to {to}: {us}"));
            }
        }
        expected.push(map);
    }
    assert_eq!(expected.len(), 3, "three sizes over one transport");
    assert_eq!(browser.value(titles), json!(expected));
}

/// Each line through the times of an algorithm is as far from them as the page shows.
fn compare_fits(browser: &mut Browser, results: &[Value]) {
    let lines: Vec<Vec<Option<String>>> =
        serde_json::from_value(browser.value("cells('#all-reduce .fits')")).unwrap();
    assert_eq!(lines.len(), 2, "auto and ring: {lines:?}");
    for line in lines {
        let cell = |nth: usize| line[nth].clone().unwrap();
        let alpha = cell(2).parse::<f64>().unwrap();
        // On a loaded machine the larger sizes may have taken no longer.
        let rate = match cell(3).as_str() {
            "not to be seen" => f64::INFINITY,
            rate => rate.parse().unwrap(),
        };
        let off = cell(4).trim_end_matches(" %").parse::<f64>().unwrap();
        let is_of = |it: &&Value| {
            it["requested"] == cell(1)
                && it["collective"] == "all_reduce"
                && it["in_place"] == false
        };
        let errors = results.iter().filter(is_of).map(|object| {
            let us = object["time_us"]["p50"].as_f64().unwrap();
            let fitted = alpha + object["bytes"].as_f64().unwrap() / rate / 1e3;
            (fitted / us - 1.0).abs() * 100.0
        });
        let errors: Vec<f64> = errors.collect();
        let worst = errors.iter().copied().fold(0.0, f64::max);
        assert_eq!(errors.len(), 3);
        // The page shows three digits of each figure.
        assert!((worst - off).abs() < 3.0 + worst / 100.0, "{line:?}: {errors:?}");
    }
}

/// A report of messages alone has their matrices and plots.
#[test]
fn messages_have_a_report() {
    let folder = tempfile::tempdir().unwrap();
    let there = folder.path().display();
    printed(&format!(
        "perf latency --pairs all -n 3 --threads --transport shm --sizes 8,1K,64K --budget 2 \
         --report {there}"
    ));
    let table = std::fs::read_to_string(folder.path().join("messages.csv")).unwrap();
    assert_eq!(table.lines().count(), 1 + 3 * 3, "three pairs of three sizes");
    assert!(!folder.path().join("results.csv").exists(), "there are no collectives");
    let Some(mut browser) = Browser::start() else { return skipped(browser::MISSING) };
    browser.open(&folder.path().join("index.html"), "", &[]);
    browser.value(SEEN);
    let pictures = "['.heat', '.plots svg', '.notes [href=\"messages.csv\"]', '[href=\"#overview\"]']\
                    .map(it => document.querySelectorAll(it).length)";
    assert_eq!(browser.value(pictures), json!([3, 1, 1, 1]), "three matrices and a plot");
    let results = std::fs::read_to_string(folder.path().join("results.json")).unwrap();
    let results = objects(&results);
    compare_percentiles(&mut browser, &results);
    compare_pairs(&mut browser, &results);
    let said = browser.value("document.body.innerText").as_str().unwrap().to_owned();
    for part in ["latency of 1024 bytes over", "median pair of ranks", "half a round trip"] {
        assert!(said.contains(part), "{part}: {said}");
    }
}
