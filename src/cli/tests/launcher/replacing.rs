//! Jobs whose other ranks continue after a failure, or have time to save.

use crate::harness::{LIMIT, Running, complete, run};
use std::io::Read;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::path::Path;
use std::time::{Duration, Instant};

/// A script in which rank 0 joins and waits for the file `done`, and a newcomer does `then`. The other
/// ranks fail once rank 0 has joined.
pub(crate) fn failing(folder: &Path, then: &str) -> String {
    let joins = joins();
    let folder = folder.display();
    format!(
        "cd {folder}
         if [ $RANK = 0 ]; then
            {joins}
            while [ ! -e done ]; do sleep 0.01; done
            exit 0
         fi
         if [ \"$MAYPOLE_NEWCOMER\" != 1 ]; then {AFTER_JOINING} exit 3; fi
         {then}"
    )
}

/// Commands of a script that act as a joining rank, and wait for the file `joined`.
fn joins() -> String {
    let exe = std::env::current_exe().unwrap();
    let this = "replacing::a_process_that_joins";
    format!("{TELLS}=1 {} --exact {this} >/dev/null & {AFTER_JOINING}", exe.display())
}

/// Waits until [`joins`] has been done.
const AFTER_JOINING: &str = "while [ ! -e joined ]; do sleep 0.01; done;";

/// Set where a process of a script reports to the launcher that its rank has joined.
const TELLS: &str = "TEST_TELLS";

/// No test, but a process that a script starts. The launcher stops it in the end.
#[test]
fn a_process_that_joins() {
    if std::env::var_os(TELLS).is_some() {
        let mut launcher = connect();
        std::fs::write("joined", "").unwrap();
        launcher.set_read_timeout(Some(2 * LIMIT)).unwrap();
        let _ = launcher.read(&mut [0]);
    }
}

/// The connection by which a joined rank sends its status to the launcher.
fn connect() -> UnixStream {
    let name = std::env::var("MAYPOLE_STATUS_SOCKET").unwrap();
    let address = SocketAddr::from_abstract_name(name).unwrap();
    UnixStream::connect_addr(&address).unwrap()
}

fn said(lines: &[String], text: &str) -> usize {
    lines.iter().filter(|line| line.contains(text)).count()
}

/// Runs a job with a script for a folder of its own. It must end with `code`, and have said each text so
/// often.
fn job(
    options: &str,
    script: impl FnOnce(&Path) -> String,
    code: i32,
    told: &[(&str, usize)],
) -> (tempfile::TempDir, Vec<String>) {
    let folder = tempfile::tempdir().unwrap();
    let begun = Instant::now();
    let (ended, lines) = complete(run(options, &script(folder.path())));
    assert_eq!(ended, code, "{lines:?}");
    for (text, times) in told {
        assert_eq!(said(&lines, text), *times, "{text}: {lines:?}");
    }
    assert!(begun.elapsed() < Duration::from_secs(60));
    (folder, lines)
}

/// A script that runs in a folder.
fn within(folder: &Path, script: &str) -> String {
    format!("cd {}\n{script}", folder.display())
}

/// The same, with a script of [`failing`] ranks.
fn job_of_failing(options: &str, then: &str, code: i32, told: &[(&str, usize)]) -> Vec<String> {
    job(options, |folder| failing(folder, then), code, told).1
}

#[test]
fn a_process_takes_the_place_of_a_rank_that_failed_and_the_others_are_left_alone() {
    let then = "echo newcomer $RANK of $WORLD_SIZE at $MAYPOLE_ADMISSION_PORT; touch done";
    let place = "rank 1 exited with code 3; starting a process in its place, 1 of 2";
    let lines = job_of_failing("-n 2 --replace 2", then, 0, &[(place, 1), ("failed first", 0)]);
    let newcomer = lines.iter().find_map(|line| line.strip_prefix("[rank 1] newcomer 1 of 2 at "));
    let port: u16 = newcomer.and_then(|port| port.parse().ok()).expect("a port");
    assert!((20_000..32_000).contains(&port), "{lines:?}");
}

#[test]
fn processes_that_take_places_come_to_an_end_and_the_others_go_on_alone() {
    let then = "echo again >> starts; [ $(wc -l < starts) = 2 ] && touch done; exit 4";
    job_of_failing("-n 2 --replace 2", then, 0, &[("starting a process in its place", 2)]);
}

/// The line about a loss is the last one, in any order of ends. Both newcomers run before one of
/// them is lost, so it is not replaced, and rank 0 ends after that.
#[test]
fn the_end_of_a_job_that_went_on_without_ranks_tells_of_them() {
    let then = "if [ $RANK = 1 ]; then
                    while [ ! -e came ]; do sleep 0.01; done
                    touch lost; exit 4
                fi
                touch came
                while [ ! -e lost ]; do sleep 0.01; done
                touch done; exec sleep 1000";
    let lines = job_of_failing("-n 3 --replace 2 --grace 0.3", then, 0, &[]);
    let losses: Vec<_> = lines.iter().filter(|line| line.contains("the others went on")).collect();
    let [told] = losses[..] else { panic!("{lines:?}") };
    for loss in ["rank 1 exited with code 3", "rank 2 exited with code 3"] {
        assert!(told.contains(loss), "{lines:?}");
    }
}

/// No rank runs yet that could admit a newcomer, and the others wait for this rank.
#[test]
fn a_rank_that_fails_before_the_ranks_have_joined_is_started_as_itself() {
    let script = "if [ $RANK = 0 ]; then while [ ! -e done ]; do sleep 0.01; done; exit 0; fi
         [ -e failed ] || { touch failed; exit 3; }
         echo again as ${MAYPOLE_NEWCOMER:-itself}; touch done";
    job("-n 2 --replace 1", |folder| within(folder, script), 0, &[("[rank 1] again as itself", 1)]);
}

/// No rank is left that could admit the replacements.
#[test]
fn processes_whose_ranks_have_all_failed_are_stopped() {
    let then = "touch done; exec sleep 1000";
    let script = |folder: &Path| failing(folder, then).replace("exit 0", "exit 5");
    let told = [("starting a process in its place", 1), ("rank 0 exited with code 5", 1)];
    job("-n 2 --replace 9 --grace 0.3", script, 3, &told);
}

/// A newcomer that was not admitted within its time is no failure of a rank.
#[test]
fn a_newcomer_that_gives_up_waiting_does_not_use_up_the_replacements() {
    let folder = tempfile::tempdir().unwrap();
    let then = "echo again >> starts; [ $(wc -l < starts) = 3 ] && touch done; sleep 0.5; exit 4";
    let mut command = run("-n 2 --replace 1", &failing(folder.path(), then));
    let (code, lines) = complete({
        command.env("MAYPOLE_TIMEOUT", "0.4");
        command
    });
    assert_eq!(code, 0, "{lines:?}");
    assert_eq!(said(&lines, "was not admitted in time"), 2, "{lines:?}");
}

/// Waits until the process has ended whose number is in the file `zero`. The launcher receives ends
/// in their order.
const AFTER_RANK_0: &str = "while [ ! -e zero ]; do sleep 0.01; done
     while ! grep -qs ') Z' /proc/$(cat zero)/stat; do
        [ -e /proc/$(cat zero) ] || break
        sleep 0.01
     done";

/// No rank continues without a rank that fails when others have ended: exit code 0 would hide it.
#[test]
fn a_rank_that_fails_after_another_has_ended_fails_the_job() {
    let script = format!(
        "if [ $RANK = 0 ]; then echo $$ > new; mv new zero; exit 0; fi
         {AFTER_RANK_0}
         [ $RANK = 2 ] && exit 0
         exit 7"
    );
    let after = "exited with code 7 after a rank had ended with code 0";
    let told = [(after, 2), ("failed first", 1), ("starting a process in its place", 0)];
    job("-n 4 --replace 2", |folder| within(folder, &script), 7, &told);
}

/// Set where a process of a script is to act as a joined rank: it connects to its launcher.
const JOINS: &str = "TEST_JOINS";

/// No test, but a process that a script starts. It makes the file `done`, and ends long after rank 0.
#[test]
fn a_process_that_has_joined() {
    let Ok(code) = std::env::var(JOINS) else { return };
    let mut launcher = connect();
    std::fs::write("done", "").unwrap();
    // After its grace period the launcher stops a process that seems not to be admitted.
    launcher.set_read_timeout(Some(LIMIT)).unwrap();
    let begun = Instant::now();
    let zero = || std::fs::read_to_string("zero").ok();
    let runs = |number: String| {
        let status = std::fs::read_to_string(format!("/proc/{}/stat", number.trim()));
        status.is_ok_and(|status| !status.contains(") Z"))
    };
    while zero().is_none_or(runs) {
        assert!(begun.elapsed() < LIMIT, "rank 0 does not end");
        std::thread::yield_now();
    }
    launcher.set_read_timeout(Some(4 * GRACE)).unwrap();
    let _ = launcher.read(&mut [0]);
    std::fs::write("finished", "").unwrap();
    std::process::exit(code.parse().unwrap());
}

/// The grace period of the launcher in the tests with such a process.
const GRACE: Duration = Duration::from_millis(300);

/// A script in which rank 1 fails and its replacement does `then`, and rank 0 ends after that.
fn outlived(folder: &Path, then: &str) -> String {
    failing(folder, then).replace("exit 0", "echo $$ > new; mv new zero; exit 0")
}

/// A process that was admitted is a rank like the others, however long it runs after them.
#[test]
fn the_job_ends_with_the_process_that_was_admitted() {
    let exe = std::env::current_exe().unwrap();
    for code in [4, 0] {
        let this = "replacing::a_process_that_has_joined";
        let then = format!("{JOINS}={code} exec {} --exact {this} --nocapture", exe.display());
        let options = format!("-n 2 --replace 1 --grace {}", GRACE.as_secs_f32());
        let (folder, lines) = job(&options, |folder| outlived(folder, &then), code, &[]);
        assert!(folder.path().join("finished").exists(), "it was stopped: {lines:?}");
    }
}

/// The others have done without it.
#[test]
fn a_process_that_nobody_admitted_does_not_count_at_the_end() {
    let then = format!("touch done; {AFTER_RANK_0}\n exit 4");
    let how = "rank 1 exited with code 4; the others have ended without it";
    job("-n 2 --replace 1 --grace 60", |folder| outlived(folder, &then), 0, &[(how, 1)]);
}

/// No rank can admit it any more.
#[test]
fn a_newcomer_that_is_left_alone_is_stopped() {
    let how = "rank 1 came in the place of others, which have ended";
    let then = "touch done; exec sleep 1000";
    job_of_failing("-n 2 --replace 1 --grace 0.5", then, 0, &[(how, 1)]);
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
        let (folder, lines) = job(options, |folder| within(folder, script), 3, &told);
        assert_eq!(folder.path().join("saved").exists(), saves == 1, "{lines:?}");
    }
}

#[test]
fn ranks_that_do_not_end_after_a_failure_are_asked_to() {
    let script = "if [ $RANK = 1 ]; then exit 3; fi; exec sleep 1000";
    let told = [("rank 0 did not end within 300ms, and is asked to", 1)];
    job("-n 2 --failure-grace 0.3", |_| script.to_owned(), 3, &told);
    let running = Running::start(run("-n 2 --failure-grace 600", script));
    running.wait_for("1 other ranks have 600s to end");
    running.signal("TERM");
    assert_eq!(running.end().0, 3);
}
