//! `maypole perf --transport cuda` over the fake driver.

use super::text;
use crate::fake_gpu::FakeDriver;
use std::process::{Command, Output};

/// Runs `command` over the fake driver and returns its output. `None` if there is no compiler.
fn over_fake_driver(command: &mut Command) -> Option<Output> {
    let driver = FakeDriver::get()?;
    // Whatever the machine's own GPUs are used for.
    command.env("CUDA_VISIBLE_DEVICES", "0,1,2,3,4,5,6,7");
    Some(driver.set(command).output().expect("the program starts"))
}

fn said(output: &Output) -> String {
    text(&output.stdout) + &text(&output.stderr)
}

fn perf(arguments: &[&str]) -> Option<String> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_maypole"));
    command.env("MAYPOLE_CUDA_MAILBOXES", "peer");
    command.args(["perf", "--transport", "cuda", "--budget", "1"]).args(arguments);
    let said = said(&over_fake_driver(&mut command)?);
    assert!(said.contains("#wrong total: 0"), "{said}");
    Some(said)
}

/// Ranks that are processes reach one another's mailboxes by handles.
#[test]
fn perf_measures_every_collective_between_processes_emulated() {
    perf(&["-n", "2", "--sizes", "8,50K", "all"]);
    perf(&["-n", "4", "--sizes", "50K", "all-reduce"]);
}

#[test]
fn perf_measures_ranks_that_are_threads_emulated() {
    perf(&["-n", "3", "--threads", "--sizes", "1M", "--type", "bf16", "all-reduce"]);
}

/// Messages go from GPU to GPU: of two ranks, of several concurrent pairs, and in rings.
#[test]
fn perf_measures_messages_between_gpus_emulated() {
    crate::skip::takes_turns!(2);
    let said = perf(&["-n", "2", "--sizes", "8,300K", "p2p", "sendrecv", "exchange"]);
    let Some(said) = said else { return };
    for test in ["latency", "bandwidth", "bidirectional", "sendrecv", "exchange"] {
        assert!(said.contains(&format!("# {test} over cuda")), "{said}");
    }
    perf(&["-n", "3", "--threads", "--sizes", "5000", "p2p", "sendrecv", "exchange"]);
    let matrix = perf(&["-n", "3", "--threads", "--sizes", "8", "latency", "--pairs", "all"]);
    assert!(matrix.unwrap_or_default().contains("# latency of 8 bytes over cuda"));
}

/// A call that is left out gives wrong bytes.
#[test]
fn a_message_between_gpus_that_is_left_out_is_noticed_emulated() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_maypole"));
    let line = "perf latency bandwidth bidirectional exchange --transport cuda --threads -n 2 \
                --sizes 64 --iters 10 --sabotage 5 --json -";
    let Some(output) = over_fake_driver(command.args(line.split_whitespace())) else { return };
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(said(&output).contains("elements were wrong"), "{}", said(&output));
    let rows = super::objects(&text(&output.stdout));
    assert_eq!(rows.len(), 4);
    assert!(rows.iter().all(|row| row["wrong"].as_u64().unwrap() > 0), "{rows:?}");
}

/// Without a driver, the error is `CUDA unavailable: no driver`.
#[test]
fn perf_without_a_driver_says_why() {
    if maypole::cuda::driver().is_ok() {
        return crate::skip::skipped("there is a driver");
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_maypole"));
    command.args(["perf", "--transport", "cuda", "--threads", "-n", "2", "all-reduce"]);
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(said(&output).contains("CUDA unavailable: no driver"), "{}", said(&output));
}
