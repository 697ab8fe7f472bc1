//! What cannot be started, and why: limits of the system, unknown options, missing programs.

use crate::harness::{complete, maypole, output, run};
use crate::skip;
use std::process::{Command, Stdio};
use std::thread;

#[test]
fn a_job_that_no_machine_can_start_is_refused_with_the_arithmetic() {
    for line in ["run -n 999999999 -- true", "perf -n 999999999 barrier"] {
        let arguments: Vec<&str> = line.split(' ').collect();
        let (code, out, error) = output(maypole(&arguments));
        assert_eq!((code, out.as_str()), (2, ""), "{line}: {error}");
        assert!(error.contains("-n 999999999 needs 2000000062 descriptors"), "{line}: {error}");
    }
}

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

/// `maypole` under limits that `ulimit` sets.
fn under(limits: &str, line: &str) -> Command {
    let mut command = Command::new("sh");
    let script = format!("{limits} && exec \"$0\" {line}");
    command.args(["-c", &script, env!("CARGO_BIN_EXE_maypole")]).stdin(Stdio::null());
    command
}

#[test]
fn more_ranks_than_descriptors_are_refused_with_the_arithmetic() {
    let (code, _, error) = output(under("ulimit -n 200", "run -n 100 -- true"));
    assert_eq!(code, 2, "{error}");
    assert!(error.contains("-n 100 needs 264 descriptors"), "{error}");
    assert!(error.contains("the hard limit is 200"), "{error}");
}

#[test]
fn the_launcher_raises_its_own_limit_of_descriptors_alone() {
    let (code, lines) = complete(under("ulimit -Sn 100", "run -n 20 -- sh -c 'ulimit -Sn'"));
    assert_eq!((code, lines.len()), (0, 20), "{lines:?}");
    assert!(lines.iter().all(|line| line.ends_with("] 100")), "{lines:?}");
}

#[test]
fn a_limit_of_file_sizes_is_an_error_and_kills_nothing() {
    let (code, _, error) = output(under("ulimit -f 0", "run -n 1 -- true"));
    assert_eq!(code, 2, "{error}");
    assert!(error.contains("File too large") && error.contains("ulimit -f"), "{error}");
}

#[test]
fn a_program_that_cannot_be_started_is_named() {
    let (code, _, error) = output(maypole(&["run", "-n", "2", "--", "/no/such/program"]));
    assert!(
        code == 127 && error.contains("`/no/such/program`") && error.contains("No such file"),
        "{code} {error}"
    );
    assert_eq!(error.matches("No such file").count(), 1, "the cause is told once: {error}");
    let (code, _, error) = output(maypole(&["run", "-n", "2", "--", "/etc/passwd"]));
    assert!(code == 126 && error.contains("Permission denied"), "{code} {error}");
    let (code, _, _) = output(maypole(&["run", "-n", "0", "--", "true"]));
    assert_eq!(code, 2);
}

#[test]
fn an_unknown_option_is_refused_and_not_executed() {
    for (arguments, nearest) in [
        (&["run", "-n", "4", "--foo", "--", "true"][..], None),
        (&["run", "--foo", "true"], None),
        (&["run", "-n", "2", "--tag-outptu", "true"], Some("--tag-output")),
        (&["run", "--rank", "2", "true"], Some("--ranks")),
        (&["run", "-n", "2", "-y", "true"], None),
    ] {
        let (code, _, error) = output(maypole(arguments));
        assert_eq!(code, 2, "{arguments:?}: {error}");
        assert!(error.contains("unexpected argument"), "{arguments:?}: {error}");
        if let Some(nearest) = nearest {
            assert!(error.contains(nearest), "{arguments:?}: {error}");
        }
    }
}

#[test]
fn options_of_the_program_are_passed_on() {
    for arguments in [
        &["run", "-n", "1", "echo", "--foo", "-n", "x"][..],
        &["run", "-n", "1", "--", "echo", "--foo", "-n", "x"],
    ] {
        let (code, out, error) = output(maypole(arguments));
        assert_eq!((code, out.as_str()), (0, "--foo -n x\n"), "{arguments:?}: {error}");
    }
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
