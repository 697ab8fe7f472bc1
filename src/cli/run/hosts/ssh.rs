//! Starts the launcher of a host, and explains its silence.

use std::path::Path;
use std::process::{Child, Command};
use std::time::Duration;

use crate::process::{self, ProcessEnd};
use anyhow::Result;
use maypole_transports::watch::{Watch, pidfd};
use signal_hook::consts::SIGKILL;

use super::HostOptions;

/// Options for OpenSSH: no prompts; an end if the host is not there.
const OPTIONS: &[&str] = &[
    "-T",
    "-oBatchMode=yes",
    "-oConnectTimeout=10",
    "-oServerAliveInterval=5",
    "-oServerAliveCountMax=3",
];

/// Starts maypole where it is found: at the place of this launcher's own file, by the search path, or
/// where cargo installs it.
const FIND: &str = "for m in \"$0\" maypole \"$HOME/.cargo/bin/maypole\"; do \
                    command -v \"$m\" >/dev/null 2>&1 && exec \"$m\" \"$@\"; done; exit 127";

/// The longest time between the end of ssh's output and its exit.
const SSH_END: Duration = Duration::from_secs(5);

/// The command that starts maypole on `host`, with `arguments`.
pub(super) fn command(options: &HostOptions, host: &str, arguments: &[String]) -> Result<Command> {
    let file = process::this_file()?;
    if is_this_host(host) {
        let mut command = Command::new(file);
        command.args(arguments);
        return Ok(command);
    }
    let mut words = vec![FIND.to_owned(), file.to_string_lossy().into_owned()];
    words.extend(arguments.iter().cloned());
    let words: Vec<String> = words.iter().map(|word| quoted(word)).collect();
    let remote = format!("sh -c {}", words.join(" "));
    let mut command = ssh(options.args.ssh.as_deref());
    command.arg(host).arg(remote);
    Ok(command)
}

/// The program that reaches hosts, with its options. `given` is for the shell, like `GIT_SSH_COMMAND`.
fn ssh(given: Option<&str>) -> Command {
    let Some(given) = given else {
        let mut command = Command::new("ssh");
        command.args(OPTIONS);
        return command;
    };
    let mut command = Command::new("sh");
    command.args(["-c", &format!("{given} \"$@\""), "ssh"]);
    if is_open_ssh(given) {
        command.args(OPTIONS);
    }
    command
}

/// True if a command begins with OpenSSH's client. Another program may lack its options.
fn is_open_ssh(command: &str) -> bool {
    let program = command.split_whitespace().next().unwrap_or_default();
    Path::new(program).file_name().is_some_and(|name| name == "ssh")
}

/// `word` for any shell.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', "'\\''"))
}

/// True for a name of this host. No ssh is needed to start a launcher here.
pub(super) fn is_this_host(host: &str) -> bool {
    let mine = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let mine = mine.trim();
    is_loopback(host) || (!mine.is_empty() && host == mine)
}

/// True for names that mean another host on every host.
pub(super) fn is_loopback(host: &str) -> bool {
    ["localhost", "127.0.0.1", "::1"].contains(&host)
}

/// How ssh ends, which has closed its output; `None` if it had to be killed.
pub(super) fn end_of(child: &Child) -> Option<ProcessEnd> {
    let mut ended = Vec::new();
    if let (Ok(watch), Ok(end)) = (Watch::new(), pidfd(child.id())) {
        let _ = watch.add(&end, 0, false).and_then(|()| watch.wait(&mut ended, SSH_END));
    }
    if ended.is_empty() {
        let _ = process::signal_group(child, SIGKILL);
    }
    let end = process::await_end(child.id()).ok();
    end.filter(|_| !ended.is_empty())
}

/// Why a host cannot be used whose ssh has ended as `end` before its first message, and the
/// remedy. `words` are the last lines of ssh and of the shell.
pub(super) fn explain(host: &str, end: Option<ProcessEnd>, words: &str) -> String {
    let version = env!("CARGO_PKG_VERSION");
    let has = |text: &str| words.contains(text);
    let (what, remedy): (&str, String) = match end {
        Some(ProcessEnd::Exited(127)) => (
            "has no maypole, neither where it is here nor in the search path of ssh",
            format!("install maypole {version} there"),
        ),
        Some(ProcessEnd::Exited(126)) => {
            ("cannot run maypole", format!("install maypole {version} for its processor there"))
        }
        Some(ProcessEnd::Exited(2)) if has("unexpected argument") => {
            ("has another version of maypole", format!("install {version} there"))
        }
        Some(ProcessEnd::Exited(255)) => ("cannot be reached", unreachable_remedy(host, words)),
        _ => ("gave up before it answered", format!("try `ssh {host} maypole --version`")),
    };
    let words = if words.is_empty() { String::new() } else { format!(": {words}") };
    format!("{host} {what}{words}; {remedy}")
}

fn unreachable_remedy(host: &str, words: &str) -> String {
    let remedies = [
        ("Permission denied", "give it a key that asks for no password, as by `ssh-copy-id"),
        ("Host key verification failed", "accept its key once, by `ssh"),
        ("REMOTE HOST IDENTIFICATION", "see whether its key may have changed, then `ssh-keygen -R"),
        ("Could not resolve", "check its name, or name it in ~/.ssh/config and try `ssh"),
    ];
    let found = remedies.iter().find(|(part, _)| words.contains(part));
    format!("{} {host}`", found.map_or("try `ssh", |(_, remedy)| remedy))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_that_does_not_answer_is_explained_with_a_remedy() {
        let exited = |code| Some(ProcessEnd::Exited(code));
        for (end, words, parts) in [
            (exited(127), "", ["b has no maypole", "install maypole"]),
            (
                exited(2),
                "error: unexpected argument '--first' found",
                ["another version", "install"],
            ),
            (
                exited(255),
                "b: Permission denied (publickey).",
                ["be reached: b: P", "ssh-copy-id b"],
            ),
            (exited(255), "Host key verification failed.", ["be reached", "`ssh b`"]),
            (exited(255), "port 22: Connection refused", ["Connection refused; ", "try `ssh b`"]),
            (exited(126), "Exec format error", ["cannot run", "processor"]),
            (Some(ProcessEnd::Killed(9)), "", ["before it answered", "ssh b maypole"]),
        ] {
            let sentence = explain("b", end, words);
            assert!(parts.iter().all(|part| sentence.contains(part)), "{sentence}");
        }
    }

    #[test]
    fn words_are_quoted_for_the_shell_of_the_host() {
        let script = format!("printf %s {}", quoted("a'b $c\""));
        let output = Command::new("sh").args(["-c", &script]).output().unwrap();
        assert_eq!(String::from_utf8(output.stdout).unwrap(), "a'b $c\"");
    }
}
