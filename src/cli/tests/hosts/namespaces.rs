//! Ranks in two network namespaces that a pair of virtual network cards joins. To sockets, these
//! are two hosts. The test needs root and `ip`, and is skipped without them.

#[path = "../../../../tests/common/cable.rs"]
mod cable;

use crate::skip;

use cable::{ADDRESSES, Cable};
use std::process::{Child, Command, Output, Stdio};

#[test]
fn pairs_across_namespaces_use_tcp_and_log_the_reason() {
    let cable = match Cable::new() {
        Ok(cable) => cable,
        Err(why) => return skip::skipped(format!("no network namespaces here: {why}")),
    };
    let folder = tempfile::tempdir().unwrap();
    let key = folder.path().join("key");
    let made = Command::new(env!("CARGO_BIN_EXE_maypole"))
        .args(["key", "new"])
        .arg(&key)
        .status()
        .unwrap();
    assert!(made.success());
    // Ranks 0 and 1 on one side, rank 2 on the other.
    let start = |rank: usize| -> Child {
        let mut command = cable.command(rank / 2, env!("CARGO_BIN_EXE_maypole"));
        command
            .args(["explain", "all-reduce", "--bytes", "8", "--transport", "tcp"])
            .env("MAYPOLE_JOB_KEY_FILE", &key);
        command
            .env("MAYPOLE_RANK", rank.to_string())
            .env("MAYPOLE_WORLD", "3")
            .env("MAYPOLE_ADDRESS", ADDRESSES[0]);
        command
            .env("MAYPOLE_PORT", "24000")
            .env("MAYPOLE_LOG", "info")
            .env("MAYPOLE_TIMEOUT", "60");
        command.env("MAYPOLE_TUNE", "off").env("MAYPOLE_TRANSPORT", "auto");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let ranks: Vec<Child> = (0..3).map(start).collect();
    let outputs: Vec<Output> =
        ranks.into_iter().map(|rank| rank.wait_with_output().unwrap()).collect();
    for (rank, output) in outputs.iter().enumerate() {
        assert!(
            output.status.success(),
            "rank {rank}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
    let said = String::from_utf8_lossy(&outputs[0].stderr);
    assert!(said.contains("3 ranks on 2 hosts"), "{said}");
    assert!(
        said.contains("1 pairs by shm, first 0-1; CUDA: the buffers are in host memory"),
        "{said}"
    );
    assert!(said.contains("2 pairs by tcp, first 0-2; CUDA"), "{said}");
    assert!(said.contains("shared memory: on another host"), "{said}");
}
