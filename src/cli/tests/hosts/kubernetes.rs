//! The manifest of `examples/kubernetes`, with the variables and the names that a cluster would set.

use crate::names::can_mount;
use crate::network::address;
use crate::{Cluster, ended, rows, said, skip};
use std::fs;
use std::path::Path;
use std::process::Stdio;

/// The values of `name: value` pairs of the manifest, in its own style: `{name: NAME, value: "VALUE"}`.
fn variables(manifest: &str) -> Vec<(String, String)> {
    let pairs = manifest.lines().filter_map(|line| {
        let pair = line.trim().strip_prefix("- {name: ")?.strip_suffix("\"}")?;
        let (name, value) = pair.split_once(", value: \"")?;
        Some((name.to_owned(), value.to_owned()))
    });
    pairs.collect()
}

/// The value of the only line with this key.
fn field<'a>(manifest: &'a str, key: &str) -> &'a str {
    let mut values = manifest.lines().filter_map(|line| line.trim().strip_prefix(key));
    let value = values.next().unwrap_or_else(|| panic!("no {key}"));
    assert_eq!(values.next(), None, "{key}");
    value.trim()
}

#[test]
fn the_ranks_of_an_indexed_job_find_one_another() {
    crate::skip::takes_turns!(4);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/kubernetes/job.yaml");
    let manifest = fs::read_to_string(path).unwrap();
    let pods: usize = field(&manifest, "completions:").parse().unwrap();
    assert_eq!(field(&manifest, "parallelism:"), pods.to_string(), "all ranks run at once");
    let variables = variables(&manifest);
    let words = field(&manifest, "command:").trim_matches(['[', ']']);
    let words: Vec<&str> = words.split(", ").map(|word| word.trim_matches('"')).collect();
    assert_eq!(words[0], "maypole");

    let Some(cluster) = Cluster::new(pods) else { return };
    // The names that the service gives the pods.
    let names = cluster.folder.path().join("names");
    let lines = (0..pods).map(|pod| format!("{} sum-{pod}.sum\n", address(pod)));
    fs::write(&names, lines.collect::<String>()).unwrap();
    let key = fs::read_to_string(cluster.key()).unwrap();
    let start = |pod: usize| {
        let script = format!("mount --bind {} /etc/hosts && exec \"$@\"", names.display());
        let mut command = cluster.network.command(pod, "unshare");
        command.args(["--mount", "sh", "-c", &script, "pod", env!("CARGO_BIN_EXE_maypole")]);
        command.args(&words[1..]).args(["--sizes", "8", "--iters", "3", "--json", "-"]);
        // Of every pod of an indexed job.
        command.env("JOB_COMPLETION_INDEX", pod.to_string()).env("HOSTNAME", format!("sum-{pod}"));
        command.envs(variables.iter().cloned()).env("MAYPOLE_JOB_KEY", &key);
        command.env("MAYPOLE_HOST", format!("sum-{pod}-x7k2p")).env("MAYPOLE_TIMEOUT", "60");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().unwrap()
    };
    if !can_mount() {
        return skip::skipped("no names for pods here: this process may not mount");
    }
    let outputs = ended((0..pods).map(start).collect());
    for (pod, output) in outputs.iter().enumerate() {
        assert!(output.status.success(), "pod {pod}: {}", said(output));
    }
    let row = &rows(&outputs[0])[0];
    assert!(row["ranks"] == pods && row["wrong"] == 0, "{row}");
}
