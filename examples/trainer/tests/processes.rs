//! The same on real processes: `train run --processes` prints the losses of one process.

use std::process::Command;

fn losses(args: &[&str]) -> Vec<String> {
    let model = ["--width=32", "--context=32", "--layers=4", "--rows=8", "--steps=3", "--sample=0", "--deterministic"];
    let output = Command::new(env!("CARGO_BIN_EXE_train")).arg("run").args(model).args(args).output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{args:?}: {out}{err}");
    let lines = out.lines().chain(err.lines()).filter(|line| line.starts_with("step "));
    let loss = |line: &str| line.split_whitespace().nth(3).unwrap().to_owned();
    let losses: Vec<String> = lines.map(loss).collect();
    assert_eq!(losses.len(), 3, "{out}{err}");
    losses
}

#[test]
fn meshes_of_processes_train_as_one_process() {
    let dense = losses(&[]);
    assert_eq!(losses(&["--processes", "--mesh=dp=2,pp=2,tp=2", "--micros=2", "--sequence"]), dense);
    assert_eq!(losses(&["--processes", "--mesh=cp=2,pp=2", "--micros=2", "--pipeline=interleaved:2"]), dense);
    let experts = losses(&["--experts=4"]);
    assert_eq!(losses(&["--processes", "--mesh=ep=2,cp=2", "--experts=4", "--exchange=ulysses"]), experts);
    assert_ne!(experts, dense);
}
