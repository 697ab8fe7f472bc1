//! The commands that measure, draw and predict, as a user runs them.
#![cfg(feature = "cli")]

#[path = "common/skip.rs"]
mod skip;

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader};
use std::process::{Command, Output, Stdio};

/// The keys of every JSON object of `perf`. Users depend on them.
const KEYS: [&str; 21] = [
    "algbw_GBps",
    "algorithm",
    "busbw_GBps",
    "bytes",
    "collective",
    "count",
    "decryption_GBps",
    "deterministic",
    "encrypted",
    "encryption_GBps",
    "in_place",
    "iterations",
    "offset",
    "op",
    "path",
    "ranks",
    "root",
    "time_us",
    "transport",
    "type",
    "wrong",
];

/// A `maypole` that no launcher has started.
fn maypole(line: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_maypole"));
    command.args(line.split_whitespace()).stdin(Stdio::null());
    for (name, _) in std::env::vars() {
        if ["MAYPOLE_", "OMPI_", "PMI", "SLURM_"].iter().any(|prefix| name.starts_with(prefix)) {
            command.env_remove(name);
        }
    }
    command.env_remove("RANK").env_remove("WORLD_SIZE");
    command
}

fn run(line: &str) -> Output {
    maypole(line).output().unwrap_or_else(|error| panic!("{line}: {error}"))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("output is text")
}

/// The standard output of a run, which must succeed.
fn printed(line: &str) -> String {
    let output = run(line);
    assert!(output.status.success(), "{line}: {}\n{}", output.status, text(&output.stderr));
    text(&output.stdout)
}

fn objects(text: &str) -> Vec<Value> {
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{line}: {error}")))
        .collect()
}

fn keys(object: &Value) -> Vec<&str> {
    let keys: BTreeSet<&str> =
        object.as_object().expect("an object").keys().map(String::as_str).collect();
    keys.into_iter().collect()
}

#[test]
fn contradictions_exit_with_2_and_a_reason() {
    for (line, says) in [
        ("perf --min 64K --max 8", "--min 64K is more than --max 8"),
        ("perf --factor 1", "at least 2"),
        ("perf --min 8Q", "or 4K"),
        ("perf -n 3 --root 3", "no rank 3"),
        ("perf barrier --algorithm ring", "barrier: dissemination"),
        ("perf --algorithm rung", "two-shot"),
        ("perf --type quad", "bf16"),
        ("perf --op mean", "avg"),
        ("perf --offset 2", "take a multiple of that"),
        ("perf --registered -n 1", "no other rank"),
        ("perf --registered --transport tcp", "use --transport shm"),
        ("perf sumall", "reduce-scatter"),
        ("perf --transport pigeon", "tcp"),
        ("perf --threads -n 2 --json /nonexistent/file", "/nonexistent/file"),
        ("draw barrier --algorithm ring", "dissemination"),
        ("draw ballet", "all-to-all"),
        ("draw broadcast -n 0", "1024"),
        ("draw broadcast -n 4 --root 4", "no rank 4"),
        ("simulate all-to-all --algorithm tree", "pairwise"),
        ("simulate all-reduce --alpha -1", ""),
        ("simulate all-reduce --windows 0", "from 1"),
        ("perf all-reduce --op xor --type f32", "bits of integers"),
        ("perf --sizes 18446744073709551615", "more than 1024T, the largest size"),
        ("perf --min 16E", "is not a size"),
        ("perf all-reduce --sizes 1T", "all-reduce of 1T needs 12.0T of memory on this host: 4"),
        ("perf all-reduce --sizes 1024T -n 2", "needs 6.0P of memory"),
        ("perf all-reduce --sizes 1T --threads", "an input of 1.0T and two outputs of 1.0T"),
        ("explain all-reduce -b 18446744073709551615", "the largest size"),
        ("topo --cluster dgx-h100 -b 18446744073709551615", "the largest size"),
        ("simulate all-reduce -b 18446744073709551615", "the largest size"),
    ] {
        let output = run(line);
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{line}: {error}");
        assert!(error.contains(says) && !error.contains("panicked"), "{line}: {error}");
    }
}

/// Under every limit of the address space the measurement works or says that memory is missing. Low
/// limits hit the buffers of the command, higher ones the staging buffers of the library.
#[test]
fn missing_memory_is_an_error_and_kills_nothing() {
    let mut failures = 0;
    for limit in (150..=450).step_by(25) {
        let mut command = Command::new("sh");
        let line = "perf all-reduce --algorithm recursive-doubling -n 2 --transport tcp --sizes 64M \
                    --iters 1 --check false";
        let script = format!("ulimit -v {} && exec \"$0\" {line}", limit << 10);
        command.args(["-c", &script, env!("CARGO_BIN_EXE_maypole")]).stdin(Stdio::null());
        let output = command.output().unwrap();
        let error = text(&output.stderr);
        let code = output.status.code();
        assert!(code.is_some_and(|code| code <= 2), "{limit} MiB: {}: {error}", output.status);
        assert!(!error.contains("panicked"), "{limit} MiB: {error}");
        if code != Some(0) {
            failures += 1;
            let missing = ["no memory", "Cannot allocate memory", "temporarily unavailable"];
            assert!(missing.iter().any(|it| error.contains(it)), "{limit} MiB: {error}");
        }
    }
    assert!(failures > 0, "a limit of 150 MiB leaves no room for buffers of 192 MiB");
}

/// The largest size is priced without an overflow, and is refused where bytes are needed.
#[test]
fn the_largest_size_is_arithmetic_that_works() {
    for line in [
        "simulate all-reduce -b 1024T -n 16",
        "simulate all-to-all -b 1024T -n 16",
        "simulate all-reduce -b 1024T --cluster dgx-h100",
        "topo --cluster dgx-h100 -b 1024T",
        "explain all-reduce -b 1024T -n 64",
        "explain all-to-all -b 1024T -n 64",
        "explain reduce-scatter -b 1024T -n 7 --type u8",
    ] {
        printed(line);
    }
    let output = run("explain all-reduce -b 1024T -n 2 --measure");
    let error = text(&output.stderr);
    assert!(!output.status.success());
    assert!(error.contains("no memory for a buffer of 512T"), "{error}");
    assert!(!error.contains("panicked"), "{error}");
}

#[test]
fn every_help_text_lists_every_collective() {
    for command in ["draw", "simulate", "explain", "perf"] {
        let help = printed(&format!("{command} --help"));
        let words = help.split_whitespace().collect::<Vec<_>>().join(" ");
        let names = maypole::schedule::collective::Collective::option_names();
        assert!(words.contains(&names), "{command}: {words}");
        assert!(names.contains("exclusive-scan"), "{names}");
    }
}

#[test]
fn options_of_nccl_tests_are_understood() {
    let line = "perf all_reduce --threads -b 8 -e 32 -f 2 -g 2 -w 5 -c 1 -d float -o prod --json -";
    let all = objects(&printed(line));
    assert_eq!(all.len(), 2 * 2 * 3, "two transports, two placements, three sizes");
    for object in all {
        assert_eq!(object["ranks"], 2);
        assert_eq!(object["type"], "f32");
        assert_eq!(object["op"], "product");
        assert_eq!(object["wrong"], 0);
    }
}

#[test]
fn every_collective_is_measured_and_right() {
    let line = "perf --threads -n 3 --budget 2 --sizes 8,100K --json -";
    let all = objects(&printed(line));
    for object in &all {
        assert_eq!(keys(object), KEYS);
        assert_eq!(keys(&object["time_us"]), ["mean", "min", "p50", "p90", "p99"]);
        assert_eq!(
            (&object["wrong"], &object["ranks"], &object["type"]),
            (&0.into(), &3.into(), &"f32".into())
        );
        let name = object["collective"].as_str().unwrap();
        let reduces = name.contains("reduce") || name.contains("scan");
        assert_eq!(object["op"].is_string(), reduces, "{object}");
    }
    let collectives: BTreeSet<_> =
        all.iter().map(|object| object["collective"].as_str().unwrap()).collect();
    assert_eq!(collectives.len(), 11, "{collectives:?}");
    // Two transports; 9 collectives of 2 sizes in 2 places, a broadcast of 2 sizes, and a barrier.
    assert_eq!(all.len(), 2 * (9 * 2 * 2 + 2 + 1));
}

#[test]
fn every_type_and_operation_is_right() {
    for kind in ["f16", "bf16", "f32", "f64", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64"]
    {
        let integer = !kind.contains('f');
        for op in
            ["sum", "product", "min", "max", "avg"].into_iter().chain(integer.then_some("xor"))
        {
            let line = format!(
                "perf all-reduce --threads -n 3 --transport shm -d {kind} -o {op} --sizes 5K \
                 --iters 5 --json -"
            );
            for object in objects(&printed(&line)) {
                assert_eq!(
                    (&object["wrong"], &object["iterations"]),
                    (&0.into(), &5.into()),
                    "{line}"
                );
            }
        }
    }
}

#[test]
fn bandwidths_follow_from_times() {
    for object in objects(&printed(
        "perf all-reduce all-gather --threads -n 2 --budget 2 --sizes 64K --json -",
    )) {
        let number = |value: &Value| value.as_f64().expect("a number");
        let algorithm = number(&object["bytes"]) / number(&object["time_us"]["p50"]) / 1e3;
        let factor = if object["collective"] == "all_reduce" { 1.0 } else { 0.5 };
        assert!((number(&object["algbw_GBps"]) / algorithm - 1.0).abs() < 1e-9, "{object}");
        assert!(
            (number(&object["busbw_GBps"]) / algorithm / factor - 1.0).abs() < 1e-9,
            "{object}"
        );
    }
}

#[test]
fn a_call_left_out_in_a_hundred_is_noticed() {
    for collective in ["all-reduce", "broadcast", "scatter", "all-to-all"] {
        let output = run(&format!(
            "perf {collective} --threads -n 2 --transport shm --sizes 8,256K --sabotage 100 \
             --json -"
        ));
        assert_eq!(output.status.code(), Some(1), "{collective}");
        assert!(text(&output.stderr).contains("elements were wrong"), "{collective}");
        for size in objects(&text(&output.stdout)).chunk_by(|a, b| a["bytes"] == b["bytes"]) {
            let wrong: u64 = size.iter().map(|object| object["wrong"].as_u64().unwrap()).sum();
            assert!(wrong > 0, "{collective}: {size:?}");
        }
    }
}

#[test]
fn the_table_explains_its_columns() {
    let table = printed("perf reduce --threads -n 2 --budget 2 --sizes 8");
    for says in [
        "2 ranks on 1 host",
        "out-of-place",
        "in-place",
        "busbw",
        "p99",
        "# time ",
        "# algbw ",
        "#wrong total: 0",
    ] {
        assert!(table.contains(says), "{says:?} is not in\n{table}");
    }
    let unchecked = printed("perf reduce --threads -n 2 --budget 2 --sizes 8 --check false");
    assert!(unchecked.contains("nothing was checked"), "{unchecked}");
}

#[test]
fn interrupted_threads_print_the_rows_so_far() {
    interrupted("--threads -n 2");
}

#[test]
fn interrupted_processes_print_the_rows_so_far() {
    interrupted("-n 3");
}

/// True if this process inherited SIGINT as ignored. The launcher then leaves it ignored.
fn ignores_ctrl_c() -> bool {
    const SIGINT_BIT: u64 = 1 << 1;
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let set = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap();
    u64::from_str_radix(set.trim(), 16).unwrap() & SIGINT_BIT != 0
}

fn interrupted(ranks: &str) {
    if ignores_ctrl_c() {
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
fn processes_are_measured_over_shared_memory_and_tcp() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("perf.json");
    let table = printed(&format!("perf -n 3 --budget 2 --sizes 8,20K --json {}", file.display()));
    assert!(table.contains("3 ranks on 1 host") && table.contains("#wrong total: 0 in"), "{table}");
    let all = objects(&std::fs::read_to_string(file).unwrap());
    assert!(all.iter().all(|object| keys(object) == KEYS && object["wrong"] == 0), "{table}");
    let transports: BTreeSet<_> =
        all.iter().map(|object| object["transport"].as_str().unwrap()).collect();
    assert_eq!(transports, BTreeSet::from(["shm", "tcp"]));
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
    let line = format!("run -n 2 {} perf -n 3", env!("CARGO_BIN_EXE_maypole"));
    let output = run(&line);
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
    assert!(
        text(&output.stderr).contains("the launcher has started 2"),
        "{}",
        text(&output.stderr)
    );
}

/// Large calls on registered memory run on it, small ones do not ask, and the output tells which.
#[test]
fn registered_memory_is_measured_and_told() {
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
        assert_eq!((keys(object), &object["wrong"]), (KEYS.to_vec(), &0.into()));
        let path = if object["bytes"].as_u64().unwrap() > 8 { "registered" } else { "staged" };
        assert_eq!(object["path"], path, "{object}");
    }
    let private = printed("perf all-reduce -n 2 --transport shm --budget 2 --sizes 1M --json -");
    assert!(objects(&private).iter().all(|object| object["path"] == "staged"), "{private}");
}

#[test]
fn ranks_of_several_hosts_have_no_registered_memory() {
    let script = "MAYPOLE_HOST=h$RANK exec \"$0\" perf all-reduce --registered --sizes 8";
    let output = maypole("run -n 2 --no-tag-output -- sh -c")
        .args([script, env!("CARGO_BIN_EXE_maypole")])
        .output()
        .unwrap();
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.contains("--registered: the ranks do not all share memory"), "{error}");
}

#[test]
fn hosts_that_are_set_apart_are_counted() {
    let script = "MAYPOLE_HOST=h$RANK exec \"$0\" perf all-reduce --budget 2 --sizes 8";
    let output = maypole("run -n 2 --no-tag-output -- sh -c")
        .args([script, env!("CARGO_BIN_EXE_maypole")])
        .output()
        .unwrap();
    let table = text(&output.stdout);
    assert!(output.status.success(), "{table}{}", text(&output.stderr));
    assert!(table.contains("2 ranks on 2 hosts\n"), "{table}");
    assert!(table.contains("these hosts share clock and cores"), "{table}");
}

#[test]
fn processes_notice_a_call_left_out_in_a_hundred() {
    let output = run("perf all-reduce -n 2 --budget 20 --sizes 8,64K --sabotage 100 --json -");
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    for size in objects(&text(&output.stdout))
        .chunk_by(|a, b| (&a["bytes"], &a["transport"]) == (&b["bytes"], &b["transport"]))
    {
        let wrong: u64 = size.iter().map(|object| object["wrong"].as_u64().unwrap()).sum();
        assert!(wrong > 0, "{size:?}");
    }
}

#[test]
fn draw_shows_the_named_algorithm() {
    let ring = printed("draw reduce-scatter --algorithm ring -n 3");
    assert!(
        ring.starts_with("reduce-scatter by ring, 3 ranks\n") && ring.contains("tmp1 =in1 +=2 ->1"),
        "{ring}"
    );
    let root = printed("draw broadcast --algorithm binomial -n 4 --root 2");
    assert!(root.lines().nth(3).unwrap().contains("in0"), "{root}");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ring.svg");
    printed(&format!("draw all-gather --svg {}", file.display()));
    let svg = std::fs::read_to_string(file).unwrap();
    assert!(svg.starts_with("<svg ") && svg.trim_end().ends_with("</svg>"));
}

#[test]
fn predictions_are_those_of_the_formulas() {
    let line = "simulate all-reduce --algorithm ring -n 4 --bytes 4000 \
                --alpha 5 --beta 0.25 --gamma 0 --windows 1 --json";
    let [ring] = objects(&printed(line)).try_into().unwrap();
    assert_eq!(ring["seconds"], 2.0 * 3.0 * (5.0 + 1000.0 * 0.25));
    assert_eq!(ring["bytes_sent"], serde_json::json!([6000, 6000, 6000, 6000]));
    let table = printed("simulate all-reduce -n 8");
    for algorithm in ["ring", "tree", "one-shot", "two-shot"] {
        assert!(table.contains(algorithm), "{table}");
    }
}

#[test]
fn timelines_are_printed_and_written() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("simulated.json");
    let line =
        format!("simulate all-gather -n 3 -a ring -w 1 --timeline --trace {}", file.display());
    let shown = printed(&line);
    assert!(
        shown.contains("\n# timeline of ring in one window")
            && shown.contains("\nrank 2 sends     |0000"),
        "{shown}"
    );
    let trace: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    let sent =
        |event: &&Value| event["name"].as_str().is_some_and(|name| name.starts_with("send to "));
    assert_eq!(trace["traceEvents"].as_array().unwrap().iter().filter(sent).count(), 3 * 2);

    let output = run("simulate all-gather --trace /nonexistent/file");
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("/nonexistent/file"), "{}", text(&output.stderr));
}

/// A command that uses the built-in costs, and neither reads nor writes the user's file of costs.
fn without_costs(line: &str) -> Command {
    let mut command = maypole(line);
    command.env("MAYPOLE_TUNE", "off");
    command
}

#[test]
fn explain_shows_every_candidate() {
    let output =
        without_costs("explain all-reduce --bytes 64K -n 4 --transport tcp").output().unwrap();
    let shown = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    for part in [
        "all_reduce of 65536 bytes on 4 ranks",
        "6 pairs by tcp",
        "one-shot",
        "ring",
        "chosen",
        "does not implement all_reduce",
        "registered memory: never used, because not all ranks share one board",
    ] {
        assert!(shown.contains(part), "{part} is not in\n{shown}");
    }
    let refused = without_costs("explain barrier --algorithm ring").output().unwrap();
    assert_eq!(refused.status.code(), Some(2));
    assert!(
        text(&refused.stdout)
            .contains("'ring' does not implement barrier; these do: dissemination")
    );
}

/// Streams by verbs have prices of their own.
#[test]
fn explain_predicts_verbs() {
    let shown = |transport: &str| {
        let line = format!("explain all-reduce --bytes 64K -n 4 --transport {transport}");
        text(&without_costs(&line).output().unwrap().stdout)
    };
    let (ib, tcp) = (shown("ib"), shown("tcp"));
    assert!(ib.contains("6 pairs by ib, first 0-1; CUDA: "), "{ib}");
    assert!(tcp.contains("InfiniBand: decided when the ranks join"), "{tcp}");
    let table = |shown: &str| shown.split_once("algorithm").unwrap().1.to_owned();
    assert!(table(&ib) != table(&tcp), "{ib}");
}

#[test]
fn explain_prices_registered_memory() {
    for (bytes, says) in [("8", "memory: not used where"), ("1M", "memory: used where")] {
        let output =
            without_costs(&format!("explain all-reduce -b {bytes} -n 2")).output().unwrap();
        let shown = text(&output.stdout);
        let line = shown.lines().find(|line| line.starts_with("registered memory: "));
        let line = line.unwrap_or_else(|| panic!("{bytes}: no such line in\n{shown}"));
        assert!(line.contains(says) && line.contains(" us to ask all ranks, against "), "{line}");
    }
}

#[test]
fn explain_also_measures_the_call() {
    let output = without_costs("explain all-gather --bytes 1K -n 2 --measure").output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("measured: "), "{}", text(&output.stdout));
}

#[test]
fn costs_are_tuned_kept_and_used() {
    let folder = tempfile::tempdir().unwrap();
    let run = |line: &str| {
        let output = maypole(line).env("XDG_CACHE_HOME", folder.path()).output().unwrap();
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    };
    let file = folder.path().join("maypole/costs");
    let (code, shown, complaint) = run("tune --samples 3 --force");
    if complaint.contains("need two cores") {
        skip::skipped("it needs two cores");
        return;
    }
    assert_eq!(code, Some(0), "{complaint}");
    assert!(shown.contains("tcp: alpha") && shown.contains(&file.display().to_string()), "{shown}");
    assert!(std::fs::read_to_string(&file).unwrap().starts_with("maypole costs 2\n"));
    // A message costs 9 us and a byte nothing, so the algorithm with one hop is best at every size.
    let costs = "maypole costs 2\ntiny 9000000 0 0\nsmall 9000000 0 0\nchunk 9000000 0 0\n\
                 tcp 9000000 0 0\ncopy 9000000 0 0\nswitch 0\nwake 0\n";
    std::fs::write(&file, costs).unwrap();
    let (_, shown, _) = run("explain all-reduce --bytes 32K -n 2");
    assert!(shown.contains("* one-shot"), "{shown}");
    std::fs::write(&file, "maypole costs 2\nnonsense\n").unwrap();
    let (code, _, complaint) = run("explain all-reduce -n 2");
    assert_eq!(code, Some(0));
    assert!(
        complaint.contains(&file.display().to_string()) && complaint.contains("line 2"),
        "{complaint}"
    );
}

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
    assert!(page.contains("</svg>auto</label>"), "the legend names auto");
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
