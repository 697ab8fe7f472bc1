//! Variables of maypole's own that are misspelt, or whose values cannot be read.

use crate::spawn::{World, process, say};
use maypole::world::bootstrap::JoinConfig;
use maypole::{Communicator, Transport};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::process::Output;
use std::time::Duration;

/// A process of a test of this file, which joins twice, or once to tell what is on.
pub(crate) fn rank_process(role: &str) {
    if role == "switches" {
        return match Communicator::from_env() {
            Ok(comm) => say("on", format!("{} {}", comm.is_deterministic(), comm.is_encrypted())),
            Err(error) => say("refused", error),
        };
    }
    for _ in 0..2 {
        match Communicator::from_env() {
            Ok(comm) => comm.close().unwrap(),
            Err(error) => panic!("{error}; retryable: {}", error.is_retryable()),
        }
    }
}

/// A process that joins a world of itself, with one variable set.
fn alone(variable: &str, value: &OsStr) -> Output {
    process("variables", "alone", &[]).env(variable, value).output().unwrap()
}

#[test]
fn a_misspelt_variable_is_told_once_with_the_nearest_name() {
    let output = alone("MAYPOLE_TIMOUT", "5".as_ref());
    assert!(output.status.success(), "{output:?}");
    let error = String::from_utf8(output.stderr).unwrap();
    let told: Vec<&str> = error.lines().filter(|line| line.contains("MAYPOLE_")).collect();
    let expected = "maypole: there is no variable MAYPOLE_TIMOUT; it is ignored (did you mean \
                    MAYPOLE_TIMEOUT?)";
    assert_eq!(told, [expected], "{error}");
}

#[test]
fn a_value_that_cannot_be_read_is_an_error_with_the_variable_and_what_it_may_be() {
    let not_unicode = OsStr::from_bytes(b"\xff");
    for (variable, value, told) in [
        ("MAYPOLE_PROGRAM_MEMORY", "-5".as_ref(), "'-5' is no number of bytes like 67108864"),
        ("MAYPOLE_PROGRAM_MEMORY", not_unicode, "was not valid unicode"),
        ("MAYPOLE_PROGRAM_MEMORY", "64M".as_ref(), "'64M' is no number of bytes"),
        ("MAYPOLE_TRANSPORT", "pigeon".as_ref(), "use auto, shm, tcp or ib"),
        ("MAYPOLE_DATA_PORTS", "9-1".as_ref(), "'9-1' is no range of ports"),
        ("MAYPOLE_IB_PORT", "0".as_ref(), "'0' is no number from 1 to 254"),
        ("MAYPOLE_IB_GID_INDEX", "256".as_ref(), "'256' is no number from 0 to 255"),
        ("MAYPOLE_IB_SERVICE_LEVEL", "16".as_ref(), "'16' is no number from 0 to 15"),
        ("MAYPOLE_IB_TRAFFIC_CLASS", "low".as_ref(), "'low' is no number from 0 to 255"),
        ("MAYPOLE_IB_PKEY_INDEX", "-1".as_ref(), "'-1' is no number from 0 to 65535"),
        ("MAYPOLE_IB_TIMEOUT", "0".as_ref(), "'0' is no number from 1 to 31"),
        ("MAYPOLE_IB_RETRIES", "8".as_ref(), "'8' is no number from 0 to 7"),
        ("MAYPOLE_LOG", "loud".as_ref(), "none of error, warn"),
    ] {
        let output = alone(variable, value);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{variable}={value:?}");
        let is_told = |line: &str| line.contains(variable) && line.contains(told);
        assert!(error.lines().any(is_told), "{variable}={value:?}: {error}");
        assert!(error.contains("retryable: false"), "{variable}={value:?}: {error}");
    }
}

/// The deterministic mode and encryption are on or off on all ranks.
#[test]
fn a_switch_is_equal_on_all_ranks_or_they_do_not_join() {
    for (variable, on, unset) in
        [("MAYPOLE_DETERMINISTIC", "true false", ""), ("MAYPOLE_ENCRYPT", "false true", "0")]
    {
        let world = World::new("switches", 2);
        let is_set_on = if unset == "0" { 1..2 } else { 0..2 };
        let off = is_set_on.fold(world, |world, rank| world.set_of(rank, variable, 0));
        let unlike = World::new("switches", 2).set_of(1, variable, 1).set("MAYPOLE_TIMEOUT", 20);
        let unread = format!("{variable}: 'yes' is neither 0 nor 1");
        let differ =
            format!("{variable} is '{unset}' on rank 0 and '1' on rank 1; make them equal");
        for (world, word, told) in [
            (off, "on", "false false"),
            (World::new("switches", 2).set(variable, 1), "on", on),
            (World::new("switches", 2).set(variable, "yes"), "refused", &unread),
            (unlike, "refused", &differ),
        ] {
            for ended in world.set("MAYPOLE_TRANSPORT", "tcp").start().succeed() {
                assert!(ended.said(word).concat().contains(told), "{told}: {ended:?}");
            }
        }
    }
}

/// A program that retries while it may succeed ends.
#[test]
fn a_setting_that_cannot_become_right_by_itself_is_not_retryable() {
    for (variable, value) in [
        ("MAYPOLE_RANK", "0"),
        ("MAYPOLE_TIMEOUT", "soon"),
        ("MAYPOLE_JOB_KEY", "short"),
        ("MAYPOLE_JOB_KEY_FILE", "/dev/null/key"),
        ("MAYPOLE_STATUS_SIGNAL", "NOSUCH"),
    ] {
        let output = alone(variable, value.as_ref());
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(error.contains("retryable: false"), "{variable}={value}: {error}");
    }
    let at = |world, address: &str| JoinConfig {
        ports: vec![1],
        join_timeout: Duration::from_millis(50),
        ..JoinConfig::new(1, world, address)
    };
    let retryable =
        |config| Communicator::join(config, Transport::Auto).unwrap_err().is_retryable();
    assert!(!retryable(at(1, "127.0.0.1")), "there is no rank 1 of 1");
    assert!(!retryable(at(usize::MAX, "127.0.0.1")), "no world is as large");
    assert!(retryable(at(2, "127.0.0.1")), "rank 0 may come");
}

/// Shared memory cannot join ranks of two hosts, however often they try.
#[test]
fn a_transport_that_cannot_serve_the_ranks_is_not_retryable() {
    let job = format!("two hosts {}", std::process::id());
    let rank = |rank: usize| {
        let host = Some(format!("host-{rank}"));
        let config = JoinConfig::new(rank, 2, "127.0.0.1").with_job(&job);
        let config = JoinConfig { host, ..config };
        let error = Communicator::join(config, Transport::Shm).unwrap_err();
        assert!(error.to_string().contains("shm was asked for"), "{error}");
        assert!(!error.is_retryable(), "{error}");
    };
    std::thread::scope(|threads| {
        threads.spawn(|| rank(1));
        rank(0);
    });
}
