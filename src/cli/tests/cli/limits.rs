//! The arguments that commands refuse, and spellings that they accept.

use super::{maypole, objects, printed, run, text};
use std::process::{Command, Stdio};

#[test]
fn contradictions_exit_with_2_and_a_reason() {
    for (line, says) in [
        ("perf --min 64K --max 8", "--min 64K is more than --max 8"),
        ("perf --min 8Q", "or 4K"),
        ("explain scan --transport cuda -n 18446744073709551615", "serve 1 to 64"),
        ("perf -n 3 --root 3", "no rank 3"),
        ("perf --registered -n 1", "no other rank"),
        ("perf sumall", "reduce-scatter"),
        ("perf --threads -n 2 --json /nonexistent/file", "/nonexistent/file"),
        ("draw barrier --algorithm ring", "dissemination"),
        ("draw ballet", "all-to-all"),
        ("draw broadcast -n 0", "1024"),
        ("draw broadcast -n 4 --root 4", "no rank 4"),
        ("draw broadcast -n 18446744073709551615", "must be from 1 to 1024"),
        ("simulate all-reduce -n 1000000000", "must be from 1 to 1024"),
        ("explain all-reduce -n 1000000000", "must be from 1 to 4096"),
        ("verify all-reduce -n 4096 -a two-shot", "do not follow from those of one rank"),
        ("simulate all-reduce --cluster 500xdgx-h100 -a halving-doubling", "too many steps"),
        ("simulate all-to-all --algorithm tree", "pairwise"),
        ("simulate all-reduce --alpha -1", ""),
        ("simulate all-reduce --windows 0", "in 1..=65536"),
        ("perf all-reduce --op xor --type f32", "bits of integers"),
        ("perf --sizes 18446744073709551615", "more than 1024T, the largest size"),
        ("perf --min 16E", "is not a size"),
        ("perf all-reduce --sizes 1T", "all-reduce of 1T needs 12.0T of memory on this host: 4"),
        ("perf all-reduce --sizes 1024T -n 2", "needs 6.0P of memory"),
        ("perf all-reduce --sizes 1T --threads", "each with buffers of 3.0T"),
        ("explain all-reduce -b 18446744073709551615", "the largest size"),
        ("simulate all-reduce -b 18446744073709551615", "the largest size"),
        ("simulate all-reduce --alpha 1e308", "is more than 1e6 seconds"),
        ("simulate all-reduce --beta inf", "is more than 1e6 seconds"),
        ("simulate all-reduce --cluster dgx-a100 --fastest 0", "--fastest"),
        ("simulate all-reduce -n 1024 -a ring --windows 65536", "ask for --windows 1 or fewer"),
        ("topo --cluster 512xdgx-h100", "at most 1024 are shown"),
        ("run -n 0 true", "must be at least 1"),
        ("run -n x true", "is not a number"),
        ("run --hosts a:1:2 true", "neither a host"),
        ("run -n 3 --hosts a,b:1 true", "the hosts have 2"),
        ("run --hostfile /not/there true", "cannot read --hostfile /not/there"),
    ] {
        let output = run(line);
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{line}: {error}");
        assert!(error.contains(says) && !error.contains("panicked"), "{line}: {error}");
    }
}

/// Under every limit of the address space the measurement works or reports missing memory. Low
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

/// A command that only computes accepts the largest size and world. One that needs buffers refuses it.
#[test]
fn the_largest_size_and_the_largest_world_are_priced() {
    for line in [
        "simulate all-reduce -b 1024T -n 16",
        "simulate all-to-all -b 1024T -n 16",
        "simulate all-reduce -b 1024T --cluster dgx-h100",
        "explain all-reduce -b 1024T -n 64",
        "explain all-to-all -b 1024T -n 64",
        "explain reduce-scatter -b 1024T -n 7 --type u8",
        "explain all-reduce -n 4096",
        "simulate all-reduce --cluster 512xdgx-h100 -a recursive-doubling",
        "verify all-to-all -n 4096 -a bruck",
        "verify all-reduce -n 4096 -a recursive-doubling",
        "verify all-reduce -n 4096 -a double-tree",
    ] {
        printed(line);
    }
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

/// Hundreds of ranks are priced with as many windows as a few million events allow.
#[test]
fn a_search_over_windows_ends_in_seconds_and_says_what_it_left_out() {
    let output = run("simulate all-reduce -n 128 -a ring");
    let said = text(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(
        said.contains("note: ring on 128 ranks has 81280 steps: only up to 32 windows"),
        "{said}"
    );
    let refused = run("simulate all-reduce -n 1024 -a ring --windows 2");
    assert!(text(&refused.stderr).contains("ask for --windows 1 or fewer"), "{refused:?}");
    let largest = run("simulate all-reduce -n 1024 -a ring --windows 1");
    assert!(largest.status.success(), "{}", text(&largest.stderr));
}

#[test]
fn a_choice_that_is_not_the_cheapest_says_why() {
    let table = printed("explain reduce -n 8 -b 8");
    let chosen = table.lines().find(|line| line.starts_with('*')).expect("one is chosen");
    let least = |line: &str| -> Option<f64> { line[2..].split_whitespace().nth(3)?.parse().ok() };
    let rows = table.lines().filter(|line| line.starts_with("  ") || line.starts_with('*'));
    let cheapest = rows.filter_map(least).fold(f64::INFINITY, f64::min);
    assert!(least(chosen).expect("a price") > cheapest, "the test needs such a call:\n{table}");
    assert!(chosen.contains("one call and a row of 16 both count"), "{table}");
}

/// Bytes that are no UTF-8 make a variable that is set, for ranks and for the command line.
#[test]
fn a_variable_that_is_no_text_is_not_taken_for_unset() {
    use std::os::unix::ffi::OsStrExt;
    let mut command = maypole("perf all-reduce -n 2 --sizes 8");
    command.env("MAYPOLE_WORLD", std::ffi::OsStr::from_bytes(b"\xff"));
    let output = command.output().expect("it starts");
    let said = text(&output.stderr);
    assert!(!output.status.success() && said.contains("MAYPOLE_WORLD"), "{said}");
}
