//! Hosts between which a packet takes 20 ms: training there is as it is on one host.

use crate::network::{Network, address, compile_carrier};
use crate::processes::{losses, losses_of, model};
use crate::skip;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;

const RANKS: usize = 4;

#[test]
fn hosts_that_are_apart_train_as_one_process() {
    crate::skip::takes_turns!(4);
    let folder = tempfile::tempdir().unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/common/delay.c");
    let network = compile_carrier(&source, folder.path())
        .and_then(|carrier| Network::apart(RANKS, Duration::from_millis(20), &carrier));
    let network = match network {
        Ok(network) => network,
        Err(why) => return skip::skipped(format!("no hosts that are apart here: {why}")),
    };
    let mesh = ["--mesh=dp=2,tp=2"];
    let start = |rank: usize| -> Child {
        let mut command = network.command(rank, env!("CARGO_BIN_EXE_train"));
        command
            .arg("run")
            .args(model())
            .args(mesh)
            .env("MAYPOLE_JOB_KEY", "5a".repeat(32))
            .env("MAYPOLE_RANK", rank.to_string())
            .env("MAYPOLE_WORLD", RANKS.to_string())
            .env("MAYPOLE_LOCAL_RANK", "0")
            .env("MAYPOLE_LOCAL_WORLD", "1")
            .env("MAYPOLE_ADDRESS", address(0))
            .env("MAYPOLE_PORT", "24100")
            .env("MAYPOLE_TIMEOUT", "60")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command.spawn().unwrap()
    };
    let ranks: Vec<Child> = (0..RANKS).map(start).collect();
    let mut outputs = ranks.into_iter().map(|rank| rank.wait_with_output().unwrap());
    let far = losses_of(&outputs.next().unwrap());
    assert!(outputs.all(|output| output.status.success()));
    assert_eq!(far, losses(&mesh));
}
