//! Counts the instructions of one small call between two ranks.
//!
//! ```text
//! cargo bench --bench instructions
//! ```
//!
//! valgrind runs this program again and counts the instructions of rank 0 within the call alone.
//! Rank 0 begins each call late, when rank 1 has published its part and waits. So rank 0 never
//! waits, and the count is the same on every machine and under every load: it changes only if the
//! code, the compiler or the instruction set changes. Both ranks are threads that share a board, as
//! processes of one host do. valgrind has no AVX-512, which calls of this size do not use.

use maypole::{Communicator, Local, ReduceOp};
use std::process::{Command, ExitCode};
use std::time::Duration;

/// Calls that are counted. The same number of calls before them is not counted.
const CALLS: u64 = 500;
/// Long enough for rank 1 to reach its wait: valgrind slows programs down by a factor of 50.
const HEAD_START: Duration = Duration::from_micros(500);
/// The environment variable with the call that the program under valgrind is to count.
const VARIABLE: &str = "MAYPOLE_COUNTED_CALL";

const NAMES: [&str; 4] = ["all-reduce", "all-gather", "broadcast", "barrier"];

fn main() -> ExitCode {
    if let Ok(name) = std::env::var(VARIABLE) {
        Local::new(2).run(|mut comm| repeat(&mut comm, &name));
        return ExitCode::SUCCESS;
    }
    if Command::new("valgrind").arg("--version").output().is_err() {
        eprintln!("SKIPPED: nothing was counted. Install valgrind, and start this bench again");
        return ExitCode::SUCCESS;
    }
    println!("# instructions of rank 0 a call, 8 bytes, 2 ranks, no waiting; {CALLS} calls");
    for name in NAMES {
        match count(name) {
            Ok(instructions) => println!("{name:>12} {:>8}", instructions / CALLS),
            Err(error) => {
                eprintln!("{name}: {error}");
                return ExitCode::FAILURE;
            }
        }
    }
    ExitCode::SUCCESS
}

/// The instructions of all counted calls.
fn count(name: &str) -> Result<u64, String> {
    let this = std::env::current_exe().map_err(|error| format!("no path of this: {error}"))?;
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null", "--fair-sched=yes"])
        .arg("--toggle-collect=*counted_call*")
        .arg(this)
        .env(VARIABLE, name)
        .output()
        .map_err(|error| format!("cannot run valgrind: {error}"))?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let collected = said.lines().find_map(|line| line.split_once("Collected : "));
    let (_, number) = collected.ok_or_else(|| format!("valgrind counted nothing:\n{said}"))?;
    number.trim().parse().map_err(|_| format!("not a number: {number}"))
}

/// Makes the call again and again. Only the later half of rank 0's calls are counted.
fn repeat(comm: &mut Communicator, name: &str) {
    for index in 0..2 * CALLS {
        if comm.rank() == 0 {
            std::thread::sleep(HEAD_START);
        }
        if comm.rank() == 0 && index >= CALLS {
            counted_call(comm, name);
        } else {
            call(comm, name);
        }
    }
}

/// The function whose instructions valgrind collects.
#[inline(never)]
fn counted_call(comm: &mut Communicator, name: &str) {
    call(comm, name);
}

#[inline(always)]
fn call(comm: &mut Communicator, name: &str) {
    let mut data = std::hint::black_box([1.0f32; 2]);
    let done = match name.as_bytes() {
        b"all-reduce" => comm.all_reduce(&mut data, ReduceOp::Sum),
        b"all-gather" => comm.all_gather(&mut data),
        b"broadcast" => comm.broadcast(&mut data, 0),
        _ => comm.barrier(),
    };
    done.expect("a call of two threads");
    std::hint::black_box(data);
}
