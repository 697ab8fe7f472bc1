//! The limit of a user's processes, and the cores of ranks.

use crate::harness::{output, run};
use crate::skip;
use std::process::{Command, Stdio};
use std::thread;

#[test]
fn the_limit_of_a_user_is_named_and_nothing_is_left() {
    let start = |ranks: &str, program: &str| {
        let mut command = Command::new("setpriv");
        let script = format!("ulimit -u 30 && exec \"$0\" run -n {ranks} -- {program}");
        command.args(["--reuid", "65534", "--clear-groups", "bash", "-c", &script]);
        command.arg(env!("CARGO_BIN_EXE_maypole")).stdin(Stdio::null());
        command
    };
    match start("2", "true").output() {
        Ok(able) if able.status.success() => {}
        Ok(unable) => return skip::skipped(String::from_utf8_lossy(&unable.stderr)),
        Err(error) => return skip::skipped(format!("setpriv: {error}")),
    }
    let (code, _, error) = output(start("50", "sleep 600"));
    assert_eq!(code, 126, "{error}");
    assert!(
        error.contains("no process or thread is left") && error.contains("`ulimit -u`"),
        "{error}"
    );
}

#[test]
fn ranks_divide_the_cores() {
    let cores = thread::available_parallelism().unwrap().get();
    let seen = |options: &str| {
        let output = run(options, "nproc").output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        text.lines().map(|line| line.parse().unwrap()).collect::<Vec<usize>>()
    };
    let crowded = cores + 1;
    assert_eq!(seen(&format!("-n {crowded} --no-tag-output")), vec![1; crowded]);
    assert_eq!(seen("-n 1 --bind core"), [1]);
    assert_eq!(seen(&format!("-n {cores} --no-tag-output")), vec![1; cores]);
    let all = Command::new("nproc").output().unwrap();
    let all: usize = String::from_utf8(all.stdout).unwrap().trim().parse().unwrap();
    assert_eq!(seen(&format!("-n {crowded} --no-tag-output --bind none")), vec![all; crowded]);
    assert_eq!(seen("-n 1"), [all]);
}

/// More ranks than the cores that this process may use.
#[test]
fn ranks_outnumber_the_cores_of_a_set() {
    for line in ["run -n 4 --bind core -- true", "perf barrier -n 4 --iters 2"] {
        let mut command = Command::new("taskset");
        command.args(["-c", "0", env!("CARGO_BIN_EXE_maypole")]).args(line.split(' '));
        command.stdin(Stdio::null());
        match command.output() {
            Err(_) => return skip::skipped("taskset is not installed"),
            Ok(output) => {
                let error = String::from_utf8_lossy(&output.stderr);
                assert!(output.status.success(), "{line}: {error}");
            }
        }
    }
}
