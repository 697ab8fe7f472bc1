//! `maypole run --hosts` with real ssh: a server of OpenSSH on each host. Needs root and Debian's
//! openssh-server, and is skipped without them.

use crate::harness::{FOREVER, Running, eventually, is_gone};
use crate::network::address;
use crate::{Cluster, skip};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const SERVER: &str = "/usr/sbin/sshd";

/// Hosts with a server each. Dropping it ends the servers.
struct SshCluster {
    cluster: Cluster,
    servers: Vec<Child>,
}

impl SshCluster {
    /// `None`, and a line with the reason, where there can be none.
    fn new(hosts: usize) -> Option<Self> {
        if !Path::new(SERVER).exists() {
            skip::skipped("no sshd here: install openssh-server");
            return None;
        }
        let mut this = Self { cluster: Cluster::new(hosts)?, servers: Vec::new() };
        match this.start_servers(hosts) {
            Ok(()) => Some(this),
            Err(why) => {
                skip::skipped(format!("no sshd here: {why}"));
                None
            }
        }
    }

    fn file(&self, name: &str) -> String {
        self.cluster.folder.path().join(name).to_str().unwrap().to_owned()
    }

    fn start_servers(&mut self, hosts: usize) -> Result<(), String> {
        // The servers drop privileges in this folder.
        fs::create_dir_all("/run/sshd").map_err(|error| format!("/run/sshd: {error}"))?;
        for key in ["host", "user"] {
            let mut keygen = Command::new("ssh-keygen");
            keygen.args(["-q", "-t", "ed25519", "-N", "", "-f", &self.file(key)]);
            let made = keygen.stdin(Stdio::null()).status();
            if !made.is_ok_and(|status| status.success()) {
                return Err("ssh-keygen makes no key".to_owned());
            }
        }
        let options = format!(
            "HostKey {}\nAuthorizedKeysFile {}\nStrictModes no\nUsePAM no\nPidFile none\n\
             PermitRootLogin yes\nMaxStartups 100\n",
            self.file("host"),
            self.file("user.pub")
        );
        fs::write(self.file("sshd"), options).unwrap();
        for host in 0..hosts {
            let mut server = self.cluster.network.command(host, SERVER);
            server.args(["-D", "-f", &self.file("sshd")]).stdin(Stdio::null());
            server.stderr(Stdio::null());
            self.servers.push(server.spawn().map_err(|error| error.to_string())?);
        }
        (0..hosts).try_for_each(|host| self.await_server(host))
    }

    /// The command that reaches a host.
    fn ssh(&self) -> String {
        format!(
            "ssh -F none -i {} -o UserKnownHostsFile=/dev/null -o StrictHostKeyChecking=no",
            self.file("user")
        )
    }

    fn await_server(&self, host: usize) -> Result<(), String> {
        let start = Instant::now();
        loop {
            let line = format!("{} -o BatchMode=yes {} true", self.ssh(), address(host));
            let mut try_once = self.cluster.network.command(0, "sh");
            let output = try_once.args(["-c", &line]).stdin(Stdio::null()).output().unwrap();
            if output.status.success() {
                return Ok(());
            }
            if start.elapsed() > Duration::from_secs(10) {
                return Err(String::from_utf8_lossy(&output.stderr).trim().replace('\n', " / "));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Starts `maypole run` on host 0.
    fn run(&self, options: &str, program: &[&str]) -> Running {
        let mut command = self.cluster.network.command(0, env!("CARGO_BIN_EXE_maypole"));
        command.args(["run", "--ssh", &self.ssh()]).args(options.split(' ')).arg("--");
        command.args(program).env("MAYPOLE_TIMEOUT", "60").env("MAYPOLE_TUNE", "off");
        command.stdin(Stdio::null());
        Running::start(command)
    }

    /// The processes in the namespace of a host, but for the one that holds it.
    fn processes(&self, host: usize) -> Vec<String> {
        let of_server = format!("/proc/{}/ns/net", self.servers[host].id());
        let here = fs::metadata(of_server).unwrap().ino();
        let is_here = |pid: &String| {
            let space = fs::metadata(format!("/proc/{pid}/ns/net"));
            let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
            space.is_ok_and(|space| space.ino() == here) && name.trim() != "cat"
        };
        let entries = fs::read_dir("/proc").unwrap().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        let numbers = names.filter(|name| name.parse::<u32>().is_ok());
        numbers.filter(is_here).collect()
    }
}

impl Drop for SshCluster {
    /// Ends also the servers of sessions whose client was cut off.
    fn drop(&mut self) {
        for host in 0..self.servers.len() {
            kill(&self.processes(host));
        }
        for server in &mut self.servers {
            let _ = server.kill();
            let _ = server.wait();
        }
    }
}

#[track_caller]
fn eventually_gone(processes: &[String]) {
    for process in processes {
        let line = fs::read_to_string(format!("/proc/{process}/cmdline")).unwrap_or_default();
        let what = format!("{process} is gone: {}", line.replace('\0', " "));
        eventually(&what, || is_gone(process));
    }
}

fn kill(processes: &[String]) {
    // Some may have ended because another one has.
    let _ =
        Command::new("kill").args(["-s", "KILL"]).args(processes).stderr(Stdio::null()).status();
}

fn hosts(slots: &[usize]) -> String {
    let words = slots.iter().enumerate().map(|(host, slots)| format!("{}:{slots}", address(host)));
    format!("--hosts {}", words.collect::<Vec<_>>().join(","))
}

#[test]
fn ranks_of_three_hosts_measure_over_real_ssh_with_a_slow_link_among_them() {
    let Some(hosts_of) = SshCluster::new(3) else { return };
    // The third host sends slowly and receives at full speed.
    let mut slow = hosts_of.cluster.network.command(2, "tc");
    slow.args("qdisc replace dev v0 root tbf rate 80mbit burst 128kb latency 100ms".split(' '));
    if !slow.status().unwrap().success() {
        return skip::skipped("no slow links here: tc failed");
    }
    let line = "maypole perf all-reduce --transport tcp --sizes 8,256K --iters 3 --json -";
    let words: Vec<&str> = line.split(' ').collect();
    let job = hosts_of.run(&format!("--no-tag-output {}", hosts(&[1, 2, 1])), &words);
    let (code, lines) = job.end();
    assert_eq!(code, 0, "{lines:#?}");
    let rows: Vec<serde_json::Value> =
        lines.iter().filter_map(|line| serde_json::from_str(line).ok()).collect();
    assert!(!rows.is_empty(), "{lines:#?}");
    assert!(rows.iter().all(|row| row["ranks"] == 4 && row["wrong"] == 0), "{rows:?}");
}

/// Starts ranks on two hosts that wait, and returns the processes of the second host.
fn waiting(hosts_of: &SshCluster, options: &str) -> (Running, Vec<String>) {
    let script = format!("echo @ready; exec sleep {FOREVER}");
    let options = format!("{}{options}", hosts(&[1, 2]));
    let job = hosts_of.run(&options, &["sh", "-c", &script]);
    (0..3).for_each(|_| drop(job.wait_for("@ready")));
    let server = hosts_of.servers[1].id().to_string();
    let processes = hosts_of.processes(1).into_iter().filter(|pid| *pid != server).collect();
    (job, processes)
}

#[test]
fn a_job_ends_with_its_ssh_servers_its_hosts_and_its_network() {
    let Some(hosts_of) = SshCluster::new(2) else { return };
    let lost = |job: Running| {
        let (code, lines) = job.end();
        assert_eq!(code, 255, "{lines:#?}");
        let part = format!("the connection to {} was lost", address(1));
        assert!(lines.iter().any(|line| line.contains(&part)), "{lines:#?}");
    };

    // The servers of the session, and nothing else.
    let (job, processes) = waiting(&hosts_of, "");
    let is_server = |pid: &&String| {
        fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.trim() == "sshd")
    };
    let servers: Vec<String> = processes.iter().filter(is_server).cloned().collect();
    assert!(!servers.is_empty() && servers.len() < processes.len(), "{processes:?}");
    kill(&servers);
    lost(job);
    eventually_gone(&processes);

    // All that runs on the host.
    let (job, processes) = waiting(&hosts_of, "");
    kill(&processes);
    lost(job);
    eventually_gone(&processes);

    // The launcher.
    let (mut job, processes) = waiting(&hosts_of, "");
    job.child.kill().unwrap();
    eventually_gone(&processes);
    drop(job);

    // The cable.
    let (job, processes) = waiting(&hosts_of, " --lost-after 2");
    hosts_of.cluster.network.unplug(1);
    lost(job);
    let is_no_server = |pid: &&String| !is_server(pid);
    let ranks: Vec<String> = processes.iter().filter(is_no_server).cloned().collect();
    eventually_gone(&ranks);
    hosts_of.cluster.network.plug(1);
}

#[test]
fn a_host_that_ssh_cannot_reach_is_said_with_what_ssh_says() {
    let Some(hosts_of) = SshCluster::new(2) else { return };
    let job = hosts_of.run(&format!("--hosts {},10.231.7.77", address(0)), &["true"]);
    let (code, lines) = job.end();
    assert_eq!(code, 2, "{lines:#?}");
    let said = lines.iter().find(|line| line.contains("10.231.7.77 cannot be reached: ssh: "));
    assert!(said.is_some_and(|said| said.contains("try `ssh 10.231.7.77`")), "{lines:#?}");
    // Rank 0 gets an address that the other host cannot reach.
    let options = format!("{} --address 10.231.99.1", hosts(&[1, 1]));
    let (code, lines) = hosts_of.run(&options, &["true"]).end();
    assert_eq!(code, 2, "{lines:#?}");
    let part = format!("{} cannot reach rank 0's host {} at 10.231.99.1", address(1), address(0));
    assert!(lines.iter().any(|line| line.contains(&part)), "{lines:#?}");
}
