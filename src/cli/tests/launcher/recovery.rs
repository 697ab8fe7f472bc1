//! Jobs whose other ranks continue after a failure, or have time to save.

use crate::harness::{Running, complete, run};
use std::path::Path;
use std::time::{Duration, Instant};

/// Runs a job with a script in a folder of its own. It must end with `code`, and have said each text so
/// often.
fn job(
    options: &str,
    script: &str,
    code: i32,
    told: &[(&str, usize)],
) -> (tempfile::TempDir, Vec<String>) {
    let folder = tempfile::tempdir().unwrap();
    let begun = Instant::now();
    let (ended, lines) = complete(run(options, &within(folder.path(), script)));
    assert_eq!(ended, code, "{lines:?}");
    for (text, times) in told {
        let said = lines.iter().filter(|line| line.contains(text)).count();
        assert_eq!(said, *times, "{text}: {lines:?}");
    }
    assert!(begun.elapsed() < Duration::from_secs(60));
    (folder, lines)
}

/// A script that runs in a folder.
pub(crate) fn within(folder: &Path, script: &str) -> String {
    format!("cd {}\n{script}", folder.display())
}

/// Writes the number of a rank's process into a file. The process ends next.
pub(crate) const FIRST: &str = "echo $$ > new; mv new first";

/// Waits until that process has ended. The launcher receives ends in their order.
pub(crate) const AFTER_FIRST: &str = "while [ ! -e first ]; do sleep 0.01; done
     while ! grep -qs ') Z' /proc/$(cat first)/stat; do
        [ -e /proc/$(cat first) ] || break
        sleep 0.01
     done";

#[test]
fn the_others_go_on_after_a_failure_and_the_end_tells_of_it() {
    let script = format!(
        "[ $RANK = 1 ] && {{ {FIRST}; exit 3; }}
         trap 'exit 9' TERM
         {AFTER_FIRST}"
    );
    let told = [("rank 1 exited with code 3; the others go on", 1), ("failed first", 0)];
    let (_, lines) = job("-n 3 --enable-recovery", &script, 0, &told);
    assert!(lines.iter().any(|line| line.ends_with("the others went on without")), "{lines:?}");
}

#[test]
fn a_job_whose_ranks_have_all_failed_has_the_code_of_the_first() {
    let script = format!("[ $RANK = 1 ] && {{ {FIRST}; exit 3; }}\n {AFTER_FIRST}\n exit 5");
    job("-n 2 --enable-recovery", &script, 3, &[("rank 1 failed first", 1)]);
}

/// No rank continues without a rank that fails when others have ended: exit code 0 would hide it.
#[test]
fn a_rank_that_fails_after_another_has_ended_fails_the_job() {
    let script = format!(
        "if [ $RANK = 0 ]; then {FIRST}; exit 0; fi
         {AFTER_FIRST}
         [ $RANK = 2 ] && exit 0
         exit 7"
    );
    let told = [("exited with code 7 after a rank had ended with code 0", 2), ("failed first", 1)];
    job("-n 4 --enable-recovery", &script, 7, &told);
}

/// Rank 0 saves after rank 1 has failed, and is not interrupted.
#[test]
fn the_others_have_time_to_save_after_a_failure() {
    let script = "if [ $RANK = 1 ]; then touch failed; exit 3; fi
         trap 'exit 9' TERM
         while [ ! -e failed ]; do sleep 0.01; done
         sleep 0.5; echo 1 > saved; exit 1";
    // Without the option they have none.
    for (options, saves) in [("-n 2 --failure-grace 60", 1), ("-n 2", 0)] {
        let told = [("1 other ranks have 60s to end", saves)];
        let (folder, lines) = job(options, script, 3, &told);
        assert_eq!(folder.path().join("saved").exists(), saves == 1, "{lines:?}");
    }
}

#[test]
fn ranks_that_do_not_end_after_a_failure_are_asked_to() {
    let script = "if [ $RANK = 1 ]; then exit 3; fi; exec sleep 1000";
    let told = [("rank 0 did not end within 300ms, and is asked to", 1)];
    job("-n 2 --failure-grace 0.3", script, 3, &told);
    let running = Running::start(run("-n 2 --failure-grace 600", script));
    running.wait_for("1 other ranks have 600s to end");
    running.signal("TERM");
    assert_eq!(running.end().0, 3);
}
