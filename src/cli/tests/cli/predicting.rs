//! `tune`, long computations, pictures of clusters, and schedules of a file that run.

use super::{maypole, objects, printed, skip, text};
use maypole::tuner::{CostTable, Costs};
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

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
        let line = format!("tune --samples 2 --output {} {options}", file.display());
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
    let tune = || run("tune --samples 1 --force");
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
    assert!(std::fs::read_to_string(&file).unwrap().contains("\"measured_on\": \""));
    // A message costs 9 us and a byte nothing, so the algorithm with one hop is best at every size.
    let nine = Costs { alpha: 9_000_000, beta: 0, gamma: 0 };
    let costs =
        CostTable { tiny: nine, small: nine, chunk: nine, tcp: nine, ..CostTable::BUILT_IN };
    std::fs::write(&file, CostTable { switch: 0, wake: 0, ..costs }.to_string()).unwrap();
    let (_, shown, _) = run("explain all-reduce --bytes 32K -n 2");
    assert!(shown.contains("* one-shot"), "{shown}");
    std::fs::write(&file, "{\nnonsense\n").unwrap();
    let (code, _, complaint) = run("explain all-reduce -n 2");
    assert_eq!(code, Some(0));
    assert!(
        complaint.contains(&file.display().to_string()) && complaint.contains("line 2"),
        "{complaint}"
    );
}

#[test]
fn a_command_that_computes_for_long_says_so() {
    crate::skip::takes_turns!(2);
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

#[test]
fn a_picture_shows_every_device_and_ring() {
    for (cluster, named, rings) in
        [("dgx-h100", ["GPU7", "NIC7", "NVSwitch"], 1), ("mi300x", ["GPU0", "NUMA1", "bridge3"], 7)]
    {
        let picture = printed(&format!("topo --cluster {cluster} --svg -"));
        assert!(picture.starts_with("<svg ") && picture.ends_with("</svg>\n"));
        let is_shown = |device: &&str| picture.contains(&format!(">{device}<"));
        assert!(named.iter().all(is_shown), "{picture}");
        assert_eq!(picture.matches("marker-end").count(), rings * 8, "{cluster}");
        let numbers =
            picture.split("=\"").filter_map(|it| it.split('"').next()?.parse::<f64>().ok());
        let outside = numbers.filter(|number| !(-1.0..4000.0).contains(number));
        assert_eq!(outside.collect::<Vec<_>>(), [0.0; 0], "{cluster}");
    }
}

/// The schedules of a file run between threads, and all results are right.
#[test]
fn schedules_of_a_file_are_measured_and_checked() {
    let folder = tempfile::tempdir().unwrap();
    for call in
        ["all-reduce -a ring -n 3", "broadcast -a tree -n 3 --root 1", "gather -n 3 --root 2"]
    {
        let file = folder.path().join("own.toml");
        printed(&format!("draw {call} --save {}", file.display()));
        let line = format!("perf --schedule {} --threads --budget 2 --json -", file.display());
        let all = objects(&printed(&format!("{line} --sizes 8,100K")));
        assert!(all.len() >= 4, "{call}");
        for object in all {
            assert_eq!((&object["wrong"], &object["ranks"]), (&0.into(), &3.into()), "{call}");
            assert_eq!(object["algorithm"], "own");
            assert!(object["predicted_us"].as_f64().is_some_and(|us| us > 0.0), "{object}");
            let name = object["collective"].as_str().unwrap().replace('_', "-");
            assert!(call.starts_with(&name), "{object}");
        }
    }
}
