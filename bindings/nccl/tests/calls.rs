//! Programs in C over the fake driver, as programs that are built for NCCL use the library: they
//! allocate, make streams and copy by the driver's own functions. Each rank is a process, or a
//! thread with a GPU of its own. The fake driver does not model a GPU's memory, scheduling or speed.
#![cfg(target_os = "linux")]

#[path = "../../../tests/common/fake_gpu.rs"]
mod fake_gpu;
#[path = "../../../tests/common/network.rs"]
mod network;
#[path = "../../../tests/common/skip.rs"]
mod skip;

use fake_gpu::FakeDriver;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{OnceLock, RwLock};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Timeout of one program on a busy machine, in seconds.
const LIMIT: u64 = 240;

fn here() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests")
}

/// The library as `libnccl.so.2`, and the programs.
struct Built {
    folder: TempDir,
}

impl Built {
    /// Compiles all programs once. `None` if there is no C++ compiler, and so no driver.
    fn get() -> Option<&'static (Self, &'static FakeDriver)> {
        static BUILT: OnceLock<Option<(Built, &'static FakeDriver)>> = OnceLock::new();
        let build = || {
            let driver = FakeDriver::get()?;
            Some((Self::new(driver), driver))
        };
        let built = BUILT.get_or_init(build).as_ref();
        if built.is_none() {
            skip::skipped("there is no fake driver");
        }
        built
    }

    fn new(driver: &FakeDriver) -> Self {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        std::fs::copy(library(), folder.path().join("libnccl.so.2")).unwrap();
        for program in PROGRAMS {
            compile(program, folder.path(), driver);
        }
        Self { folder }
    }
}

/// The library that cargo has built with this test.
fn library() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let library = test.parent().unwrap().join("libnccl.so");
    assert!(library.is_file(), "cargo builds the library before its tests");
    library
}

const PROGRAMS: [&str; 12] = [
    "collectives",
    "company",
    "hosts",
    "messages",
    "groups",
    "held",
    "hard",
    "captures",
    "failures",
    "replay",
    "states",
    "instead",
];

fn compile(program: &str, folder: &Path, driver: &FakeDriver) {
    let driver = driver.library_path();
    let driver = driver.split(':').next().unwrap();
    let output = Command::new("cc")
        .args(["-std=c11", "-O1", "-Wall", "-Wextra", "-Werror", "-pthread", "-I"])
        .arg(here().parent().unwrap())
        .arg(here().join(program).with_extension("c"))
        .arg(folder.join("libnccl.so.2"))
        .arg(Path::new(driver).join("libcuda.so.1"))
        .args(["-lm", "-o"])
        .arg(folder.join(program))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// How the ranks of a program run.
#[derive(Clone, Copy, Debug)]
enum Ranks {
    /// This many processes, each with a GPU of its own.
    Processes(usize),
    /// This many processes on the same GPU.
    OnOneGpu(usize),
    /// This many threads of a process, each with a GPU of its own.
    Threads(usize),
}
use Ranks::{OnOneGpu, Processes, Threads};

/// A program that is stopped when it is dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // A program that has ended cannot be killed.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Lock for tests with limits for the time of a call: they run alone, all others concurrently.
static TURN: RwLock<()> = RwLock::new(());

fn command(built: &Built, driver: &FakeDriver, program: &str, ranks: Ranks) -> Command {
    let mut command = Command::new(built.folder.path().join(program));
    for (name, _) in std::env::vars_os() {
        let ours = ["MAYPOLE_", "NCCL_", "FAKE_CUDA_", "HOME"];
        if name.to_str().is_some_and(|name| ours.iter().any(|prefix| name.starts_with(prefix))) {
            command.env_remove(name);
        }
    }
    let path = format!("{}:{}", built.folder.path().display(), driver.library_path());
    command.env("LD_LIBRARY_PATH", path).env("CUDA_VISIBLE_DEVICES", "0,1,2,3,4,5,6,7");
    command.env("FAKE_CUDA_DEVICES", "8").env("TEST_LIMIT", LIMIT.to_string());
    // Room for several communicators, whose kernels all run at the same time.
    command.env("FAKE_CUDA_LEAKS", "1").env("FAKE_CUDA_PROCESSORS", "66");
    if let OnOneGpu(_) = ranks {
        command.env("TEST_DEVICE", "0");
    }
    command
}

/// Runs `words` of a program with these ranks, and returns its output.
///
/// # Panics
/// If it fails, or does not end.
#[track_caller]
fn said(program: &str, words: &[&str], ranks: Ranks, variables: &[(&str, &str)]) -> String {
    let Some((built, driver)) = Built::get() else { return String::new() };
    let mut command = command(built, driver, program, ranks);
    let (number, kind) = match ranks {
        Processes(number) | OnOneGpu(number) => (number, "processes"),
        Threads(number) => (number, "threads"),
    };
    command.arg(words[0]).args([&number.to_string(), kind]).args(&words[1..]);
    command.envs(variables.iter().copied());
    let (mut out, into) = std::io::pipe().unwrap();
    command.stdin(Stdio::null()).stdout(into.try_clone().unwrap()).stderr(into);
    let started = Instant::now();
    let mut running = Running(command.spawn().unwrap());
    // The ends of the pipe that this process has.
    drop(command);
    let mut text = Vec::new();
    out.read_to_end(&mut text).unwrap();
    let status = running.0.wait().unwrap();
    let text = String::from_utf8_lossy(&text).into_owned();
    assert!(started.elapsed() < Duration::from_secs(2 * LIMIT));
    assert!(status.success(), "{program} {words:?} {ranks:?} {variables:?}: {status}\n{text}");
    text
}

/// Half of the worlds `all`, in turn, and at least one.
fn half(all: &[Ranks]) -> Vec<Ranks> {
    skip::every_nth(all.len().min(2), all.iter().copied())
}

/// Runs a test of a program in half of the worlds `all`, and checks it for leaks.
#[track_caller]
fn run(program: &str, test: &str, all: &[Ranks]) {
    let _turn = TURN.read().unwrap();
    for ranks in half(all) {
        let text = said(program, &[test], ranks, &[]);
        print!("{text}");
        check_leaks(&text);
    }
}

/// Runs a test that ends processes early, or captures calls in graphs, whose memory stays allocated.
#[track_caller]
fn run_and_leave(program: &str, test: &str, all: &[Ranks]) {
    let _turn = TURN.read().unwrap();
    for ranks in half(all) {
        print!("{}", said(program, &[test], ranks, &[]));
    }
}

/// Checks the fake driver's list of leaks of a process. Contexts and modules live as long as the
/// process. Mappings of other processes are freed when the next communicator is made; `nothing_left` in
/// `hard.c` checks that.
#[track_caller]
fn check_leaks(text: &str) {
    for line in text.lines().filter(|line| line.contains("left at exit")) {
        let (_, left) = line.split_once("exit: ").unwrap();
        let kept = [" modules", " contexts", " device allocations"];
        let is_kept = |what: &str| kept.iter().any(|name| what.ends_with(name));
        assert!(left.split(", ").all(is_kept), "{text}");
    }
}

/// Replays a trace in half of these worlds, or in all of them with `TESTS=all`. The first world also
/// replays the trace that the library has recorded.
#[track_caller]
fn replay(trace: &str) {
    let _turn = TURN.read().unwrap();
    let file = here().join("traces").join(trace).with_extension("txt");
    let is_left = ["graph", "abort"].contains(&trace);
    let worlds = [Processes(2), Processes(3), Processes(4), OnOneGpu(2)];
    for (nth, ranks) in half(&worlds).into_iter().enumerate() {
        let recorded = tempfile::tempdir().unwrap();
        let record = recorded.path().join("record");
        let record = record.to_str().unwrap();
        let text =
            said("replay", &["trace", file.to_str().unwrap()], ranks, &[("TEST_RECORD", record)]);
        print!("{text}");
        if is_left {
            continue;
        }
        check_leaks(&text);
        if nth == 0 || skip::runs_all() {
            // The recorded trace contains the same calls.
            print!("{}", said("replay", &["trace", record], ranks, &[]));
        }
    }
}

#[test]
fn every_collective_is_right() {
    crate::skip::takes_turns!(4);
    run("collectives", "all", &[Processes(2), Threads(3), Processes(4), Processes(1), OnOneGpu(2)]);
}

#[test]
fn a_factor_is_that_of_its_rank_and_read_when_it_has_to_be() {
    crate::skip::takes_turns!(4);
    run("collectives", "factors", &[Processes(2), Threads(3), Processes(1)]);
    run("collectives", "late_factor", &[Processes(2), Processes(1)]);
}

#[test]
fn an_average_does_not_become_infinite() {
    run("collectives", "great_average", &[Processes(2), Processes(3), Processes(1)]);
}

#[test]
fn calls_of_nothing_do_nothing() {
    run("collectives", "nothing", &[Processes(2), Processes(1)]);
}

#[test]
fn calls_on_any_stream_run_in_their_order() {
    run("collectives", "named_streams", &[Processes(2), Processes(1)]);
    run("collectives", "call_order", &[Processes(2), Processes(3), Threads(2), OnOneGpu(2)]);
}

#[test]
fn messages_are_right() {
    crate::skip::takes_turns!(4);
    run("messages", "alone", &[Processes(2), Threads(3)]);
    run("messages", "all_to_all", &[Processes(2), Processes(3), Threads(4), Processes(1)]);
    run("messages", "in_order", &[Processes(2), Threads(3), Processes(1)]);
    run("messages", "ring", &[Processes(2), Processes(4), Threads(3)]);
    run("messages", "large", &[Processes(2), Threads(3)]);
}

#[test]
fn messages_to_oneself_need_their_counterpart() {
    run("messages", "to_oneself", &[Processes(2), Processes(1), Threads(2)]);
}

#[test]
fn collectives_and_messages_are_in_one_group() {
    run("messages", "mixed_group", &[Processes(2), Threads(3), OnOneGpu(2)]);
}

#[test]
fn groups_start_at_their_end() {
    run("groups", "nested", &[Processes(2), Threads(2)]);
    run("groups", "wrong_in_group", &[Processes(2), Threads(2)]);
    run("groups", "lists", &[Processes(2), Threads(3)]);
}

#[test]
fn wrong_arguments_are_refused() {
    run("groups", "arguments", &[Processes(2), Threads(3)]);
}

#[test]
fn a_group_has_calls_of_three_communicators() {
    run("groups", "three_comms", &[Processes(2), Threads(3)]);
}

#[test]
fn communicators_are_split() {
    crate::skip::takes_turns!(4);
    run("groups", "split", &[Processes(2), Processes(4), Threads(3)]);
    run("groups", "split_often", &[Processes(2), Threads(2)]);
}

#[test]
fn thirty_communicators_are_used_at_the_same_time() {
    crate::skip::takes_turns!(4);
    // Each takes 35 MiB.
    let memory = [("FAKE_CUDA_MEMORY", "4294967296")];
    let _turn = TURN.read().unwrap();
    print!("{}", said("groups", &["many_comms"], Processes(2), &memory));
}

#[test]
fn one_thread_has_all_ranks() {
    crate::skip::takes_turns!(4);
    run("groups", "one_thread", &[Processes(1)]);
}

#[test]
fn no_call_waits_for_another_rank() {
    crate::skip::takes_turns!(4);
    let _turn = TURN.write().unwrap();
    for test in ["calls", "groups", "splits", "counts", "messages"] {
        for ranks in half(&[Processes(2), Threads(2), Processes(3), OnOneGpu(2)]) {
            let text = said("held", &[test], ranks, &[]);
            println!("{ranks:?}\n{text}");
            check_leaks(&text);
        }
    }
}

#[test]
fn a_split_waits_for_no_call() {
    run("held", "split_beside", &[Processes(2), Threads(2), Processes(3)]);
}

#[test]
fn calls_that_nobody_joins_are_aborted_at_once() {
    let _turn = TURN.write().unwrap();
    for ranks in half(&[Processes(2), Threads(2), Processes(3)]) {
        let text = said("held", &["aborted"], ranks, &[]);
        println!("{ranks:?}\n{text}");
    }
}

#[test]
fn a_rank_may_end_after_its_last_call() {
    run("hard", "end_after_last", &[Processes(2), Processes(3)]);
    run_and_leave("hard", "end_without_destroy", &[Processes(2), Processes(3)]);
    run_and_leave("hard", "abort_at_end", &[Processes(2), Processes(3)]);
}

#[test]
fn ranks_may_meet_elsewhere_between_their_calls() {
    run("hard", "meet_between", &[Processes(2), Processes(3), Threads(2)]);
}

#[test]
fn a_killed_rank_is_an_error_on_the_others() {
    run_and_leave("hard", "killed", &[Processes(2), Processes(3)]);
}

/// Runs a test of `failures.c` with variables that inject a failure. Returns its output.
#[track_caller]
fn fail(test: &str, variables: &[(&str, &str)]) -> String {
    let _turn = TURN.read().unwrap();
    let ranks = half(&[Processes(2), Processes(3)])[0];
    let said = said("failures", &[test], ranks, variables);
    print!("{said}");
    said
}

/// Runs a test of `company.c` with variables of the fake driver. Returns its output.
#[track_caller]
fn keep_company(test: &str, all: &[Ranks], variables: &[(&str, &str)]) -> String {
    let _turn = TURN.read().unwrap();
    let said: String =
        half(all).into_iter().map(|it| said("company", &[test], it, variables)).collect();
    print!("{said}");
    said
}

/// A driver that waits, and blocks all launches, where CUDA's manual allows that.
const WAITING: [(&str, &str); 2] = [("FAKE_CUDA_LOAD_WAITS", "1"), ("FAKE_CUDA_FREE_HOLDS", "1")];

#[test]
fn a_capture_of_the_program_goes_on_beside_communicators_that_come_and_go() {
    let trace = [("FAKE_CUDA_CAPTURE_TRACE", "1")];
    keep_company("captured", &[Processes(2), Threads(2)], &trace);
}

#[test]
fn memory_is_free_however_far_apart_ranks_leave() {
    keep_company("apart", &[Processes(2)], &WAITING);
    keep_company("killed", &[Processes(3)], &WAITING);
}

#[test]
fn one_thread_has_several_ranks_of_a_gpu() {
    keep_company("one_thread", &[Processes(1)], &[]);
    keep_company("one_thread", &[Processes(1)], &WAITING);
}

#[test]
fn ranks_of_a_gpu_call_two_communicators_in_other_orders() {
    let variables = [WAITING[0], WAITING[1], ("TEST_DEVICE", "0")];
    keep_company("crossed", &[Threads(2)], &variables);
    keep_company("crossed", &[Threads(2), Processes(2)], &WAITING);
}

#[test]
fn a_group_starts_all_of_its_calls_or_none() {
    keep_company("none_of_a_group", &[Processes(2), Threads(2)], &[]);
}

#[test]
fn a_full_gpu_is_said_with_what_helps_and_the_log_has_the_lanes() {
    let memory = ("FAKE_CUDA_MEMORY", "8589934592");
    let log = ("NCCL_DEBUG", "INFO");
    let text = keep_company("until_full", &[Processes(2)], &[memory, log]);
    let lanes = |number: usize| format!("at most {number} lanes");
    assert!(text.contains(&lanes(32)) && text.contains(&lanes(1)), "{text}");
}

#[test]
fn an_error_is_there_when_the_stream_is_done() {
    keep_company("error_at_end", &[Processes(2), Threads(2)], &[("MAYPOLE_TIMEOUT", "1")]);
}

#[test]
fn teams_are_those_of_one_host() {
    keep_company("teams", &[Processes(3), Threads(2)], &[]);
}

#[test]
fn memory_of_other_processes_is_whole_blocks() {
    let variables = [("FAKE_CUDA_WHOLE_BLOCKS", "1")];
    keep_company("crossed", &[Processes(2)], &variables);
}

#[test]
fn variables_are_read_from_files_and_wrong_values_are_said() {
    let Some(_) = Built::get() else { return };
    let home = tempfile::tempdir().unwrap();
    let set = "# lines of a file\nNCCL_DEBUG=INFO\nNCCL_MAX_CTAS=3\nnothing\nNCCL_ALGO=Ring\n";
    std::fs::write(home.path().join(".nccl.conf"), set).unwrap();
    let home = ("HOME", home.path().to_str().unwrap());
    let text = keep_company("teams", &[Processes(1)], &[home, ("NCCL_COMM_BLOCKING", "yes")]);
    for line in [
        "at most 3 lanes",
        "NCCL_COMM_BLOCKING=yes has no effect: it is not 0 or 1",
        "line 4 of",
        "variables without effect on Maypole: NCCL_ALGO",
    ] {
        assert!(text.contains(line), "{line}:\n{text}");
    }
    for (name, value) in [
        ("NCCL_MAX_CTAS", "abc"),
        ("NCCL_MAX_NCHANNELS", "-3"),
        ("NCCL_P2P_DISABLE", "on"),
        ("NCCL_P2P_LEVEL", "fast"),
        ("NCCL_SOCKET_FAMILY", "inet"),
        ("MAYPOLE_NCCL_VERSION", "new"),
        ("NCCL_CONF_FILE", "/not/there.conf"),
        ("NCCL_DEBUG", "loud"),
    ] {
        let debug = if name == "NCCL_DEBUG" { (name, value) } else { ("NCCL_DEBUG", "WARN") };
        let text = keep_company("teams", &[Processes(1)], &[(name, value), debug]);
        let said = text.lines().any(|line| line.contains("WARN") && line.contains(value));
        assert!(said, "{name}={value}: {text}");
    }
}

#[test]
fn calls_that_differ_are_an_error_on_all_ranks() {
    fail("other_count", &[]);
}

#[test]
fn a_rank_that_does_not_call_is_an_error_after_the_timeout() {
    crate::skip::takes_turns!(4);
    fail("timeout", &[("MAYPOLE_TIMEOUT", "2")]);
}

#[test]
fn a_call_after_a_rank_has_left_is_an_error_long_before_the_timeout() {
    crate::skip::takes_turns!(4);
    fail("left", &[]);
}

const PEER: (&str, &str) = ("MAYPOLE_CUDA_MAILBOXES", "peer");
const HOST: (&str, &str) = (PEER.0, "host");

/// The driver says that GPUs do not reach one another, writes are lost, the user forbids it, or the user wants
/// memory of the host.
#[test]
fn gpus_that_do_not_reach_each_other_meet_in_memory_of_the_host() {
    crate::skip::takes_turns!(4);
    let _turn = TURN.read().unwrap();
    let apart = ("FAKE_CUDA_NO_PEERS", "all");
    let cases = [
        ("collectives", "all", Processes(3), apart),
        ("collectives", "all", Threads(2), HOST),
        ("collectives", "factors", OnOneGpu(2), HOST),
        ("messages", "all_to_all", Processes(3), ("FAKE_CUDA_MIRROR", "all")),
        ("messages", "large", Threads(3), apart),
        ("groups", "three_comms", Processes(2), ("NCCL_P2P_DISABLE", "1")),
        ("groups", "one_thread", Processes(1), apart),
        ("groups", "split", Processes(4), apart),
        ("held", "split_beside", Threads(2), HOST),
        ("hard", "nothing_left", Processes(3), apart),
        ("hard", "nothing_left_of_aborts", Processes(2), HOST),
    ];
    for (program, test, ranks, variable) in skip::every_nth(2, cases) {
        let text = said(program, &[test], ranks, &[variable, ("NCCL_DEBUG", "INFO")]);
        assert!(text.contains("mailboxes in memory of the host: "), "{text}");
        check_leaks(&text);
    }
    let cases = [
        ("captures", "two_streams"),
        ("captures", "graph_lives_longer"),
        ("hard", "abort_at_end"),
        ("hard", "killed"),
        ("states", "shrunk"),
        ("failures", "other_count"),
        ("failures", "left"),
    ];
    for (program, test) in skip::every_nth(2, cases) {
        print!("{}", said(program, &[test], Processes(3), &[apart]));
    }
}

#[test]
fn a_communicator_that_cannot_be_made_is_an_error_on_all_ranks() {
    crate::skip::takes_turns!(4);
    fail("no_init", &[("FAKE_CUDA_NO_PEERS", "all"), PEER]);
    for mirror in ["all", "0-1"] {
        let text = fail("no_init", &[("FAKE_CUDA_MIRROR", mirror), PEER]);
        assert!(text.contains("(ACS)") && text.contains("ranks 0 and 1"), "{text}");
    }
    for level in [("NCCL_P2P_DISABLE", "1"), ("NCCL_P2P_LEVEL", "LOC"), ("NCCL_P2P_LEVEL", "NVL")] {
        let text = fail("no_init", &[level, PEER]);
        assert!(text.contains(level.0), "{text}");
    }
    fail("no_init", &[("TEST_FAIL", "cuMemAlloc_v2:1")]);
    fail("no_init", &[("TEST_FAIL", "cuIpcOpenMemHandle_v2:1:205"), PEER]);
    let text = fail("no_init", &[("TEST_FAIL", "cuMemHostRegister_v2:1"), HOST]);
    assert!(text.contains("registering"), "{text}");
    let text = fail("no_init", &[(HOST.0, "gpu")]);
    assert!(text.contains("none of auto, peer and host"), "{text}");
}

#[test]
fn a_kernel_that_fails_is_an_error_on_the_others() {
    fail("broken_context", &[("TEST_FAIL", "kernel:3:719")]);
}

#[test]
fn the_others_go_on_without_a_killed_rank() {
    fail("shrink_after_killed", &[]);
}

#[test]
fn a_revoked_communicator_is_shrunk_to_all_of_its_ranks() {
    fail("revoked", &[]);
}

#[test]
fn a_child_of_a_fork_hurts_nobody() {
    run("hard", "forked", &[Processes(2)]);
}

#[test]
fn calls_come_from_any_thread() {
    run("hard", "other_threads", &[Processes(2), Threads(2)]);
}

#[test]
fn any_process_makes_the_id() {
    run("hard", "other_id", &[Processes(2), Processes(3)]);
}

#[test]
fn communicators_are_made_without_blocking() {
    run("hard", "without_blocking", &[Processes(2), Threads(2)]);
}

#[test]
fn nothing_is_left_of_communicators() {
    crate::skip::takes_turns!(4);
    run("hard", "nothing_left", &[Processes(2), Processes(3), Threads(3)]);
    run("hard", "nothing_left_of_aborts", &[Processes(2), Processes(3)]);
}

#[test]
fn calls_are_captured() {
    crate::skip::takes_turns!(4);
    run_and_leave(
        "captures",
        "first_call",
        &[Processes(2), Processes(3), Threads(2), Processes(1)],
    );
    run_and_leave("captures", "in_global_mode", &[Processes(2), Processes(1)]);
    run_and_leave("captures", "two_streams", &[Processes(2), Processes(3)]);
    run_and_leave("captures", "long_graph", &[Processes(2)]);
    run_and_leave("captures", "graph_lives_longer", &[Processes(2), Processes(1)]);
}

#[test]
fn the_calls_of_data_parallelism_are_right() {
    crate::skip::takes_turns!(4);
    replay("ddp");
}

#[test]
fn the_calls_of_sharded_parameters_are_right() {
    crate::skip::takes_turns!(4);
    replay("fsdp2");
}

#[test]
fn the_calls_of_pipelines_are_right() {
    crate::skip::takes_turns!(4);
    replay("p2p");
}

#[test]
fn the_calls_of_mixtures_of_experts_are_right() {
    crate::skip::takes_turns!(4);
    replay("moe");
}

#[test]
fn the_calls_of_graphs_are_right() {
    crate::skip::takes_turns!(4);
    replay("graph");
}

#[test]
fn the_calls_of_aborts_are_right() {
    crate::skip::takes_turns!(4);
    replay("abort");
}

#[test]
fn the_calls_of_groups_of_groups_are_right() {
    crate::skip::takes_turns!(4);
    replay("destroy");
}

#[test]
fn a_communicator_is_shrunk_to_the_ranks_that_are_left() {
    run_and_leave("states", "shrunk", &[Processes(3), Threads(2)]);
    run_and_leave("states", "revoked", &[Processes(2), Threads(3)]);
}

#[test]
fn handles_are_refused_after_their_end() {
    run("states", "handles", &[Processes(2), Threads(2)]);
}

#[test]
fn what_waits_for_ranks_need_not_hold_up_its_caller() {
    run("states", "without_waiting", &[Processes(3), Threads(2)]);
    run_and_leave("states", "never_joined", &[Processes(2), Threads(2)]);
}

#[test]
fn a_split_that_nobody_joins_is_aborted() {
    crate::skip::takes_turns!(4);
    run_and_leave("states", "never_split", &[Processes(2), Threads(2)]);
}

#[test]
fn threads_on_one_gpu_need_streams_of_their_own() {
    let _turn = TURN.read().unwrap();
    print!("{}", said("states", &["shared"], Threads(2), &[("TEST_DEVICE", "0")]));
}

#[test]
fn another_library_serves_gpus_that_do_not_reach_each_other() {
    crate::skip::takes_turns!(4);
    let Some((built, _)) = Built::get() else { return };
    let real = built.folder.path().join("libreal.so");
    let mut compile = Command::new("cc");
    compile.args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-I"]);
    compile.arg(here().parent().unwrap()).arg(here().join("real.c")).arg("-o").arg(&real);
    assert!(compile.status().unwrap().success());
    let _turn = TURN.read().unwrap();
    let apart = ("FAKE_CUDA_NO_PEERS", "all");
    let text = said("instead", &["refused"], Processes(2), &[apart, PEER]);
    assert!(text.contains("cannot reach the memory"), "{text}");
    let missing = ("MAYPOLE_NCCL_REAL", "/not/there.so");
    let text = said("instead", &["refused"], Processes(2), &[apart, missing, PEER]);
    assert!(text.contains("MAYPOLE_NCCL_REAL=/not/there.so"), "{text}");
    let named = ("MAYPOLE_NCCL_REAL", real.to_str().unwrap());
    let text = said("instead", &["forwarded"], Processes(2), &[apart, named, PEER]);
    for rank in 0..2 {
        let own = format!("real: rank {rank} ");
        let lines: Vec<_> = text.lines().filter_map(|line| line.strip_prefix(&own)).collect();
        assert!(lines.contains(&"of 2 by a real name, plain"), "{text}");
        // The end of the operation comes after the call that uses it, within the group.
        let at = |start: &str| lines.iter().position(|line| line.starts_with(start)).unwrap();
        assert!(at("all_reduce 0x10000 0x10000 7 7 77") < at("ends operation 77"), "{text}");
        // The library's calls of its own symbols do not bind to this library.
        assert_eq!(at("reduce 11 to 1") + 1, at("all_reduce 0x10000 0x10000 11 7 0"), "{text}");
        assert!(
            lines.contains(&"deregisters 0x10000") && lines.contains(&"of 2 destroys"),
            "{text}"
        );
    }
    // GPUs with peer access need no other library.
    run("states", "handles", &[Processes(2)]);
}

/// Starts rank `r` on host `hosts[r]`, with its own variables. Returns the output of each; `None` if hosts
/// are not available.
fn on_hosts(hosts: &[usize], variables: &[&[(&str, &str)]]) -> Option<Vec<String>> {
    let (built, driver) = Built::get()?;
    let network = match network::Network::new(2) {
        Ok(network) => network,
        Err(why) => {
            skip::skipped(&why);
            return None;
        }
    };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("id");
    let start = |(rank, host): (usize, &usize)| {
        let program = built.folder.path().join("hosts");
        let usual = command(built, driver, "hosts", Processes(1));
        let mut command = network.command(*host, program.to_str().unwrap());
        for (name, value) in usual.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command.envs(variables.get(rank).copied().unwrap_or_default().iter().copied());
        command.args([&rank.to_string(), &hosts.len().to_string()]).arg(&file);
        let command = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        Running(command.spawn().unwrap())
    };
    let mut started: Vec<_> = hosts.iter().enumerate().map(start).collect();
    let said = started.iter_mut().map(|running| {
        let mut text = String::new();
        running.0.stdout.take().unwrap().read_to_string(&mut text).unwrap();
        assert!(running.0.wait().unwrap().success(), "{text}");
        text
    });
    Some(said.collect())
}

#[test]
fn ranks_on_several_hosts_meet() {
    let _turn = TURN.read().unwrap();
    let log: &[_] = &[("NCCL_DEBUG", "INFO")];
    let Some(said) = on_hosts(&[0, 1], &[log, log]) else { return };
    for (rank, text) in said.iter().enumerate() {
        assert!(text.contains(&network::address(0)) && text.contains("init: 0 "), "{said:?}");
        let place = "mailboxes in memory of the host: the ranks are on several hosts";
        let ways = format!("{place}, couriers to ranks {} by messages of a stream\n", 1 - rank);
        assert!(text.contains(&ways), "{said:?}");
    }
    // The interface that a variable names, also where an address is of IPv6.
    for (name, value, address) in [
        ("NCCL_SOCKET_IFNAME", "v1", format!("{}.1", network::OTHER)),
        ("NCCL_SOCKET_IFNAME", "=v1", format!("{}.1", network::OTHER)),
        ("NCCL_SOCKET_IFNAME", "^v0,lo", format!("{}.1", network::OTHER)),
        ("MAYPOLE_INTERFACE", "v1", format!("{}.1", network::OTHER)),
        ("NCCL_SOCKET_FAMILY", "AF_INET6", network::address6(0)),
    ] {
        let set: &[(&str, &str)] = &[(name, value)];
        let said = on_hosts(&[0, 1], &[set, set]).unwrap();
        for text in &said {
            let is_there = text.contains(&format!("address: {address}\n"));
            assert!(is_there && text.contains("init: 0 "), "{name}={value}: {said:?}");
        }
    }
    // Ranks of one host meet at the same address, and a name sets hosts apart.
    let said = on_hosts(&[0, 0], &[]).unwrap();
    assert!(said.iter().all(|text| text.contains("init: 0 ")), "{said:?}");
    let said = on_hosts(&[0, 0], &[&[("NCCL_HOSTID", "a")], &[("NCCL_HOSTID", "b")]]).unwrap();
    assert!(said.iter().all(|text| text.contains("init: 0 ")), "{said:?}");
}

#[test]
fn a_rank_that_reaches_no_rank_0_is_told_of_other_hosts_in_time() {
    let _turn = TURN.read().unwrap();
    let short = ("MAYPOLE_TIMEOUT", "2");
    let loopback: &[_] = &[("NCCL_SOCKET_IFNAME", "lo"), short];
    let Some(said) = on_hosts(&[0, 1], &[loopback, &[short]]) else { return };
    for text in &said {
        let is_told = text.contains("an address of each host alone") && text.contains("interface");
        assert!(text.contains("init: 2 ") && is_told, "{said:?}");
    }
    let wrong: &[_] = &[("NCCL_SOCKET_IFNAME", "nosuch0")];
    let said = on_hosts(&[0], &[wrong]).unwrap();
    let lists = said[0].contains("NCCL_SOCKET_IFNAME=nosuch0") && said[0].contains("on v0");
    assert!(said[0].starts_with("id: 2") && lists, "{said:?}");
}
