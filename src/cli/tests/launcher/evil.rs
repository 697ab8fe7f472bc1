//! Hosts whose shell or ssh prints without end, prints nothing, or prints escapes of terminals.

use crate::harness::{Running, complete, eventually};
use crate::hosts::FakeSsh;
use std::path::Path;
use std::time::{Duration, Instant};

/// More than any of these jobs takes, and less than the launcher waits for hosts.
const SOON: Duration = Duration::from_secs(9);

/// 127.0.0.2 is as it should be, and 127.0.0.3 does `script` once it has made the file `begun`.
fn beside(script: &str) -> FakeSsh {
    FakeSsh::new(&format!(
        "case $host in *.3) touch \"$TMPDIR/begun\"; {script};; esac; exec sh -c \"$*\""
    ))
}

const BOTH: &str = "--hosts 127.0.0.2,127.0.0.3";

#[test]
fn a_signal_ends_a_launcher_whose_host_says_nothing_of_use() {
    for script in
        ["exec sleep 1000", "while :; do echo y; sleep 0.2; done", "trap '' TERM; sleep 1000"]
    {
        let ssh = beside(script);
        let options = format!("--lost-after 100 {BOTH}");
        let job = Running::start(ssh.shell(&options, "exit 0"));
        eventually("ssh has begun", || Path::new(&ssh.file("begun")).exists());
        let start = Instant::now();
        job.signal("TERM");
        let (code, lines) = job.end();
        assert_eq!(code, 143, "{script}: {lines:#?}");
        assert!(start.elapsed() < SOON, "{script}: {:?}: {lines:#?}", start.elapsed());
    }
}

#[test]
fn a_host_that_says_nothing_of_use_is_given_up_after_the_time_for_lost_hosts() {
    for script in ["exec sleep 1000", "exec yes", "exec cat /dev/zero", "exec yes >&2"] {
        let ssh = beside(script);
        let start = Instant::now();
        let (code, lines) = complete(ssh.shell(&format!("--lost-after 2 {BOTH}"), "exit 0"));
        assert_eq!(code, 2, "{script}: {lines:#?}");
        let sentence = "127.0.0.3 does not answer within 2s";
        let named = lines.iter().filter(|line| line.contains(sentence));
        assert_eq!(named.count(), 1, "{script}: {lines:#?}");
        // The other one has waited for as long, and has done nothing wrong.
        assert!(!lines.iter().any(|line| line.contains("127.0.0.2")), "{lines:#?}");
        assert!(start.elapsed() < 4 * SOON, "{script}: {:?}", start.elapsed());
    }
}

#[test]
fn a_long_message_of_the_day_keeps_no_host_from_answering() {
    let ssh = beside("i=0; while [ $i -lt 3000 ]; do echo '|motd'; i=$((i+1)); done");
    let (code, lines) = complete(ssh.shell(&format!("--lost-after 100 {BOTH}"), "echo ran"));
    assert_eq!(code, 0, "{lines:#?}");
    assert!(!lines.iter().any(|line| line.contains("motd")), "{lines:#?}");
    assert_eq!(lines.iter().filter(|line| line.ends_with("ran")).count(), 2, "{lines:#?}");
}

#[test]
fn what_a_terminal_obeys_is_quoted_as_an_escape() {
    let says = "printf '\\033[31mEVIL \\342\\200\\256\\n'";
    for script in [
        format!("{says} >&2; exit 3"),
        format!("{says}; exit 3"),
        format!("printf '|\\033[31mEVIL\\n'; {says} >&2; exit 3"),
        "printf 'maypole: \\033[31mEVIL\\n' >&2; exit 3".to_owned(),
    ] {
        let (code, lines) = complete(beside(&script).shell(BOTH, "exit 0"));
        assert_eq!(code, 2, "{script}: {lines:#?}");
        let raw = |line: &&String| line.contains('\u{1b}') || line.contains('\u{202e}');
        assert!(!lines.iter().any(|line| raw(&line)), "{script}: {lines:?}");
        let shown = |line: &String| line.contains("\\u001b[31mEVIL");
        assert!(lines.iter().any(shown), "{script}: {lines:#?}");
    }
}
