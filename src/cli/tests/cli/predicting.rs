//! `draw`, `simulate`, `explain` and `tune`: drawings and predictions.

use super::{maypole, objects, printed, run, skip, text};
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

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
fn timelines_are_printed() {
    let shown = printed("simulate all-gather -n 3 -a ring -w 1 --timeline");
    let head = shown.contains("\n# timeline of ring in one window");
    assert!(head && shown.contains("\nrank 2 sends     |0000"), "{shown}");
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
            .contains("'ring' does not implement barrier; these do: one-shot, dissemination")
    );
}

/// Prices and windows are those of a GPU, and no GPU is needed.
#[test]
#[cfg(feature = "cuda")]
fn explain_predicts_gpus() {
    let explain = |line: &str| run(&format!("explain all-reduce --transport cuda -n 4 {line}"));
    let long = text(&explain("--bytes 64M").stdout);
    for part in ["67108864 bytes on 4 ranks, on GPUs", "6 pairs by cuda", "* two-shot", "8388608"] {
        assert!(long.contains(part), "{part} is not in\n{long}");
    }
    assert!(text(&explain("--bytes 8").stdout).contains("* one-shot"));
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

/// Calls of lengths that lie between two of eight in a doubling run by the plan of the longer one, and the
/// prices are its own.
#[test]
fn explain_says_which_length_was_priced() {
    let explained = |line: &str| {
        let output = without_costs(&format!("explain all-reduce -n 2 {line}")).output().unwrap();
        assert!(output.status.success(), "{line}: {}", text(&output.stderr));
        text(&output.stdout)
    };
    let prices = |text: &str| -> Vec<String> {
        let rows = text.lines().skip_while(|line| !line.starts_with("  algorithm"));
        rows.take_while(|line| !line.starts_with("- ")).map(str::to_owned).collect()
    };
    let note = "  chosen and priced as 1048576 bytes, one of eight lengths in a doubling";
    let [odd, round] = ["--bytes 1000000", "--bytes 1M"].map(explained);
    assert!(odd.starts_with("all_reduce of 1000000 bytes on 2 ranks"), "{odd}");
    assert!(odd.contains(note) && !round.contains("priced as"), "{odd}{round}");
    assert_eq!(prices(&odd), prices(&round));
    assert!(prices(&odd).len() > 3, "{odd}");
}

/// Programs that compute on every core until this is dropped.
struct BusyPrograms(Vec<std::process::Child>);

impl BusyPrograms {
    fn start() -> Self {
        let cores = std::thread::available_parallelism().unwrap().get();
        let one = |_| Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
        Self((0..cores).map(one).collect())
    }
}

impl Drop for BusyPrograms {
    fn drop(&mut self) {
        for child in &mut self.0 {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }
}

#[test]
fn tune_saves_nothing_that_other_programs_have_disturbed() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("costs");
    let tune = |options: &str| {
        let line = format!("tune --samples 5 --output {} {options}", file.display());
        let output = maypole(&line).output().unwrap();
        (output.status.code(), text(&output.stderr))
    };
    let (code, said) = tune("");
    if said.contains("need two cores") {
        skip::skipped("it needs two cores");
        return;
    }
    // Other tests may disturb it, and then the output has that reason.
    let is_refused = said.contains("so nothing is saved");
    assert_eq!((code, file.exists()), if is_refused { (Some(2), false) } else { (Some(0), true) });
    let _ = std::fs::remove_file(&file);

    let busy = BusyPrograms::start();
    let (code, said) = tune("");
    assert_eq!((code, file.exists()), (Some(2), false), "{said}");
    assert!(said.contains("other programs took ") && said.contains("was disturbed"), "{said}");
    let (code, said) = tune("--force");
    drop(busy);
    // A busy machine may also measure costs that no machine has, which are never saved.
    let is_none = said.contains("of no machine");
    assert_eq!(
        (code, file.exists()),
        if is_none { (Some(2), false) } else { (Some(0), true) },
        "{said}"
    );
}

#[test]
fn costs_are_tuned_kept_and_used() {
    let folder = tempfile::tempdir().unwrap();
    let run = |line: &str| {
        let output = maypole(line).env("XDG_CACHE_HOME", folder.path()).output().unwrap();
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    };
    let file = folder.path().join("maypole/costs");
    let tune = || run("tune --samples 3 --force");
    let (mut code, mut shown, mut complaint) = tune();
    if complaint.contains("need two cores") {
        skip::skipped("it needs two cores");
        return;
    }
    // Costs that no machine has are refused, and a busy one may measure some.
    for _ in 0..5 {
        if complaint.contains("of no machine") {
            (code, shown, complaint) = tune();
        }
    }
    assert_eq!(code, Some(0), "{complaint}");
    assert!(shown.contains("tcp: alpha") && shown.contains(&file.display().to_string()), "{shown}");
    for transport in ["shm", "tcp"] {
        let verdict = format!("# {transport}: time by the built-in costs / by measured rows");
        assert!(shown.contains(&verdict), "{shown}");
    }
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
fn a_command_that_computes_for_long_says_so() {
    for (line, says) in [
        ("draw all-reduce --algorithm ring -n 1024", "drawing ring on 1024 ranks"),
        ("simulate all-reduce -n 1024", "simulating"),
        ("topo --cluster cpu:4096x1", "classifying the paths between devices"),
    ] {
        let mut child = maypole(line).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let told = lines.find(|line| line.as_ref().is_ok_and(|line| line.ends_with("so far")));
        child.kill().unwrap();
        child.wait().unwrap();
        let told = told.expect("a line of progress").unwrap();
        assert!(told.starts_with(&format!("maypole: {says}")), "{told}");
    }
}
