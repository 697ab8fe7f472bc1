//! `maypole simulate --cluster`: predicted times on described clusters.

use super::{objects, printed, refused};
use serde_json::Value;

fn text(arguments: &str) -> String {
    printed(&format!("simulate {arguments}"))
}

fn rows(arguments: &str) -> Vec<Value> {
    objects(&text(&format!("{arguments} --json")))
}

#[test]
fn a_cluster_is_chosen_by_name() {
    let rows = rows("all-reduce --cluster 4xdgx-h100 --bytes 1G");
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
fn a_prediction_is_near_a_published_measurement_and_this_machine_is_predicted() {
    let shown = text("all-reduce --cluster dgx-a100 --bytes 16G --fastest 1");
    let row = shown.lines().find(|line| !line.starts_with('#')).unwrap();
    let bus: f64 = row.split_whitespace().nth(4).unwrap().parse().unwrap();
    assert!(
        shown.contains("# published: busbw 234.9 GB/s of large vectors on 8 x A100"),
        "{shown}"
    );
    assert!((bus / 234.9 - 1.0).abs() < 0.06, "{shown}");
    assert!(text("all-reduce --cluster here").contains("# all-reduce on here: "));
}

#[test]
fn a_sweep_has_the_fastest_of_each_size() {
    let text = text("all-gather --cluster 2xpcie-phb --bytes 1M..4M --fastest 1");
    let sizes: Vec<_> =
        text.lines().filter(|line| !line.starts_with('#')).map(|line| line[..12].trim()).collect();
    assert_eq!(sizes, ["1048576", "2097152", "4194304"]);
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
    refused(&format!("simulate all-reduce --cluster 0x@{}", path.display()), "no number of hosts");
}

#[test]
fn contradictions_are_refused_with_a_reason() {
    for (line, why) in [
        ("--cluster 4xdgx-h100", "<COLLECTIVE>"),
        ("all-reduce --cluster 4xdgx", "the names are dgx-a100"),
        ("all-reduce --cluster 513xdgx-h100", "the most is 4096"),
        ("all-reduce --bytes 1M..4M", "needs --cluster"),
        ("all-reduce --cluster dgx-a100 --bytes 4M..1M", "goes down"),
        ("all-reduce --cluster dgx-a100 -n 4", "cannot be used with"),
        ("broadcast --cluster dgx-a100 --root 8", "no rank 8"),
        ("all-to-all --cluster dgx-a100 --algorithm ring", "ring does not implement all-to-all"),
        ("all-reduce --cluster @/nowhere/at/all", "cannot read /nowhere/at/all"),
    ] {
        refused(&format!("simulate {line}"), why);
    }
}
