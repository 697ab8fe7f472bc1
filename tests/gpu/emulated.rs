//! The tests of this folder over the fake driver.

use crate::fake_gpu::FakeDriver;
use crate::skip;
use crate::spawn::say;
use std::process::{Command, Output};

/// Runs `command` over the fake driver and returns its output. `None` if there is no compiler.
fn over_fake_driver(command: &mut Command) -> Option<Output> {
    let driver = FakeDriver::get()?;
    // Independent of the machine's own GPUs.
    command.env("CUDA_VISIBLE_DEVICES", "0,1,2,3,4,5,6,7");
    Some(driver.set(command).output().expect("the program starts"))
}

fn said(output: &Output) -> String {
    let both = [&output.stdout[..], &output.stderr[..]].concat();
    String::from_utf8_lossy(&both).into_owned()
}

/// Runs these tests over the fake driver, whose GPUs ranks take in turn, with mailboxes where
/// `MAYPOLE_CUDA_MAILBOXES` says, on these hosts, and asserts that none is skipped.
#[track_caller]
fn check(tests: &[&str], devices: &str, (mailboxes, hosts): (&str, &str)) {
    let this = std::env::current_exe().unwrap();
    let skipped = tempfile::NamedTempFile::new().unwrap();
    let mut command = Command::new(this);
    command.args(tests).env("SKIPPED_TESTS", skipped.path()).env(crate::DEVICES, devices);
    command.env("MAYPOLE_CUDA_MAILBOXES", mailboxes).env(crate::HOSTS, hosts);
    let Some(output) = over_fake_driver(&mut command) else { return };
    let said = said(&output);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("test result: ok") && !said.contains("ok. 0 passed"), "{said}");
    assert_eq!(std::fs::read_to_string(skipped.path()).unwrap(), "", "a test was skipped");
}

/// All but those of this file, which would start themselves.
const ALL: [&str; 5] = ["calls::", "deaths::", "faults::", "links::", "messages::"];

#[test]
#[ignore = "makes the driver for tests/rdma-vm/test, and says where it is"]
fn the_folder_of_the_driver() {
    say("driver", FakeDriver::get().expect("there is a C++ compiler").library_path());
}

#[test]
fn all_of_these_tests_pass_over_the_fake_driver_emulated() {
    if skip::waits_for_turn(0, 2) {
        return;
    }
    check(&ALL, "1", ("auto", "0"));
    check(&["messages::"], "2", ("auto", "0"));
}

/// Mailboxes are in memory of one host, and then of several.
#[test]
fn these_tests_pass_with_mailboxes_in_memory_of_hosts_emulated() {
    if skip::waits_for_turn(1, 2) {
        return;
    }
    let some = ["calls::chosen", "calls::long", "faults::", "messages::"];
    let cases = [
        (&ALL[..], "host", "0"),
        (&ALL, "auto", "0011"),
        (&some, "auto", "0001"),
        (&some, "auto", "0123"),
    ];
    // In every second turn.
    let mut chosen = skip::every_nth(8, cases.into_iter().flat_map(|case| [case; 2]));
    chosen.dedup();
    for (tests, place, hosts) in chosen {
        check(tests, "1", (place, hosts));
    }
}
