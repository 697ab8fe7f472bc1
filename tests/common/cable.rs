//! Two network namespaces joined by a cable: two hosts, from the view of sockets. Needs root, `ip`,
//! `unshare` and `nsenter`, and `tc` to limit the bandwidth.
//!
//! A namespace without a name lives as long as a process in it. In each of these namespaces one
//! process waits for the end of its input. The input ends when the test ends, even by `kill -9`, so
//! nothing remains.
#![allow(dead_code, reason = "not every user of a cable uses all of it")]

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

/// The addresses of the two ends.
pub(crate) const ADDRESSES: [&str; 2] = ["10.231.7.1", "10.231.7.2"];
/// The name of the network interface at both ends.
const CARD: &str = "v0";

/// Two namespaces with a cable between them. Dropping it removes them.
pub(crate) struct Cable {
    hosts: [Child; 2],
}

impl Cable {
    /// Makes the namespaces and the cable. The error is a sentence that names the missing part.
    pub(crate) fn new() -> Result<Self, String> {
        let cable = Self { hosts: [host()?, host()?] };
        let other = cable.hosts[1].id().to_string();
        cable.run(
            0,
            &["ip", "link", "add", CARD, "type", "veth", "peer", "name", CARD, "netns", &other],
        )?;
        for (end, address) in ADDRESSES.iter().enumerate() {
            cable.run(end, &["ip", "addr", "add", &format!("{address}/24"), "dev", CARD])?;
            cable.run(end, &["ip", "link", "set", CARD, "up"])?;
            cable.run(end, &["ip", "link", "set", "lo", "up"])?;
        }
        Ok(cable)
    }

    /// Limits the sending rate of each end to `rate` bits a second.
    pub(crate) fn limit(&self, rate: u64) -> Result<(), String> {
        let rate = format!("{rate}bit");
        // A burst has room for the largest packet that the kernel cuts by itself.
        let limit = [
            "tc", "qdisc", "replace", "dev", CARD, "root", "tbf", "rate", &rate, "burst", "128kb",
            "latency",
        ];
        (0..2).try_for_each(|end| self.run(end, &[&limit[..], &["100ms"]].concat()))
    }

    /// A command that starts `program` at one end.
    pub(crate) fn command(&self, end: usize, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--net", "--target", &self.hosts[end].id().to_string(), program]);
        command
    }

    fn run(&self, end: usize, words: &[&str]) -> Result<(), String> {
        let output = self.command(end, words[0]).args(&words[1..]).stdin(Stdio::null()).output();
        let output = output.map_err(|error| format!("nsenter: {error}"))?;
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        if output.status.success() { Ok(()) } else { Err(format!("{}: {said}", words.join(" "))) }
    }
}

impl Drop for Cable {
    fn drop(&mut self) {
        for host in &mut self.hosts {
            // A process that has ended cannot be killed.
            let _ = host.kill();
            let _ = host.wait();
        }
    }
}

/// A process in a namespace of its own, until its input ends.
fn host() -> Result<Child, String> {
    let mut command = Command::new("unshare");
    // Until it has printed a line, the process may still be in the namespace of this process.
    command.args(["--net", "sh", "-c", "echo there; exec cat"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut host = command.spawn().map_err(|error| format!("unshare: {error}"))?;
    let mut said = String::new();
    let read = BufReader::new(host.stdout.take().expect("it is piped")).read_line(&mut said);
    if read.is_ok() && said.trim() == "there" {
        return Ok(host);
    }
    let output = host.wait_with_output().map_err(|error| format!("unshare: {error}"))?;
    Err(String::from_utf8_lossy(&output.stderr).trim().to_owned())
}
