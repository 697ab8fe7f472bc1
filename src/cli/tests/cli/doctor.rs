//! `maypole doctor`, as a user calls it.

use std::process::{Command, Output};

/// Runs `maypole doctor` with these environment variables and no others.
fn doctor(arguments: &[&str], variables: &[(&str, &str)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_maypole"));
    command.arg("doctor").args(arguments).env_clear().envs(variables.iter().copied());
    command.output().unwrap()
}

fn text(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// The findings depend on the machine, so the expected exit code is derived from them.
#[test]
fn every_check_has_a_line_and_the_exit_code_follows_the_worst() {
    let output = doctor(&["-n", "2"], &[]);
    let text = text(&output);
    let checks = [
        "version",
        "interfaces",
        "environment",
        "ports",
        "key",
        "/proc",
        "cores",
        "descriptors",
        "locked memory",
    ];
    for check in checks.into_iter().chain(["shared memory", "ptrace", "CUDA", "NVML", "verbs"]) {
        assert!(text.lines().any(|line| line[9..].starts_with(check)), "{check} in\n{text}");
    }
    let problem = text.lines().any(|line| line.starts_with("problem"));
    assert_eq!(output.status.code(), Some(i32::from(problem)), "{text}");
}

#[test]
fn a_wrong_environment_is_a_problem_with_a_fix() {
    let output = doctor(&["--json"], &[("MAYPOLE_RANK", "5"), ("MAYPOLE_WORLD", "2")]);
    assert_eq!(output.status.code(), Some(1));
    let report: serde_json::Value = serde_json::from_str(&text(&output)).unwrap();
    assert_eq!(report["worst"], "problem");
    let findings = report["findings"].as_array().unwrap();
    let found = findings.iter().find(|finding| finding["what"] == "environment").unwrap();
    assert_eq!(found["level"], "problem");
    assert!(found["text"].as_str().unwrap().contains("MAYPOLE_RANK") && found["fix"].is_string());
}

#[test]
fn a_key_that_others_can_read_is_a_problem_and_is_not_shown() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("key");
    std::fs::write(&path, "5".repeat(64)).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
    let output = doctor(&[], &[("MAYPOLE_JOB_KEY_FILE", path.to_str().unwrap())]);
    let text = text(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(
        text.contains("0644") && text.contains("chmod 600") && !text.contains("55555"),
        "{text}"
    );
}

#[test]
fn an_address_that_nobody_knows_and_misspelt_variables_are_problems() {
    let variables = [
        ("MAYPOLE_RANK", "1"),
        ("MAYPOLE_WORLD", "2"),
        ("MAYPOLE_ADDRESS", "no-such-host.invalid"),
        ("MAYPOLE_TRANSPROT", "shm"),
    ];
    let output = doctor(&[], &variables);
    let text = text(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    let found = |start: &str| text.lines().any(|line| line.starts_with(start));
    assert!(found("problem  address          of rank 0: no-such-host.invalid: "), "{text}");
    assert!(
        found("problem  variables        there is no MAYPOLE_TRANSPROT; it is ignored"),
        "{text}"
    );
    assert!(text.contains("fix: did you mean MAYPOLE_TRANSPORT?"), "{text}");
}
