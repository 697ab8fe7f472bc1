//! `srun` of a real Slurm: a controller and a node, by Debian's packages on this machine. Runs where
//! `TESTS=all`, and needs root, slurmctld, slurmd, slurm-client and munge.

use crate::{rows, skip};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// The limit of every wait.
const LIMIT: Duration = Duration::from_secs(60);
const PROGRAMS: &[&str] = &["munged", "slurmctld", "slurmd", "srun", "sinfo"];

/// A cluster of Slurm. Dropping it ends its services.
struct Slurm {
    folder: tempfile::TempDir,
    services: Vec<Child>,
}

impl Slurm {
    fn new() -> Result<Self, String> {
        let missing = |program: &&&str| !has(program);
        if let Some(program) = PROGRAMS.iter().find(missing) {
            return Err(format!("{program} is not installed"));
        }
        let folder = tempfile::tempdir().unwrap();
        // munged insists on folders that no other user may write to.
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let mut this = Self { folder, services: Vec::new() };
        this.write_configuration();
        this.start()?;
        Ok(this)
    }

    fn file(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().unwrap().to_owned()
    }

    fn write_configuration(&self) {
        fs::write(self.file("munge.key"), [7; 128]).unwrap();
        fs::set_permissions(self.file("munge.key"), fs::Permissions::from_mode(0o600)).unwrap();
        let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
        let (host, folder) = (host.trim(), self.folder.path().display());
        let text = format!(
            "ClusterName=test\nSlurmctldHost={host}(127.0.0.1)\nSlurmUser=root\nSlurmdUser=root\n\
             AuthType=auth/munge\nAuthInfo=socket={folder}/munge.socket\nCredType=cred/munge\n\
             ProctrackType=proctrack/pgid\nTaskPlugin=task/none\nMpiDefault=none\n\
             SelectType=select/cons_tres\nSwitchType=switch/none\nReturnToService=2\n\
             JobAcctGatherType=jobacct_gather/none\nAccountingStorageType=accounting_storage/none\n\
             StateSaveLocation={folder}/state\nSlurmdSpoolDir={folder}/spool-%n\n\
             SlurmctldPidFile={folder}/ctld.pid\nSlurmdPidFile={folder}/%n.pid\n\
             SlurmctldLogFile={folder}/ctld.log\nSlurmdLogFile={folder}/%n.log\n\
             SlurmctldPort=27817\nSlurmdParameters=config_overrides\n\
             NodeName={host} NodeAddr=127.0.0.1 Port=27818 CPUs=4 State=UNKNOWN\n\
             PartitionName=all Nodes=ALL Default=YES State=UP\n"
        );
        fs::create_dir(self.file("state")).unwrap();
        fs::write(self.file("slurm.conf"), text).unwrap();
    }

    fn start(&mut self) -> Result<(), String> {
        let socket = format!("--socket={}", self.file("munge.socket"));
        let key = format!("--key-file={}", self.file("munge.key"));
        let pid = format!("--pid-file={}", self.file("munge.pid"));
        let seed = format!("--seed-file={}", self.file("munge.seed"));
        let log = format!("--log-file={}", self.file("munge.log"));
        self.serve("munged", &["--foreground", "--force", &socket, &key, &pid, &seed, &log]);
        self.until("munged listens", |this| fs::exists(this.file("munge.socket")).unwrap())?;
        self.serve("slurmctld", &["-D"]);
        self.serve("slurmd", &["-D"]);
        self.until("a node is idle", |this| {
            let output = this.command("sinfo").args(["-h", "-o", "%t"]).output().unwrap();
            String::from_utf8_lossy(&output.stdout).trim() == "idle"
        })
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.env("SLURM_CONF", self.file("slurm.conf")).stdin(Stdio::null());
        command
    }

    fn serve(&mut self, program: &str, arguments: &[&str]) {
        let mut command = self.command(program);
        command.args(arguments).stdout(Stdio::null()).stderr(Stdio::null());
        self.services.push(command.spawn().unwrap());
    }

    fn until(&self, what: &str, holds: impl Fn(&Self) -> bool) -> Result<(), String> {
        let start = Instant::now();
        while !holds(self) {
            if start.elapsed() > LIMIT {
                let log = fs::read_to_string(self.file("ctld.log")).unwrap_or_default();
                return Err(format!("waited for: {what}: {log}").replace('\n', " / "));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    fn srun(&self, options: &str, program: &[&str]) -> Output {
        let mut command = self.command("timeout");
        command.args(["100", "srun"]).args(options.split(' ')).args(program);
        command.env("MAYPOLE_TIMEOUT", "30").output().unwrap()
    }
}

impl Drop for Slurm {
    fn drop(&mut self) {
        for service in self.services.iter_mut().rev() {
            let _ = service.kill();
            let _ = service.wait();
        }
    }
}

fn has(program: &str) -> bool {
    let mut command = Command::new("sh");
    let found = command.args(["-c", "command -v \"$0\"", program]).stdout(Stdio::null()).status();
    found.is_ok_and(|status| status.success())
}

#[test]
fn srun_starts_ranks_that_need_no_configuration() {
    if skip::takes_minutes() {
        return;
    }
    let slurm = match Slurm::new() {
        Ok(slurm) => slurm,
        Err(why) => return skip::skipped(format!("no Slurm here: {why}")),
    };
    let maypole = env!("CARGO_BIN_EXE_maypole");
    let line = "perf all-reduce --sizes 8,64K --iters 3 --json -";
    let words: Vec<&str> = [maypole].into_iter().chain(line.split(' ')).collect();
    for ranks in [1, 2, 4] {
        let output = slurm.srun(&format!("-n {ranks}"), &words);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{ranks} ranks: {said}");
        let rows = rows(&output);
        assert!(!rows.is_empty(), "{ranks} ranks: {said}");
        assert!(rows.iter().all(|row| row["ranks"] == ranks && row["wrong"] == 0), "{rows:?}");
    }
    // A rank that fails ends the step. Slurm returns the largest code of all ranks.
    let script = "[ $SLURM_PROCID = 1 ] && exit 3; exec \"$0\" perf barrier --transport tcp";
    let output = slurm.srun("-n 3 --kill-on-bad-exit=1", &["sh", "-c", script, maypole]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("exit code 3"), "{said}");
}
