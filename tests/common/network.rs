//! Two or more hosts, from the view of sockets: network namespaces that a switch joins. Needs `ip`,
//! `unshare` and `nsenter`, and root or unprivileged user namespaces; a limit of bandwidth needs
//! `tc`.
//!
//! A namespace without a name lives as long as a process in it. In each of these namespaces one
//! process waits for the end of its input. The input ends when the test ends, even by `kill -9`, so
//! nothing remains.
#![allow(dead_code, reason = "not every user of a network uses all of it")]

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// The network that every host is on: `10.231.7.1` is host 0. The interface is `v0`.
pub(crate) const MAIN: &str = "10.231.7";
/// A second network of all hosts. The interface is `v1`.
pub(crate) const OTHER: &str = "10.231.8";

/// The IPv4 address of a host on the main network.
pub(crate) fn address(host: usize) -> String {
    format!("{MAIN}.{}", host + 1)
}

/// The IPv6 address of a host on the main network.
pub(crate) fn address6(host: usize) -> String {
    format!("fd00:231::{}", host + 1)
}

/// Hosts with a switch between them. Dropping it removes them.
pub(crate) struct Network {
    switch: Child,
    hosts: Vec<Child>,
    /// The carrier of the packets, if hosts are apart.
    carrier: Option<Child>,
    /// True if the namespaces belong to a user namespace that the switch has made.
    rootless: bool,
}

impl Network {
    /// Makes the hosts, each with an interface on both networks, and with IPv4 and IPv6 addresses.
    /// The error is a sentence that names the missing part.
    pub(crate) fn new(hosts: usize) -> Result<Self, String> {
        let mut network = Self::of_switch()?;
        for bridge in ["b0", "b1"] {
            network.in_switch(&["ip", "link", "add", bridge, "type", "bridge"])?;
            network.in_switch(&["ip", "link", "set", bridge, "up"])?;
        }
        for host in 0..hosts {
            network.add(host)?;
        }
        Ok(network)
    }

    /// Makes hosts that are apart: each packet takes `delay` from one to another. They have the main network alone,
    /// without IPv6. `program` is `delay.c`, [compiled](compile_carrier).
    pub(crate) fn apart(hosts: usize, delay: Duration, program: &Path) -> Result<Self, String> {
        let mut network = Self::of_switch()?;
        let (program, count) = (program.to_str().unwrap_or_default(), hosts.to_string());
        let mut command = network.enter(&network.switch, &[program, &count]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let carrier = started(&mut command, "ready")?;
        network.carrier = Some(carrier);
        for host in 0..hosts {
            let mut command = network.enter(&network.switch, &["unshare"]);
            let inside = namespace(command.arg("--net"))?;
            let (id, device) = (inside.id().to_string(), format!("t{host}"));
            network.hosts.push(inside);
            network.in_switch(&["ip", "link", "set", &device, "netns", &id])?;
            network.run(host, &["ip", "link", "set", &device, "name", "v0"])?;
            let v4 = format!("{}/24", address(host));
            network.run(host, &["ip", "addr", "add", &v4, "dev", "v0"])?;
            // Few long packets: a hop costs time, not a processor. A device that is full would drop them.
            let up = "ip link set v0 mtu 60000 txqueuelen 10000 up";
            network.run(host, &up.split(' ').collect::<Vec<_>>())?;
            network.run(host, &["ip", "link", "set", "lo", "up"])?;
            network.tell(&format!("delay {host} {}", delay.as_micros() / 2));
        }
        Ok(network)
    }

    /// Sends a line to the carrier of the packets: see `delay.c`.
    pub(crate) fn tell(&mut self, line: &str) {
        let carrier = self.carrier.as_mut().expect("hosts are apart");
        writeln!(carrier.stdin.as_mut().expect("it is piped"), "{line}").unwrap();
    }

    fn of_switch() -> Result<Self, String> {
        let (switch, rootless) = match namespace(Command::new("unshare").arg("--net")) {
            Ok(switch) => (switch, false),
            Err(_) => {
                let mut command = Command::new("unshare");
                (namespace(command.args(["--user", "--map-root-user", "--net"]))?, true)
            }
        };
        Ok(Self { switch, hosts: Vec::new(), carrier: None, rootless })
    }

    fn add(&mut self, host: usize) -> Result<(), String> {
        // Within the user namespace of the switch, so that cables can lead from one to the other.
        let mut command = self.enter(&self.switch, &["unshare"]);
        self.hosts.push(namespace(command.arg("--net"))?);
        let id = self.hosts[host].id().to_string();
        for (number, network) in [MAIN, OTHER].into_iter().enumerate() {
            let port = format!("p{host}-{number}");
            let card = format!("v{number}");
            let bridge = format!("b{number}");
            self.in_switch(&[
                "ip", "link", "add", &port, "type", "veth", "peer", "name", &card, "netns", &id,
            ])?;
            self.in_switch(&["ip", "link", "set", &port, "master", &bridge])?;
            self.in_switch(&["ip", "link", "set", &port, "up"])?;
            let v4 = format!("{network}.{}/24", host + 1);
            self.run(host, &["ip", "addr", "add", &v4, "dev", &card])?;
            // No address of the kernel's own choice.
            self.run(host, &["ip", "link", "set", &card, "addrgenmode", "none"])?;
            if number == 0 {
                let v6 = format!("{}/64", address6(host));
                self.run(host, &["ip", "addr", "add", &v6, "dev", &card, "nodad"])?;
                // Duplicates cannot exist, and looking for them takes a second.
                let link_local = format!("fe80::231:{}/64", host + 1);
                self.run(host, &["ip", "addr", "add", &link_local, "dev", &card, "nodad"])?;
            }
            self.run(host, &["ip", "link", "set", &card, "up"])?;
        }
        self.run(host, &["ip", "link", "set", "lo", "up"])
    }

    /// Limits the sending rate of each host on the main network to `rate` bits a second.
    pub(crate) fn limit(&self, rate: u64) -> Result<(), String> {
        let rate = format!("{rate}bit");
        // A burst has room for the largest packet that the kernel cuts by itself.
        let limit = [
            "tc", "qdisc", "replace", "dev", "v0", "root", "tbf", "rate", &rate, "burst", "128kb",
            "latency", "100ms",
        ];
        (0..self.hosts.len()).try_for_each(|host| self.run(host, &limit))
    }

    /// Joins two hosts by a cable of their own, over which each sends at most `rate` bits a second. All
    /// that they send one another on the main network takes it.
    pub(crate) fn join_slowly(&self, a: usize, b: usize, rate: u64) -> Result<(), String> {
        let (rate, peer) = (format!("{rate}bit"), self.hosts[b].id().to_string());
        let card = format!("s{a}-{b}");
        self.run(
            a,
            &["ip", "link", "add", &card, "type", "veth", "peer", "name", &card, "netns", &peer],
        )?;
        for (here, there) in [(a, b), (b, a)] {
            let (to, from) = (format!("{}/32", address(there)), address(here));
            self.run(here, &["ip", "link", "set", &card, "up"])?;
            self.run(here, &["ip", "route", "add", &to, "dev", &card, "src", &from])?;
            let limit = ["tc", "qdisc", "replace", "dev", &card, "root", "tbf", "rate", &rate];
            self.run(here, &[&limit[..], &["burst", "128kb", "latency", "100ms"]].concat())?;
        }
        Ok(())
    }

    /// Pulls the cable of a host on the main network.
    pub(crate) fn unplug(&self, host: usize) {
        self.in_switch(&["ip", "link", "set", &format!("p{host}-0"), "down"]).unwrap();
    }

    /// Puts the cable back.
    pub(crate) fn plug(&self, host: usize) {
        self.in_switch(&["ip", "link", "set", &format!("p{host}-0"), "up"]).unwrap();
    }

    /// A command that starts `program` on a host.
    pub(crate) fn command(&self, host: usize, program: &str) -> Command {
        self.enter(&self.hosts[host], &[program])
    }

    fn enter(&self, namespace: &Child, program: &[&str]) -> Command {
        let mut command = Command::new("nsenter");
        if self.rootless {
            command.args(["--preserve-credentials", "--user"]);
        }
        command.args(["--net", "--target", &namespace.id().to_string()]).args(program);
        command
    }

    fn in_switch(&self, words: &[&str]) -> Result<(), String> {
        complete(self.enter(&self.switch, words), words)
    }

    fn run(&self, host: usize, words: &[&str]) -> Result<(), String> {
        complete(self.command(host, words[0]).args(&words[1..]), words)
    }
}

fn complete(
    mut command: impl std::borrow::BorrowMut<Command>,
    words: &[&str],
) -> Result<(), String> {
    let output = command.borrow_mut().stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("nsenter: {error}"))?;
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    if output.status.success() { Ok(()) } else { Err(format!("{}: {said}", words.join(" "))) }
}

impl Drop for Network {
    fn drop(&mut self) {
        for process in self.carrier.iter_mut().chain(&mut self.hosts).chain([&mut self.switch]) {
            // A process that has ended cannot be killed.
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

/// A process that `unshare` starts in a namespace of its own, until its input ends.
fn namespace(unshare: &mut Command) -> Result<Child, String> {
    // Until it has printed a line, the process may still be in the namespace of this process.
    unshare.args(["sh", "-c", "echo there; exec cat"]);
    unshare.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    started(unshare, "there")
}

/// Starts a process, and returns it once it has printed this line.
fn started(command: &mut Command, line: &str) -> Result<Child, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let mut process = command.spawn().map_err(|error| format!("{name}: {error}"))?;
    let mut said = String::new();
    let read = BufReader::new(process.stdout.take().expect("it is piped")).read_line(&mut said);
    if read.is_ok() && said.trim() == line {
        return Ok(process);
    }
    let output = process.wait_with_output().map_err(|error| format!("{name}: {error}"))?;
    Err(String::from_utf8_lossy(&output.stderr).trim().to_owned())
}

/// Compiles `delay.c` to a program in `folder`. The error names the missing part.
pub(crate) fn compile_carrier(source: &Path, folder: &Path) -> Result<std::path::PathBuf, String> {
    let program = folder.join("delay");
    let mut command = Command::new("cc");
    command.args(["-O2", "-Wall", "-Wextra", "-Werror", "-o"]).arg(&program).arg(source);
    complete(command, &["cc", "delay.c"]).map(|()| program)
}
