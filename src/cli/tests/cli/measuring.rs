//! `perf`: measurements by threads and by processes.

use super::{maypole, objects, printed, run, skip, text};
use maypole::DataType;
use serde_json::Value;
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::process::{Command, Output, Stdio};

/// By threads, and by processes.
#[test]
fn every_collective_is_measured_and_right() {
    crate::skip::takes_turns!(2);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("perf.json");
    for ranks in ["--threads -n 3", "-n 3"] {
        let line = format!("perf {ranks} --budget 2 --sizes 8,100K --json {}", file.display());
        let table = printed(&line);
        let columns = ["place", "busbw", "min", "p99", "# time ", "# algbw "];
        let says = ["3 ranks on 1 host", "#wrong total: 0 in"];
        assert!(says.iter().chain(&columns).all(|says| table.contains(says)), "{table}");
        let all = objects(&std::fs::read_to_string(&file).unwrap());
        for object in &all {
            let found = (&object["wrong"], &object["ranks"], &object["type"]);
            assert_eq!(found, (&0.into(), &3.into(), &"f32".into()));
            let name = object["collective"].as_str().unwrap();
            let reduces = name.contains("reduce") || name.contains("scan");
            assert_eq!(object["op"].is_string(), reduces, "{object}");
        }
        let each = |key: &str| -> BTreeSet<_> {
            all.iter().map(|object| object[key].as_str().unwrap()).collect()
        };
        assert_eq!((each("collective").len(), each("transport").len()), (11, 2), "{ranks}");
        // Two transports; 9 collectives of 2 sizes in 2 places, a broadcast of 2 sizes, and a barrier.
        assert_eq!(all.len(), 2 * (9 * 2 * 2 + 2 + 1));
    }
}

/// The wrong elements of all rows.
pub(crate) fn wrong(rows: &[Value]) -> u64 {
    rows.iter().map(|row| row["wrong"].as_u64().unwrap()).sum()
}

#[test]
fn a_call_left_out_in_a_hundred_is_noticed() {
    let threads = "all-reduce broadcast scatter all-to-all --threads --transport shm";
    for calls in [threads, "all-reduce"] {
        let line = format!("perf {calls} -n 2 --sizes 8,256K --iters 300 --sabotage 100 --json -");
        let output = run(&line);
        assert_eq!(output.status.code(), Some(1), "{calls}");
        let all = objects(&text(&output.stdout));
        let said = format!("maypole: {} elements were wrong", wrong(&all));
        assert!(text(&output.stderr).contains(&said), "{calls}: {said}");
        let point = |it: &Value| ["collective", "bytes", "transport"].map(|key| it[key].clone());
        for rows in all.chunk_by(|a, b| point(a) == point(b)) {
            assert!(wrong(rows) > 0, "{rows:?}");
        }
    }
}

/// Buffers that are written once hold right results, and calls that do nothing are still noticed.
#[test]
fn reused_buffers_are_checked_before_the_samples() {
    let options = "--threads --budget 2 --sizes 8,64K --reuse-buffers --json -";
    for object in objects(&printed(&format!("perf -n 3 {options}"))) {
        assert_eq!(object["wrong"], 0, "{object}");
        assert_eq!(object["reuses_buffers"], true, "{object}");
    }
    let table = printed("perf -n 2 reduce --threads --budget 1 --sizes 8 --reuse-buffers");
    assert!(table.contains("--reuse-buffers"), "{table}");
    let output = run(&format!("perf all-gather -n 2 --sabotage 1 {options}"));
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    for object in objects(&text(&output.stdout)) {
        // The other rank's block is wrong at least, half of the elements of four bytes.
        let bytes = object["bytes"].as_u64().unwrap();
        assert!(object["wrong"].as_u64() >= Some(bytes / 8), "{object}");
    }
}

/// A sample is one call. A broadcast by a ring passes all ranks then, and in a row its root runs ahead.
#[test]
fn calls_that_begin_together_are_timed_one_by_one() {
    let line = "perf broadcast -n 3 -a ring --threads --transport tcp --sizes 8 --budget 20";
    let row = |options: &str| {
        let objects = objects(&printed(&format!("{line}{options} --json -")));
        objects.into_iter().find(|it| it["in_place"] == true).expect("a broadcast is in place")
    };
    let together = row(" --together");
    assert_eq!(together["together"], true, "{together}");
    assert_eq!(together["iterations"], together["batches"], "{together}");
    // Beside other programs, single calls may last so long that each is a sample in a row, too.
    let in_a_row = |_| {
        let row = row("");
        row.get("together").is_none() && row["iterations"] != row["batches"]
    };
    assert!((0..5).any(in_a_row), "every sample is one call");
    let table = printed(&format!("{line} --together"));
    assert!(table.contains("all ranks begin it together (--together)"), "{table}");
}

#[test]
fn a_run_without_a_check_says_so() {
    let unchecked = printed("perf reduce --threads -n 2 --budget 2 --sizes 8 --check false");
    assert!(unchecked.contains("nothing was checked"), "{unchecked}");
}

#[test]
fn interrupted_ranks_print_the_rows_so_far() {
    ["--threads -n 2", "-n 3"].into_iter().for_each(interrupted);
}

fn interrupted(ranks: &str) {
    if skip::ignores(2) {
        return skip::skipped("this process ignores Ctrl-C, as a shell's background jobs do");
    }
    // With so many sizes, the measurement takes a minute.
    let sizes: Vec<_> = (1..=500).map(|size| (8 * size).to_string()).collect();
    let line = format!("perf all-reduce {ranks} --transport shm --sizes {}", sizes.join(","));
    let mut child = maypole(&line).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    // Rows come as they are measured.
    assert!(lines.any(|line| line.unwrap().contains(" f32 ")));
    let id = child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &id]).status().unwrap().success());
    let rest: Vec<_> = lines.map(|line| line.unwrap()).collect();
    assert_eq!(child.wait().unwrap().code(), Some(130), "{rest:#?}");
    assert!(rest.iter().any(|line| line.contains("interrupted")), "{rest:#?}");
    assert!(rest.iter().filter(|line| line.contains(" f32 ")).count() < 499, "{rest:#?}");
}

#[test]
fn under_a_launcher_perf_joins_the_job() {
    let line = format!(
        "run -n 2 --no-tag-output {} perf all-reduce --budget 2 --sizes 8 --json -",
        env!("CARGO_BIN_EXE_maypole")
    );
    let all = objects(&printed(&line));
    assert_eq!(all.len(), 4, "2 transports, 2 places, and rank 0 alone prints");
    assert!(all.iter().all(|object| object["ranks"] == 2));
}

/// Large calls on registered memory run on it, small ones do not try, and the output marks them.
#[test]
fn registered_memory_is_measured_and_reported() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("perf.json");
    let table = printed(&format!(
        "perf all-reduce all-gather --registered -n 2 --budget 2 --sizes 8,1M --json {}",
        file.display()
    ));
    assert!(table.contains("# buffers are registered memory (--registered)"), "{table}");
    assert!(table.contains("two-shot/reg "), "{table}");
    let all = objects(&std::fs::read_to_string(file).unwrap());
    assert_eq!(all.len(), 2 * 2 * 2, "shared memory only");
    for object in &all {
        assert_eq!(object["wrong"], 0);
        let path = if object["bytes"].as_u64().unwrap() > 8 { "registered" } else { "staged" };
        assert_eq!(object["path"], path, "{object}");
    }
    let line = "perf all-reduce -n 2 --registered-too --budget 2 --sizes 1M --json -";
    let both = objects(&printed(line));
    let paths: Vec<_> = both.iter().map(|it| (&it["registered"], it["path"].as_str())).collect();
    let (private, registered) = paths.split_at(2);
    assert!(private.iter().all(|(is, path)| **is == false && *path != Some("registered")));
    assert!(registered.iter().all(|(is, path)| **is == true && *path == Some("registered")));
    let private = printed("perf all-reduce -n 2 --transport shm --budget 2 --sizes 1M --json -");
    assert!(objects(&private).iter().all(|object| object["path"] == "staged"), "{private}");
}

fn on_two_hosts(script: &str) -> Output {
    let mut command = maypole("run -n 2 --no-tag-output -- sh -c");
    command.args([script, env!("CARGO_BIN_EXE_maypole")]).output().unwrap()
}

#[test]
fn hosts_that_are_set_apart_are_counted_and_have_no_registered_memory() {
    let on = |options: &str| {
        let script = format!("MAYPOLE_HOST=h$RANK exec \"$0\" perf all-reduce --sizes 8 {options}");
        let output = on_two_hosts(&script);
        (output.status.code(), text(&output.stdout) + &text(&output.stderr))
    };
    let (code, table) = on("--budget 2");
    assert_eq!(code, Some(0), "{table}");
    assert!(table.contains("2 ranks on 2 hosts\n"), "{table}");
    assert!(table.contains("these hosts share clock and cores"), "{table}");
    let (code, said) = on("--registered");
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("--registered: the ranks do not all share memory"), "{said}");
}

/// Programs that compute at the same time are detected while samples are taken, and reported.
#[test]
fn a_noisy_run_is_said() {
    let stop = std::sync::atomic::AtomicBool::new(false);
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let shown = std::thread::scope(|scope| {
        for _ in 0..2 * cores {
            scope.spawn(|| {
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        let shown = run("perf all-reduce -n 2 --transport shm --sizes 64K --budget 300");
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        shown
    });
    let table = text(&shown.stdout);
    assert!(shown.status.success(), "{table}{}", text(&shown.stderr));
    assert!(table.contains("#  noisy: other programs took "), "{table}");
}

/// The conditions of a run stand in each of its outputs.
#[test]
fn every_output_says_where_and_when_it_was_measured() {
    let folder = tempfile::tempdir().unwrap();
    let [lines, table] = ["perf.json", "perf.csv"].map(|name| folder.path().join(name));
    let line = "perf all-reduce -n 2 --transport shm --sizes 8,4K --budget 2 --samples";
    let shown = printed(&format!("{line} --json {} --csv {}", lines.display(), table.display()));
    let objects = objects(&std::fs::read_to_string(lines).unwrap());
    let header = &objects[0]["header"];
    for key in ["host", "processor", "kernel", "date", "version", "command", "build"] {
        let said = header[key].as_str().unwrap_or_else(|| panic!("{key}: {header}"));
        assert!(!said.is_empty() && shown.contains(said), "{key}: {said:?} is not in\n{shown}");
    }
    assert!(header["memory_bytes"].as_u64().unwrap() > 1 << 20, "{header}");
    assert!(header["load"].is_number() && header["cores"].is_number(), "{header}");
    assert_eq!(header["ranks"].as_array().unwrap().len(), 2);
    for object in &objects {
        let samples = object["samples_us"].as_array().unwrap().iter();
        let mut samples: Vec<_> = samples.map(|us| us.as_f64().unwrap()).collect();
        samples.sort_by(f64::total_cmp);
        assert_eq!(object["batches"], samples.len(), "{object}");
        assert_eq!(object["time_us"]["p50"], samples[samples.len() / 2], "{object}");
    }

    let mut reader = csv::Reader::from_path(table).unwrap();
    let rows: Vec<std::collections::BTreeMap<String, String>> =
        reader.deserialize().collect::<Result<_, _>>().unwrap();
    assert_eq!(rows.len(), objects.len());
    for row in rows {
        assert_eq!(
            (&*row["host"], &*row["date"]),
            (header["host"].as_str().unwrap(), header["date"].as_str().unwrap())
        );
        assert!(row["slowest_rank"].parse::<usize>().unwrap() < 2, "{row:?}");
    }
}

/// What is hidden follows from the three times; requests are checked as calls are.
#[test]
fn requests_are_measured_beside_computing() {
    let line = "perf all-reduce broadcast -n 2 --transport shm --sizes 64K --budget 10 --overlap";
    let table = printed(line);
    assert!(table.contains("# all-reduce over shm, beside computing"), "{table}");
    assert_eq!(table.matches("#  overlap ").count(), 2, "{table}");
    assert!(table.contains("as IMB-NBC defines it"), "{table}");
    for object in objects(&printed(&format!("{line} --json -"))) {
        let us = |key: &str| object["overlap"][key].as_f64().unwrap();
        let [call, compute, both] = ["call_us", "compute_us", "both_us"].map(us);
        let part = ((call + compute - both) / call.min(compute)).clamp(0.0, 1.0);
        assert!((us("part") - part).abs() < 1e-9, "{object}");
        assert_eq!((&object["wrong"], &object["overlapped"]), (&0.into(), &true.into()));
        assert_eq!(object["time_us"]["p50"].as_f64(), Some(both), "{object}");
    }
    let sabotaged = run(&format!("{line} --sabotage 3"));
    assert_eq!(sabotaged.status.code(), Some(1), "{}", text(&sabotaged.stdout));
}

#[test]
fn several_types_operations_and_roots_are_measured_in_one_run() {
    crate::skip::takes_turns!(2);
    let line = "perf reduce barrier --threads -n 2 --transport shm --sizes 64 --budget 1 -d f32,u8 \
                -o sum,xor -r all --json -";
    let output = run(line);
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("f32 is not an integer type"), "a named pair is refused");
    let line = line.replace("perf reduce", "perf all-reduce reduce").replace("f32,u8", "all");
    let all = objects(&printed(&line.replace("sum,xor", "all")));
    assert!(all.iter().all(|object| object["wrong"] == 0), "{all:?}");
    let points: BTreeSet<_> =
        all.iter().map(|it| format!("{} {} {}", it["type"], it["op"], it["root"])).collect();
    for number in DataType::NUMBERS {
        let kind = number.name();
        let of = |op: &str| points.iter().any(|it| it.starts_with(&format!("\"{kind}\" \"{op}\"")));
        assert!(of("sum") && of("product") && of("min") && of("max") && of("avg"), "{points:?}");
        assert_eq!(of("xor"), !number.is_float(), "{points:?}");
    }
    assert!(points.contains("\"u8\" \"xor\" 1"), "{points:?}");
}

#[test]
fn ranks_are_listed_one_by_one() {
    let table = printed("perf all-reduce -n 3 --transport shm --sizes 8 --budget 5 --per-rank");
    let line = table.lines().find(|line| line.starts_with("#  ranks: ")).expect(&table);
    assert!(line.contains("slowest is rank ") && line.contains("us apart"), "{line}");
    let each = table.lines().find(|line| line.starts_with("#  each rank (us): ")).expect(&table);
    assert_eq!(each.split(": ").nth(1).unwrap().split(' ').count(), 3, "{each}");
}
