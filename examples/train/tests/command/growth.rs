//! The memory of a run does not grow with the number of its steps: spans of time, prepared
//! calls and buffers are all bounded.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// A run that is killed when the test ends, also when the test fails.
struct EndlessRun(Child);

impl Drop for EndlessRun {
    fn drop(&mut self) {
        // The run may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl EndlessRun {
    /// KiB of memory, once `steps` steps are in the file of losses.
    fn memory_after(&mut self, steps: usize, losses: &Path) -> u64 {
        let start = Instant::now();
        // A line has about 85 bytes.
        while fs::metadata(losses).map_or(0, |file| file.len()) < 80 * steps as u64 {
            assert!(start.elapsed() < Duration::from_secs(240), "{steps} steps take too long");
            assert!(self.0.try_wait().unwrap().is_none(), "the run ended");
            sleep(Duration::from_millis(20));
        }
        let status = fs::read_to_string(format!("/proc/{}/status", self.0.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.split_whitespace().next().unwrap().parse().unwrap()
    }
}

fn memory_stays(options: &str) {
    let folder = tempfile::tempdir().unwrap();
    let losses = folder.path().join("losses");
    let words = format!(
        "run --width 4 --heads 1 --context 4 --rows 4 --sample 0 --steps 100000000 \
         {options} --losses"
    );
    let mut command = Command::new(env!("CARGO_BIN_EXE_train"));
    command.args(words.split_whitespace()).arg(&losses).current_dir(folder.path());
    command.env("MAYPOLE_TIMEOUT", "60").stdout(Stdio::null()).stderr(Stdio::null());
    let mut run = EndlessRun(command.spawn().unwrap());
    let before = run.memory_after(800, &losses);
    let after = run.memory_after(4_000, &losses);
    // The bound is below a leak of 1 KiB a step, and leaves room for the allocator's rounding.
    assert!(after < before + 3_000, "{options}: {before} KiB, then {after} KiB");
}

#[test]
fn memory_of_replicas_does_not_grow() {
    crate::skip::takes_turns!(4);
    memory_stays("--mesh dp=2 --layers 1");
}

#[test]
fn memory_of_pipeline_stages_does_not_grow() {
    crate::skip::takes_turns!(4);
    memory_stays("--mesh pp=2 --layers 2");
}

/// The number of tokens of each expert changes with every step, and so do the lengths of messages.
#[test]
fn memory_of_experts_does_not_grow_with_new_lengths_in_every_step() {
    crate::skip::takes_turns!(4);
    memory_stays("--mesh ep=2 --layers 1 --experts 4 --rebalance 50");
}
