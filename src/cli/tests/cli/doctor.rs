//! `maypole doctor`, as a user calls it.

/// The findings depend on the machine, so the expected exit code is derived from them.
#[test]
fn every_check_has_a_line_and_the_exit_code_follows_the_worst() {
    let output = super::run("doctor -n 2");
    let text = super::text(&output.stdout);
    let of_network = ["version", "interfaces", "environment", "ports", "key", "/proc", "cores"];
    let of_host = ["descriptors", "locked memory", "shared memory", "ptrace"];
    for check in of_network.iter().chain(&of_host).chain(&["CUDA", "NVML", "verbs"]) {
        assert!(text.lines().any(|line| line[9..].starts_with(check)), "{check} in\n{text}");
    }
    let problem = text.lines().any(|line| line.starts_with("problem"));
    assert_eq!(output.status.code(), Some(i32::from(problem)), "{text}");
}
