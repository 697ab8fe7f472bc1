//! Little memory, and the help of commands.

use super::{printed, text};
use std::process::{Command, Stdio};

/// Under every limit of the address space the measurement works or reports missing memory. Low
/// limits hit the buffers of the command, higher ones the staging buffers of the library.
#[test]
fn missing_memory_is_an_error_and_kills_nothing() {
    let mut failures = 0;
    for limit in (150..=450).step_by(75) {
        let mut command = Command::new("sh");
        let line = "perf all-reduce --algorithm recursive-doubling -n 2 --transport tcp --sizes 64M \
                    --iters 1 --check false";
        let script = format!("ulimit -v {} && exec \"$0\" {line}", limit << 10);
        command.args(["-c", &script, env!("CARGO_BIN_EXE_maypole")]).stdin(Stdio::null());
        let output = command.output().unwrap();
        let error = text(&output.stderr);
        let code = output.status.code();
        assert!(code.is_some_and(|code| code <= 2), "{limit} MiB: {}: {error}", output.status);
        assert!(!error.contains("panicked"), "{limit} MiB: {error}");
        if code != Some(0) {
            failures += 1;
            let missing = ["no memory", "Cannot allocate memory", "temporarily unavailable"];
            assert!(missing.iter().any(|it| error.contains(it)), "{limit} MiB: {error}");
        }
    }
    assert!(failures > 0, "a limit of 150 MiB leaves no room for buffers of 192 MiB");
}

#[test]
fn every_help_text_lists_every_collective() {
    for command in ["draw", "simulate", "explain", "perf"] {
        let help = printed(&format!("{command} --help"));
        let words = help.split_whitespace().collect::<Vec<_>>().join(" ");
        let names = maypole::schedule::collective::Collective::option_names();
        assert!(words.contains(&names), "{command}: {words}");
        assert!(names.contains("exclusive-scan"), "{names}");
    }
}
