//! `maypole topo`, as a user calls it.

#[path = "../../../../tests/common/samples.rs"]
mod samples;

use samples::samples;
use serde_json::{Value, json};
use std::fs;
use std::io::Write;
use std::process::{Command, Output, Stdio};

fn topo(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_maypole")).arg("topo").args(arguments).output().unwrap()
}

fn on(text: &str, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_maypole"));
    let command = command.args(["topo", "--file", "-"]).args(arguments);
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

fn text(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn object(output: &Output) -> Value {
    serde_json::from_str(&text(output)).unwrap()
}

/// Two GPUs over a host bridge, the old legend, tabs.
const OLD: &str = "\tGPU0\tGPU1\tmlx4_0\tCPU Affinity\n\
                   GPU0\t X \tPHB\tSOC\t0-7\n\
                   GPU1\tPHB\t X \tPHB\t0-7\n\
                   mlx4_0\tSOC\tPHB\t X \t\n\n\
                   Legend:\n\n  X   = Self\n  SOC  = Path traverses a socket-level link\n";

#[test]
fn a_pasted_report_has_the_answers_of_the_samples() {
    let found = object(&on(OLD, &["--json"]));
    assert_eq!((&found["gpus"], &found["nics"]), (&json!(2), &json!(1)));
    let matrix = json!([["X", "PHB", "SOC"], ["PHB", "X", "PHB"], ["SOC", "PHB", "X"]]);
    assert_eq!(found["matrix"], matrix);
    assert_eq!(found["ring"], json!({ "bottleneck": "PHB", "order": [0, 1] }));
    assert_eq!(found["rings"], json!([[0, 1]]));
    let pair = &found["pairs"][0];
    let by = if cfg!(feature = "cuda") { "cuda" } else { "shm" };
    assert_eq!((&pair["class"], &pair["transport"]), (&json!("PHB"), &json!(by)));
    let table = text(&on(OLD, &[]));
    assert!(
        table.contains("GPU0    X       PHB     SOC\n")
            && table.contains("SOC   the link between sockets"),
        "{table}"
    );
}

#[test]
fn each_pair_says_what_it_lacks_and_bandwidths_are_called_assumed() {
    let cpus = text(&topo(&["--cluster", "cpu:2x1"]));
    assert!(cpus.contains("  CUDA: the buffers are in host memory, not on GPUs\n"), "{cpus}");
    assert!(cpus.contains("(its narrowest link: 10.0 GB/s, assumed)"), "{cpus}");
    let of_amd = text(&topo(&["--cluster", "mi300x"]));
    assert!(of_amd.contains("transport shm   every pair\n  CUDA: "), "{of_amd}");
    let two = text(&topo(&["--cluster", "2xdgx-h100"]));
    assert!(two.contains("  CUDA: on another host\n"), "{two}");
    let found = object(&topo(&["--cluster", "dgx-h100", "--json"]));
    assert_eq!(found["bandwidths"], "assumed");
}

#[test]
fn a_named_cluster_has_its_links_and_nearest_cards() {
    let found = object(&topo(&["--cluster", "dgx-a100", "--json"]));
    assert_eq!((&found["gpus"], &found["nics"]), (&json!(8), &json!(8)));
    assert_eq!(
        (&found["matrix"][0][7], &found["ring"]["bottleneck"]),
        (&json!("NV12"), &json!("NV12"))
    );
    assert_eq!((&found["matrix"][3][10], &found["matrix"][3][11]), (&json!("PIX"), &json!("PIX")));
}

#[test]
fn ranks_of_two_hosts_use_tcp_and_the_reason_is_shown() {
    let found = object(&topo(&["--cluster", "2xcpu:2x1", "--json"]));
    assert_eq!((&found["gpus"], &found["nics"]), (&json!(0), &json!(2)));
    let pairs = found["pairs"].as_array().unwrap();
    let pair =
        |a: usize, b: usize| pairs.iter().find(|pair| pair["ranks"] == json!([a, b])).unwrap();
    assert_eq!(
        (&pair(0, 1)["transport"], &pair(1, 2)["transport"]),
        (&json!("shm"), &json!("tcp"))
    );
    let refused: Vec<_> = pair(1, 2)["refused"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it["transport"].clone())
        .collect();
    assert_eq!(refused, ["cuda", "shm", "ib"]);
    assert_eq!(pair(0, 3)["refused"][1]["reason"], "on another host");
    let table = text(&topo(&["--cluster", "2xcpu:2x1"]));
    assert!(
        table.contains("transport shm   ranks 0-1 2-3\n")
            && table.contains("shared memory: on another host"),
        "{table}"
    );
}

#[test]
fn this_machine_has_a_rank_a_core_or_a_gpu() {
    let found = object(&topo(&["--json"]));
    let ranks = found["ranks"].as_array().unwrap().len();
    assert!(ranks >= 1 && (found["gpus"] == json!(ranks) || found["gpus"] == json!(0)), "{found}");
    assert!(text(&topo(&[])).starts_with("# this machine: "));
}

#[test]
fn errors_name_the_line_and_column() {
    let output = on(&OLD.replace("PHB\tSOC", "PHB\tSEA"), &["--json"]);
    assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0));
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(
        error.contains("line 2, column 14") && error.contains("SEA") && error.contains("PHB"),
        "{error}"
    );
    let output = on("<system>\n<cpu>\n<pci/></cpu></system>", &[]);
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.contains("line 3, column 1") && error.contains("busid"), "{error}");
    let unknown = topo(&["--cluster", "dgx-9"]);
    assert!(
        !unknown.status.success()
            && String::from_utf8(unknown.stderr).unwrap().contains("dgx-a100")
    );
}

#[test]
fn a_damaged_report_is_answered_with_a_note() {
    let output = on(&OLD.replace("mlx4_0\tSOC\tPHB\t X \t\n", ""), &["--json"]);
    assert_eq!(object(&output)["matrix"][1][2], "PHB");
    let notes = String::from_utf8(output.stderr).unwrap();
    assert!(notes.contains("mlx4_0 to GPU0 is missing: SOC is taken"), "{notes}");
}

#[test]
fn a_picture_shows_every_device_and_ring() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("machine.svg");
    let name = file.to_str().unwrap();
    for (cluster, named, rings) in
        [("dgx-h100", ["GPU7", "NIC7", "NVSwitch"], 1), ("mi300x", ["GPU0", "NUMA1", "bridge3"], 7)]
    {
        text(&topo(&["--cluster", cluster, "--svg", name]));
        let picture = fs::read_to_string(&file).unwrap();
        assert!(picture.starts_with("<svg ") && picture.ends_with("</svg>\n"));
        for device in named {
            assert!(picture.contains(&format!(">{device}<")), "{device} in {cluster}");
        }
        let hops = picture.matches("marker-end").count();
        assert_eq!(hops, rings * 8, "{cluster}");
        for number in
            picture.split("=\"").filter_map(|rest| rest.split('"').next()?.parse::<f64>().ok())
        {
            assert!((-1.0..4000.0).contains(&number), "{cluster}: {number} is out of the picture");
        }
    }
    let escaped = text(&on(OLD, &["--svg", "-"]));
    assert!(escaped.contains(">mlx4_0<") && !escaped.contains("NaN"));
}

/// Columns that were pasted as `...` are left out, and a warning names them.
#[test]
fn elided_columns_are_left_out_with_a_warning() {
    let samples = samples();
    let elided = samples.iter().find(|sample| sample.name == "damaged-elided").unwrap();
    let output = topo(&["--json", "--file", elided.path.to_str().unwrap()]);
    assert_eq!(object(&output)["gpus"], 4);
    let warnings = String::from_utf8(output.stderr).unwrap();
    for part in ["between GPU2 and GPU7", "GPU3 to GPU6 are left out", "behind NIC0"] {
        assert!(warnings.contains(part), "{part:?} is not in {warnings}");
    }
}
