//! Measures messages between two ranks, and a plain copy of the same bytes in the same seconds.
//!
//! ```text
//! cargo bench --bench messages                         # two processes, through shared memory
//! MAYPOLE_TRANSPORT=tcp cargo bench --bench messages   # the same over TCP
//! ```
//!
//! In every round rank 0 sends a train of messages to rank 1, and waits for one byte back. Then it
//! copies as many bytes from one buffer to another. The column "of copy" is the median over rounds
//! of the copy's time divided by the messages' time: at 1, messages are as fast as a copy.
//! "us/round trip" is the time of a message there and back.

use maypole::{Communicator, Result};
use std::process::Command;
use std::time::{Duration, Instant};

#[path = "../src/cli/statistics.rs"]
mod statistics;

const SIZES: [usize; 7] = [8, 1 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 16 << 20];
const ROUNDS: usize = 15;
/// Bytes of a train of messages. A train has at least eight messages.
const TRAIN: usize = 32 << 20;

fn main() -> Result<()> {
    if std::env::var_os("MAYPOLE_WORLD").is_none() && std::env::var_os("MAYPOLE_RANK").is_none() {
        let this = std::env::current_exe().expect("a path");
        let status =
            Command::new(env!("CARGO_BIN_EXE_maypole")).args(["run", "-n", "2"]).arg(this).status();
        std::process::exit(status.ok().and_then(|status| status.code()).unwrap_or(1));
    }
    let mut comm = Communicator::from_env()?;
    if comm.rank() == 0 {
        println!(
            "{:>9}  {:>10}  {:>7}  {:>7}  {:>13}",
            "bytes", "us/message", "GB/s", "of copy", "us/round trip"
        );
    }
    for bytes in SIZES {
        measure(&mut comm, bytes)?;
    }
    comm.close()
}

fn measure(comm: &mut Communicator, bytes: usize) -> Result<()> {
    let mut from = vec![1u8; bytes];
    let mut into = vec![0u8; bytes];
    let messages = (TRAIN / bytes).clamp(8, 2000);
    let mut times = Vec::new();
    let mut ratios = Vec::new();
    let mut turns = Vec::new();
    for round in 0..ROUNDS {
        comm.barrier()?;
        let sent = train(comm, &mut from, messages)?;
        let start = Instant::now();
        (0..messages).for_each(|_| {
            std::hint::black_box(&mut into).copy_from_slice(std::hint::black_box(&from))
        });
        let copied = start.elapsed();
        comm.barrier()?;
        let turned = turn(comm, &mut from)?;
        // The first round is not counted, because it opens the connection.
        if round > 0 {
            times.push(sent.as_secs_f64() / messages as f64);
            ratios.push(copied.as_secs_f64() / sent.as_secs_f64());
            turns.push(turned.as_secs_f64());
        }
    }
    if comm.rank() == 0 {
        let median = |values| statistics::median(values).expect("there are rounds");
        let time = median(times);
        let turn = median(turns);
        let rate = bytes as f64 / time / 1e9;
        let ratio = median(ratios);
        println!(
            "{bytes:>9}  {:>10.2}  {rate:>7.2}  {ratio:>7.2}  {:>13.2}",
            1e6 * time,
            1e6 * turn
        );
    }
    Ok(())
}

/// The time of `messages` messages from rank 0 to rank 1, until rank 1 confirms the last one.
fn train(comm: &mut Communicator, data: &mut [u8], messages: usize) -> Result<Duration> {
    let start = Instant::now();
    if comm.rank() == 0 {
        (0..messages).try_for_each(|_| comm.send(&*data, 1, 0))?;
        comm.recv(&mut [0u8], 1, 1)?;
    } else {
        (0..messages).try_for_each(|_| comm.recv(&mut *data, 0, 0))?;
        comm.send(&[0u8], 0, 1)?;
    }
    Ok(start.elapsed())
}

/// The time of a message from rank 0 to rank 1 and back: the mean of eight round trips.
fn turn(comm: &mut Communicator, data: &mut [u8]) -> Result<Duration> {
    let start = Instant::now();
    let turns = 8;
    for _ in 0..turns {
        if comm.rank() == 0 {
            comm.send(&*data, 1, 0)?;
            comm.recv(&mut *data, 1, 0)?;
        } else {
            comm.recv(&mut *data, 0, 0)?;
            comm.send(&*data, 0, 0)?;
        }
    }
    Ok(start.elapsed() / turns)
}
