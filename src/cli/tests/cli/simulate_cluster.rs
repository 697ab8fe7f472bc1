//! `maypole simulate --cluster`: predicted times on described clusters.

use serde_json::Value;
use std::process::{Command, Output};

fn simulate(arguments: &str) -> Output {
    let maypole = env!("CARGO_BIN_EXE_maypole");
    Command::new(maypole).arg("simulate").args(arguments.split(' ')).output().unwrap()
}

fn text(arguments: &str) -> String {
    let output = simulate(arguments);
    assert!(output.status.success(), "{arguments}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn rows(arguments: &str) -> Vec<Value> {
    text(&format!("{arguments} --json"))
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn refusal(arguments: &str) -> String {
    let output = simulate(arguments);
    assert_eq!(output.status.code(), Some(2), "{arguments}");
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn a_cluster_is_chosen_by_name() {
    let rows = rows("--cluster 4xdgx-h100 --collective all-reduce --bytes 1G");
    assert!(rows.len() > 20, "{} algorithms", rows.len());
    assert!(rows.is_sorted_by_key(|row| row["seconds"].as_f64().unwrap().to_bits()));
    let ring = rows.iter().find(|row| row["algorithm"] == "ring").unwrap();
    assert_eq!((ring["ranks"].as_u64(), ring["lanes"].as_u64()), (Some(32), Some(8)));
    assert!(
        ring["bottleneck"].as_str().unwrap().ends_with("NVSwitch (NVLink, 370.8 GB/s)"),
        "{ring}"
    );
    let factor = ring["busbw_GBps"].as_f64().unwrap() / ring["algbw_GBps"].as_f64().unwrap();
    assert!((factor - 2.0 * 31.0 / 32.0).abs() < 1e-9);
}

#[test]
fn a_sweep_has_the_fastest_of_each_size() {
    let text = text("all-gather --cluster 2xpcie-phb --bytes 1M..4M --fastest 1");
    let sizes: Vec<_> =
        text.lines().filter(|line| !line.starts_with('#')).map(|line| &line[..9]).collect();
    assert_eq!(sizes, ["      1M ", "      2M ", "      4M "]);
    assert!(text.contains("network, 12.5 GB/s"), "{text}");
}

#[test]
fn fewer_links_between_rails_never_cost_less() {
    let seconds = |fabric: &str| {
        let rows = rows(&format!(
            "all-reduce --cluster 2xdgx-h100 --bytes 256M --algorithm ring --fabric {fabric}"
        ));
        rows.iter().find(|row| row["algorithm"] == "ring").unwrap()["seconds"].as_f64().unwrap()
    };
    let [flat, rails, isolated] = ["flat", "rails", "isolated-rails"].map(seconds);
    assert!(flat <= rails && rails <= isolated, "{flat} {rails} {isolated}");
}

#[test]
fn hosts_may_be_read_from_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pair.txt");
    let matrix = "\tGPU0\tGPU1\tNIC0\tCPU Affinity\n\
                  GPU0\t X \tNV4\tPIX\t0-15\n\
                  GPU1\tNV4\t X \tSYS\t16-31\n\
                  NIC0\tPIX\tSYS\t X \n";
    std::fs::write(&path, matrix).unwrap();
    let of = |hosts: &str| {
        let question =
            format!("all-reduce --cluster {hosts}@{} --gigabits 200 --bytes 1G", path.display());
        rows(&question).into_iter().find(|row| row["algorithm"] == "ring").unwrap()
    };
    let one = of("");
    assert!(one["bottleneck"].as_str().unwrap().contains("NVLink, 80.0 GB/s"), "{one}");
    let two = of("2x");
    assert_eq!(two["ranks"], 4);
    assert!(
        (23.0..24.0).contains(&two["busbw_GBps"].as_f64().unwrap()),
        "limited by the card's PCI slot: {two}"
    );
    assert!(
        refusal(&format!("all-reduce --cluster 0x@{}", path.display()))
            .contains("no number of hosts")
    );
    assert!(
        refusal("all-reduce --cluster @/nowhere/at/all").contains("cannot read /nowhere/at/all")
    );
}

#[test]
fn contradictions_are_refused_with_a_reason() {
    assert!(refusal("--cluster 4xdgx-h100").contains("no collective is named"));
    assert!(refusal("all-reduce --cluster 4xdgx").contains("the names are dgx-a100"));
    assert!(refusal("all-reduce --cluster 513xdgx-h100").contains("the most is 4096"));
    assert!(refusal("all-reduce --bytes 1M..4M").contains("needs --cluster"));
    assert!(refusal("all-reduce --cluster dgx-a100 --bytes 4M..1M").contains("goes down"));
    assert!(refusal("all-reduce --cluster dgx-a100 -n 4").contains("cannot be used with"));
    assert!(refusal("broadcast --cluster dgx-a100 --root 8").contains("no rank 8"));
    assert!(
        refusal("all-to-all --cluster dgx-a100 --algorithm ring")
            .contains("ring does not implement all-to-all")
    );
}
