//! `maypole perf` under the launchers of MPI: it joins with no configuration but a key.

use crate::skip;

use std::process::{Command, Stdio};

/// Runs `maypole perf` on two ranks of `launcher`, with the key in a file. `None`, and a line
/// `SKIPPED`, if the launcher is not installed.
fn perf_under(launcher: &str, options: &[&str]) -> Option<Vec<serde_json::Value>> {
    if Command::new(launcher)
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_err()
    {
        skip::skipped(format!("{launcher} is not installed"));
        return None;
    }
    let folder = tempfile::tempdir().unwrap();
    let (key, json) = (folder.path().join("key"), folder.path().join("perf.json"));
    let maypole = env!("CARGO_BIN_EXE_maypole");
    assert!(Command::new(maypole).args(["key", "new"]).arg(&key).status().unwrap().success());
    let output = Command::new("timeout")
        .args(["120", launcher])
        .args(options)
        .args(["-n", "2", maypole])
        .args("perf all-reduce broadcast --sizes 8,65536 --budget 5 --json".split(' '))
        .arg(&json)
        .env("MAYPOLE_JOB_KEY_FILE", &key)
        .env("MAYPOLE_TIMEOUT", "60")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{launcher}: {said}");
    let rows = std::fs::read_to_string(json).unwrap();
    Some(rows.lines().map(|row| serde_json::from_str(row).unwrap()).collect())
}

#[test]
fn ranks_of_mpi_join_without_configuration() {
    let open_mpi = ["--allow-run-as-root", "--oversubscribe", "--bind-to", "none"];
    for (launcher, options) in [("mpirun.openmpi", &open_mpi[..]), ("mpiexec.hydra", &[])] {
        let Some(rows) = perf_under(launcher, options) else { continue };
        for transport in ["shm", "tcp"] {
            assert!(rows.iter().any(|row| row["transport"] == transport), "{transport} is missing");
        }
        assert!(rows.iter().all(|row| row["ranks"] == 2 && row["wrong"] == 0), "{rows:?}");
    }
}
