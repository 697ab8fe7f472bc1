//! The port and the key that a rank finds, and worlds of other launchers.

use crate::harness::{complete, eventually, maypole, output, run};
use crate::skip;
use std::net::TcpListener;
use std::process::{Command, Stdio};

/// Runs `job` with a port that was free a moment ago. If another program takes the port in that
/// moment, the code is 2, and `job` runs again with another port.
fn on_a_free_port<T>(mut job: impl FnMut(u16) -> (i32, T)) -> (u16, i32, T) {
    let mut result = None;
    eventually("a port stays free", || {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let (code, said) = job(port);
        result = Some((port, code, said));
        code != 2
    });
    result.unwrap()
}

#[test]
fn a_port_can_be_named() {
    let named = |port: u16| output(run(&format!("-n 1 --port {port}"), "echo $MAYPOLE_PORT"));
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let (code, _, error) = named(port);
    assert!(code == 2 && error.contains(&format!("--port {port}")), "{code} {error}");
    let (port, code, said) = on_a_free_port(|port| {
        let (code, out, _) = named(port);
        (code, out)
    });
    assert_eq!((code, said), (0, format!("{port}\n")));
}

#[test]
fn the_key_is_behind_the_descriptor_and_not_in_the_environment() {
    let script = "cat /proc/self/fd/$MAYPOLE_JOB_KEY_FD; cat /proc/self/fd/$MAYPOLE_JOB_KEY_FD; \
                  echo ${MAYPOLE_JOB_KEY-unset} ${MAYPOLE_JOB_KEY_FILE-unset}; \
                  env | sed 's/^/env /'";
    let mut command = run("-n 2", script);
    command.env("MAYPOLE_JOB_KEY", "from outside").env("MAYPOLE_JOB_KEY_FILE", "from outside");
    let (code, lines) = complete(command);
    let is_key =
        |text: &&str| text.len() == 64 && text.bytes().all(|digit| digit.is_ascii_hexdigit());
    let shown = lines.iter().filter_map(|line| line.strip_prefix("[rank 0] ")).find(is_key);
    let key = shown.expect("the descriptor holds 64 hexadecimal digits");
    assert_eq!(code, 0);
    // Twice by each of two ranks, and nowhere else.
    assert_eq!(lines.iter().filter(|line| line.contains(key)).count(), 4);
    assert!(lines.contains(&"[rank 1] unset unset".to_owned()));
    assert!(!lines.iter().any(|line| line.contains("from outside")));
}

/// Runs as a rank, when the test below starts this file's program again.
#[test]
fn as_a_rank() {
    if std::env::var_os("TEST_RANK").is_none() {
        return;
    }
    let launch = maypole::world::launch::from_env().unwrap();
    let again = maypole::world::launch::from_env().unwrap();
    let same = launch.key.as_ref().map(|key| again.key.unwrap().bytes() == key.bytes());
    let (address, ports) = (launch.address.unwrap(), launch.ports);
    let place = format!("{} of {} at {address} {ports:?}", launch.rank, launch.world);
    eprintln!("said {:?} {place} key {same:?}", launch.launcher);
}

#[test]
fn a_rank_reads_its_launch_and_its_key() {
    let (port, code, said) = on_a_free_port(|port| {
        let mut launcher = maypole(&["run", "-n", "2", "--port", &port.to_string(), "--"]);
        launcher.env("TEST_RANK", "1").arg(std::env::current_exe().unwrap());
        launcher.args(["--exact", "joining::as_a_rank", "--nocapture", "--test-threads=1"]);
        let (code, lines) = complete(launcher);
        let said = lines.iter().filter_map(|line| Some(line.split_once("said ")?.1.to_owned()));
        (code, said.collect::<Vec<_>>())
    });
    let expected = |rank| format!("Maypole {rank} of 2 at 127.0.0.1 [{port}] key Some(true)");
    assert_eq!((code, said), (0, vec![expected(0), expected(1)]));
}

/// Two processes that a launcher started in a pod, whose variables they have, too.
#[test]
fn processes_of_a_launcher_in_a_pod_are_one_world() {
    let pod = [("RANK", "0"), ("WORLD_SIZE", "1"), ("MASTER_ADDR", "127.0.0.1")];
    let exported = [("WORLD_SIZE", "2"), ("MASTER_ADDR", "127.0.0.1")];
    let mpirun = ["OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"];
    let srun = ["SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID"];
    let sets = [(&pod[..], mpirun), (&pod, srun), (&exported, srun)];
    for (around, [rank, world, local]) in sets {
        let start = |number: usize| {
            let mut command = maypole(&["perf", "barrier", "--iters", "2", "--json", "-"]);
            command.envs(around.iter().copied()).env(rank, number.to_string()).env(world, "2");
            command.env(local, number.to_string()).env("OMPI_COMM_WORLD_LOCAL_SIZE", "2");
            command.env("SLURM_NODEID", "0").env("SLURM_STEP_TASKS_PER_NODE", "2");
            command.env("SLURM_STEP_NODELIST", "localhost").env("MAYPOLE_TIMEOUT", "60");
            command.env("MAYPOLE_JOB", format!("pod-{rank}-{}", std::process::id()));
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
        };
        let outputs = [start(0), start(1)].map(|rank| rank.wait_with_output().unwrap());
        for output in &outputs {
            let error = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{rank}: {error}");
        }
        let rows = String::from_utf8_lossy(&outputs[0].stdout);
        let row: serde_json::Value = serde_json::from_str(rows.lines().next().unwrap()).unwrap();
        assert_eq!((&row["ranks"], &row["wrong"]), (&2.into(), &0.into()), "{rank}: {row}");
    }
}

/// Memory of a process in another user namespace is not to be read, and results are right.
#[test]
fn ranks_of_two_user_namespaces_join() {
    if !Command::new("unshare").args(["-U", "true"]).status().is_ok_and(|status| status.success()) {
        return skip::skipped("no user namespaces here");
    }
    let job = format!("namespaces-{}", std::process::id());
    let start = |rank: usize| {
        let own =
            maypole(&["perf", "all-reduce", "--sizes", "8,64K", "--iters", "3", "--json", "-"]);
        let mut command = match rank {
            0 => own,
            _ => {
                let mut command = Command::new("unshare");
                command.arg("-U").arg(own.get_program()).args(own.get_args());
                command
            }
        };
        command.env("MAYPOLE_RANK", rank.to_string()).env("MAYPOLE_WORLD", "2");
        command.env("MAYPOLE_ADDRESS", "127.0.0.1").env("MAYPOLE_TIMEOUT", "60");
        command.env("MAYPOLE_JOB", &job).stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let outputs = [start(0), start(1)].map(|rank| rank.wait_with_output().unwrap());
    for output in &outputs {
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    let rows = String::from_utf8_lossy(&outputs[0].stdout);
    for row in rows.lines().map(|row| serde_json::from_str::<serde_json::Value>(row).unwrap()) {
        assert_eq!(row["wrong"], 0, "{row}");
    }
}
