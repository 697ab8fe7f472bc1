//! `maypole run --hosts` with a program in the place of ssh that runs everything on this machine. The
//! hosts are addresses of the loopback network, by which their ranks reach one another.

#[cfg(feature = "cuda")]
use crate::fake_gpu::FakeDriver;
use crate::harness::{FOREVER, Running, complete, eventually, is_gone, kill, maypole};
use crate::recovery::{AFTER_FIRST, FIRST, within};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

pub(crate) const TWO: &str = "127.0.0.2:2,127.0.0.3:2";

/// Like ssh: the caller's environment is dropped, and the command goes through a shell.
const LOCALLY: &str =
    "exec env -i PATH=\"$PATH\" HOME=/nonexistent TMPDIR=\"$TMPDIR\" sh -c \"$*\"";

/// As well, and when this program is killed, the command lives on with its input at an end.
const BESIDE: &str = "cat | setsid sh -c \"$*\" | cat";

/// A folder with a program that takes the place of ssh.
pub(crate) struct FakeSsh {
    folder: tempfile::TempDir,
}

impl FakeSsh {
    /// `script` finds the host in `host`, and the words of the command in `$*`.
    pub(crate) fn new(script: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let this = Self { folder };
        let text = format!("#!/bin/sh\nhost=$1; shift\n{script}\n");
        fs::write(this.path(), text).unwrap();
        fs::set_permissions(this.path(), fs::Permissions::from_mode(0o700)).unwrap();
        this
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("reach")
    }

    pub(crate) fn file(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().unwrap().to_owned()
    }

    pub(crate) fn run(&self, options: &str, program: &[&str]) -> Command {
        let mut command = maypole(&["run", "--ssh", self.path().to_str().unwrap()]);
        command.args(options.split_whitespace()).arg("--").args(program);
        command.env("TMPDIR", self.folder.path());
        command
    }

    pub(crate) fn shell(&self, options: &str, script: &str) -> Command {
        self.run(options, &["sh", "-c", script])
    }
}

#[track_caller]
fn has(lines: &[String], part: &str) {
    assert!(lines.iter().any(|line| line.contains(part)), "{part:?} is not in {lines:#?}");
}

#[test]
fn ranks_of_two_hosts_know_their_places_and_their_lines_are_tagged() {
    let ssh = FakeSsh::new(LOCALLY);
    let script = "echo $RANK/$WORLD_SIZE $MAYPOLE_LOCAL_RANK/$LOCAL_WORLD_SIZE $MASTER_ADDR $GIVEN; \
                  echo $MAYPOLE_TIMEOUT $PWD >&2";
    let mut command = ssh.shell(&format!("--hosts {TWO} -x GIVEN=word"), script);
    command.env("MAYPOLE_TIMEOUT", "44").current_dir(ssh.folder.path());
    let (code, lines) = complete(command);
    let folder = ssh.folder.path().display();
    let expected = [
        ("[rank 0, 127.0.0.2] ", "0/4 0/2"),
        ("[rank 1, 127.0.0.2] ", "1/4 1/2"),
        ("[rank 2, 127.0.0.3] ", "2/4 0/2"),
        ("[rank 3, 127.0.0.3] ", "3/4 1/2"),
    ];
    let mut expected: Vec<String> = expected
        .iter()
        .flat_map(|(tag, place)| {
            [format!("{tag}{place} 127.0.0.2 word"), format!("{tag}44 {folder}")]
        })
        .collect();
    expected.sort();
    assert_eq!((code, lines), (0, expected));
}

#[test]
fn ranks_of_three_hosts_call_collectives_and_a_host_file_names_them() {
    let ssh = FakeSsh::new(LOCALLY);
    let hosts = ssh.file("hosts");
    fs::write(&hosts, "127.0.0.2 slots=2 # two\n127.0.0.3\n127.0.0.4 slots=4\n").unwrap();
    // `maypole` is the launcher of the host, wherever that lies.
    let line = "maypole perf all-reduce --transport tcp --sizes 1K --iters 3 --json -";
    let words: Vec<&str> = line.split(' ').collect();
    let command = ssh.run(&format!("-n 5 --no-tag-output --hostfile {hosts}"), &words);
    let (code, lines) = complete(command);
    assert_eq!(code, 0, "{lines:#?}");
    let rows: Vec<serde_json::Value> =
        lines.iter().map(|line| serde_json::from_str(line).expect(line)).collect();
    assert!(rows.iter().all(|row| row["ranks"] == 5 && row["wrong"] == 0), "{rows:?}");
    assert!(!rows.is_empty());
}

#[test]
fn the_key_is_in_no_list_of_processes() {
    let ssh = FakeSsh::new(LOCALLY);
    let script = format!("cat /proc/self/fd/$MAYPOLE_JOB_KEY_FD; exec sleep {FOREVER}");
    let job = Running::start(ssh.shell("--hosts 127.0.0.2,127.0.0.3", &script));
    let line = job.wait_for("[rank 1");
    let key = line.split_whitespace().last().unwrap();
    assert_eq!(key.len(), 64, "{line}");
    let mut seen = 0;
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        for file in ["cmdline", "environ"] {
            let Ok(bytes) = fs::read(entry.path().join(file)) else { continue };
            let text = String::from_utf8_lossy(&bytes);
            seen += usize::from(text.contains("--first"));
            assert!(!text.contains(key), "{}/{file}", entry.path().display());
        }
    }
    assert!(seen >= 2, "the launchers of both hosts were looked at");
    job.signal("TERM");
    assert_eq!(job.end().0, 128 + 15);
}

#[test]
fn the_rank_that_failed_first_is_named_with_its_host_and_all_others_end() {
    let ssh = FakeSsh::new(LOCALLY);
    let script = format!("echo pid $$; [ $RANK = 2 ] && exit 3; exec sleep {FOREVER}");
    let (code, lines) = complete(ssh.shell(&format!("--hosts {TWO}"), &script));
    assert_eq!(code, 3, "{lines:#?}");
    has(&lines, "maypole: rank 2 failed first: it exited with code 3 on 127.0.0.3");
    let pids = lines.iter().filter_map(|line| line.split_once(" pid "));
    pids.for_each(|(_, pid)| assert!(is_gone(pid), "{lines:#?}"));
}

#[test]
fn a_signal_reaches_the_ranks_of_all_hosts() {
    let ssh = FakeSsh::new(LOCALLY);
    let script = format!("trap 'echo got; exit 0' TERM; echo ready; sleep {FOREVER} & wait");
    let job = Running::start(ssh.shell(&format!("--hosts {TWO}"), &script));
    (0..4).for_each(|_| drop(job.wait_for("ready")));
    job.signal("TERM");
    let (code, lines) = job.end();
    assert_eq!(code, 128 + 15);
    for tag in ["[rank 0, 127.0.0.2] got", "[rank 3, 127.0.0.3] got", "ranks 0-3"] {
        has(&lines, tag);
    }
}

/// Starts ranks that print the numbers of their process and of its parent, and returns these.
fn tell_processes(ssh: &FakeSsh, options: &str) -> (Running, Vec<[String; 2]>) {
    let script = format!("echo @ $$ $PPID @; exec sleep {FOREVER}");
    let job = Running::start(ssh.shell(options, &script));
    let mut processes: Vec<(String, [String; 2])> = (0..4)
        .map(|_| {
            let line = job.wait_for("@ ");
            let words: Vec<&str> = line.split_whitespace().collect();
            (words[1].to_owned(), [words[4].to_owned(), words[5].to_owned()])
        })
        .collect();
    processes.sort();
    (job, processes.into_iter().map(|process| process.1).collect())
}

fn await_end(processes: &[[String; 2]]) {
    for process in processes.as_flattened() {
        eventually("ranks and their launchers are gone", || is_gone(process));
    }
}

#[test]
fn nothing_is_left_when_the_launcher_is_killed() {
    for script in [LOCALLY, BESIDE] {
        let ssh = FakeSsh::new(script);
        let (job, processes) = tell_processes(&ssh, &format!("--hosts {TWO}"));
        job.signal("KILL");
        await_end(&processes);
    }
}

/// The output of the host's launcher stays open and is read, and silence would be noticed much later.
#[test]
fn a_host_whose_input_ends_stops_its_ranks() {
    let ssh = FakeSsh::new("cat | setsid sh -c \"$*\" | tee -p /dev/null");
    let (job, processes) = tell_processes(&ssh, &format!("--lost-after 3000 --hosts {TWO}"));
    job.signal("KILL");
    await_end(&processes);
}

#[test]
fn the_job_ends_when_a_launcher_of_a_host_or_its_ssh_is_killed() {
    crate::skip::takes_turns!(2);
    // The process group of ssh.
    let ssh = FakeSsh::new(&format!("cut -d' ' -f5 /proc/$$/stat > \"$TMPDIR/$host\"; {BESIDE}"));
    for kills_launcher in [true, false] {
        let (job, processes) = tell_processes(&ssh, &format!("--hosts {TWO}"));
        let victim = match kills_launcher {
            true => processes[3][1].clone(),
            false => {
                let number = fs::read_to_string(ssh.file("127.0.0.3")).unwrap();
                format!("-{}", number.trim())
            }
        };
        kill_group("KILL", &victim);
        let (code, lines) = job.end();
        assert_eq!(code, 255, "{lines:#?}");
        has(&lines, "the connection to 127.0.0.3 was lost");
        has(&lines, "failed first: it was lost on 127.0.0.3");
        await_end(&processes);
    }
}

/// `kill` of a process, or of a group by its number with a minus before it.
fn kill_group(signal: &str, pid: &str) {
    assert!(Command::new("kill").args(["-s", signal, "--", pid]).status().unwrap().success());
}

/// A cut network: both sides live, and nothing arrives.
#[test]
fn a_silent_host_is_lost_and_a_silent_launcher_too() {
    crate::skip::takes_turns!(2);
    let ssh = FakeSsh::new(BESIDE);
    let options = format!("--lost-after 2 --hosts {TWO}");
    let (job, processes) = tell_processes(&ssh, &options);
    kill("STOP", &processes[2][1]);
    let line = job.wait_for("the connection to 127.0.0.3 was lost");
    assert!(line.contains("nothing came for 2s"), "{line}");
    let (code, lines) = job.end();
    assert_eq!(code, 255, "{lines:#?}");
    // Its input has ended meanwhile.
    kill("CONT", &processes[2][1]);
    await_end(&processes);

    let (job, processes) = tell_processes(&ssh, &options);
    job.signal("STOP");
    await_end(&processes);
    job.signal("CONT");
    assert_eq!(job.end().0, 255);
}

/// `maypole perf --hosts` is `maypole run --hosts ... -- maypole perf`, with the table as it is. Both
/// hosts are this machine, where ranks share memory.
#[test]
fn perf_measures_on_several_hosts() {
    let ssh = FakeSsh::new(LOCALLY);
    let perf = |options: &str| {
        let mut command = maypole(&["perf", "--ssh", ssh.path().to_str().unwrap()]);
        command.args(options.split_whitespace()).env("TMPDIR", ssh.folder.path());
        complete(command)
    };
    let what = "all-reduce --sizes 8 --budget 2";
    let (code, lines) = perf(&format!("--hosts {TWO} {what}"));
    assert_eq!(code, 0, "{lines:#?}");
    has(&lines, "# maypole 0.1.0 perf: 4 ranks on 1 host");
    has(&lines, "# #wrong total: 0 in ");
    assert!(lines.iter().all(|line| !line.starts_with("[rank 0")), "{lines:#?}");
    let file = ssh.file("hosts");
    fs::write(&file, "127.0.0.2 slots=1\n127.0.0.3 slots=1 # two\n").unwrap();
    let (code, lines) = perf(&format!("--hostfile {file} latency --sizes 8 --budget 2 --json -"));
    assert_eq!(code, 0, "{lines:#?}");
    has(&lines, "\"test\":\"latency\"");
    assert!(lines.iter().all(|line| line.starts_with('{')), "{lines:#?}");
    // Errors are reported here, before anything is started there.
    for (options, says) in [
        ("--hosts 127.0.0.2:2 -n 3", "-n 3"),
        ("--hosts 127.0.0.2:2 --root 2", "no rank 2"),
        ("--hosts 127.0.0.2:2 --threads", "no threads"),
        ("--address x", "need --hosts"),
    ] {
        let (code, lines) = perf(&format!("{options} {what}"));
        assert_eq!(code, 2, "{options}: {lines:#?}");
        has(&lines, says);
    }
}

/// GPUs of two hosts, over the fake driver.
#[cfg(feature = "cuda")]
#[test]
fn perf_measures_gpus_of_several_hosts_emulated() {
    let Some(driver) = FakeDriver::get() else { return };
    let ssh = FakeSsh::new(&format!(
        "exec env -i PATH=\"$PATH\" HOME=/nonexistent TMPDIR=\"$TMPDIR\" MAYPOLE_HOST=\"$host\" \
         CUDA_VISIBLE_DEVICES=0,1,2,3 LD_LIBRARY_PATH='{}' sh -c \"$*\"",
        driver.library_path()
    ));
    let mut command = maypole(&["perf", "--ssh", ssh.path().to_str().unwrap(), "--hosts", TWO]);
    let what = "--transport cuda all-reduce --sizes 8,300K --budget 2";
    command.args(what.split(' ')).env("TMPDIR", ssh.folder.path());
    let (code, lines) = complete(command);
    assert_eq!(code, 0, "{lines:#?}");
    has(&lines, "# #wrong total: 0 in ");
    has(&lines, "# mailboxes are in memory of the host: the ranks are on several hosts");
    has(&lines, "#  predicted: ");
}

#[test]
fn a_job_starts_again_on_all_hosts() {
    let ssh = FakeSsh::new(LOCALLY);
    let mark = ssh.file("mark");
    let script = format!("[ $RANK = 3 ] || exit 0; [ -e {mark} ] && exit 0; : > {mark}; exit 9");
    let (code, lines) = complete(ssh.shell(&format!("--restarts 1 --hosts {TWO}"), &script));
    assert_eq!(code, 0, "{lines:#?}");
    has(&lines, "starting all ranks again, restart 1 of 1");
}

#[test]
fn the_others_go_on_after_a_failure_on_another_host() {
    let ssh = FakeSsh::new(LOCALLY);
    let script = format!("[ $RANK = 1 ] && {{ {FIRST}; exit 3; }}\n {AFTER_FIRST}");
    let script = within(ssh.folder.path(), &script);
    let options = "--enable-recovery --hosts 127.0.0.2,127.0.0.3";
    let (code, lines) = complete(ssh.shell(options, &script));
    assert_eq!(code, 0, "{lines:#?}");
    has(&lines, "rank 1 exited with code 3 on 127.0.0.3; the others go on");
}

/// Runs `options` with `reach` in the place of ssh, which must be refused in a sentence that has `parts`.
#[track_caller]
fn refused(reach: &str, options: &str, program: &str, code: i32, parts: &[&str]) {
    let ssh = FakeSsh::new(reach);
    let (ended, lines) = complete(ssh.run(options, &[program]));
    assert_eq!(ended, code, "{lines:#?}");
    parts.iter().for_each(|part| has(&lines, part));
    assert!(!lines.iter().any(|line| line.contains("panicked")), "{lines:#?}");
}

#[test]
fn what_is_wrong_with_a_host_is_said_with_a_remedy() {
    let second = |script: &str| format!("[ $host = 127.0.0.3 ] && {{ {script}; }}\n{LOCALLY}");
    let refuse = |script: &str, parts: &[&str]| {
        refused(&second(script), &format!("--hosts {TWO}"), "true", 2, parts);
    };
    let refusal = "echo 'ssh: connect to host x port 22: Connection refused' >&2; exit 255";
    refuse(refusal, &["127.0.0.3 cannot be reached: ssh: connect", "try `ssh 127.0.0.3`"]);
    refuse("exit 127", &["127.0.0.3 has no maypole", "install maypole"]);
    let old = r#"echo '@{"Hello":{"protocol":1,"version":"0.0.7","file":"/m","ports":null,"connection":null}}'; sleep 1"#;
    let version = "127.0.0.3 has maypole 0.0.7 at /m, and this is 0.1.0";
    refuse(old, &[version, "install the same one there"]);
    // A shell that prints, and an invalid message.
    refuse("echo welcome; echo @nonsense; exit 1", &["gave up before it answered", "nonsense"]);
}

#[test]
fn what_is_wrong_with_a_job_is_said_with_a_remedy() {
    let hosts = format!("--hosts {TWO}");
    let missing = ["cannot start rank 0 on 127.0.0.2, `./not-there`", "put it there"];
    refused(LOCALLY, &hosts, "./not-there", 127, &missing);
    let route = format!("{hosts} --address 255.255.255.255");
    refused(
        LOCALLY,
        &route,
        "true",
        2,
        &["127.0.0.3 cannot reach rank 0's host 127.0.0.2 at 255", "--address"],
    );
    let own = "--hosts localhost,127.0.0.3";
    refused(LOCALLY, own, "true", 2, &["give its address with --address"]);
}
