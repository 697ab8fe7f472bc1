//! A thousand steps of the default model on the two plays: what is learnt, and that every mesh
//! learns the same.
//!
//! Other tests compare some steps number by number. Here the numbers are no longer the same: sums
//! in another order differ in their last bits, and a thousand steps carry that to the fifth digit
//! of the loss. What has to be equal is what the model has learnt, on text that it has not seen.
//! Before the first step the loss is 5.7 nats a byte; after a thousand it is 1.745 on every mesh,
//! equal in the four digits that are printed. Other seeds end at 1.750 and 1.764, and a mesh that
//! forgets to sum the gradients of norms at 1.768: it learns, and is found out by the comparison
//! alone.

use std::process::Command;
use std::time::Instant;

/// What a trained model has to reach, in nats a byte.
const BAR: f64 = 1.80;

/// How far a mesh may be from one process: twenty times the last digit, and less than what another
/// seed changes.
const APART: f64 = 0.002;

const MESHES: [&[&str]; 5] = [
    &[],
    &["--mesh", "dp=2"],
    &["--mesh", "tp=2"],
    &["--mesh", "pp=2"],
    &["--mesh", "dp=2", "--sharding", "fsdp"],
];

const MISTAKE: &[&str] = &["--mesh", "tp=2", "--sequence", "--fault", "norms-not-summed"];

/// The validation loss of a run of `train` with these options.
fn learn(options: &[&str]) -> f64 {
    let start = Instant::now();
    let mut train = Command::new(env!("CARGO_BIN_EXE_train"));
    let output =
        train.args(["run", "--steps", "1000", "--sample", "0"]).args(options).output().unwrap();
    assert!(output.status.success(), "{options:?}: {}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("validation loss "))
        .expect("a run says what it learnt");
    let loss = line.split(' ').next().unwrap().parse().unwrap();
    println!(
        "{:<56} validation loss {loss:.4}, {:.0} s",
        options.join(" "),
        start.elapsed().as_secs_f64()
    );
    loss
}

#[test]
#[ignore = "minutes: cargo test --release -p maypole-trainer --test learning -- --ignored --nocapture"]
fn every_mesh_learns_the_plays_as_one_process_does() {
    let losses = MESHES.map(learn);
    for (options, loss) in MESHES.iter().zip(losses) {
        assert!(loss < BAR, "{options:?} reaches {loss}, not {BAR}");
        assert!(
            (loss - losses[0]).abs() < APART,
            "{options:?} reaches {loss}, one process {}",
            losses[0]
        );
    }
    let mistaken = learn(MISTAKE);
    assert!(
        (mistaken - losses[0]).abs() > APART,
        "{MISTAKE:?} reaches {mistaken}: nothing would be found out"
    );
}
