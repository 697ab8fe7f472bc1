//! A rank: trains one turn for each line of its input, until the input ends.

use super::Options;
use super::processes::Arm;
use anyhow::{Context, Result};
use maypole::Communicator;
use maypole_lab::bench::processor_time;
use maypole_lab::unequal::rows::{RowDivision, SpeedClock};
use maypole_trainer::data_parallel::sharding::Sharding;
use maypole_trainer::ranks::mesh::Mesh;
use maypole_trainer::ranks::timeline::RankActivity;
use maypole_trainer::train::optim::Rule;
use maypole_trainer::train::parallelism::Parallelism;
use maypole_trainer::train::schedule::RateSchedule;
use maypole_trainer::train::text::Text;
use maypole_trainer::train::trainer::Trainer;
use rustix::thread::sched_setaffinity;
use std::fmt::Write;
use std::io::stdin;
use std::time::Instant;

/// The trainer of one arm, and the rows of a batch of all its ranks.
struct Way {
    trainer: Trainer<f32>,
    rows: usize,
}

pub(super) fn serve(options: &Options) -> Result<()> {
    if !options.unpinned {
        pin()?;
    }
    let mut comm = Communicator::from_env()?;
    let mut ways = Vec::new();
    for arm in Arm::ALL {
        ways.push(way(arm, &mut comm, options)?);
    }
    let text = Text::invented(options.context, 1);
    for line in stdin().lines() {
        let line = line?;
        let (arm, steps) = line.split_once(' ').context("an order has an arm and steps")?;
        comm.barrier()?;
        println!("{}", turn(&mut ways[arm.parse::<usize>()?], &text, steps.parse()?)?);
    }
    Ok(())
}

/// Gives this process the core that is its rank's, of those that it may use.
fn pin() -> Result<()> {
    let rank: usize = std::env::var("MAYPOLE_RANK")?.parse()?;
    Ok(sched_setaffinity(None, &super::core_of(rank)?)?)
}

fn way(arm: Arm, comm: &mut Communicator, options: &Options) -> Result<Way> {
    let (comm, mesh) = match arm {
        Arm::Alone => (Communicator::local(1).remove(0), Mesh::ONE),
        Arm::After | Arm::During | Arm::BySpeed => {
            (comm.duplicate()?, Mesh::parse("dp=2").expect("that is a mesh"))
        }
    };
    let sharding =
        Sharding::Replicated { bucket: Some(options.bucket << 10), overlap: arm != Arm::After };
    let rows = match arm {
        Arm::BySpeed => RowDivision::BySpeed { every: 2, clock: SpeedClock::Measured },
        _ => RowDivision::Equal,
    };
    let setup = Parallelism { sharding, ..Parallelism::of(mesh) };
    let optimizer = (Rule::ADAMW, RateSchedule::constant(1e-3));
    let mut trainer = Trainer::new(comm, &options.config(), setup, 1, optimizer)?;
    trainer.parts.clip.limit = Some(1.0);
    rows.plant(&mut trainer);
    Ok(Way { trainer, rows: options.rows * mesh.world() })
}

/// Trains, and returns the seconds of waiting in all, the seconds of processor time, and the seconds
/// of each step.
fn turn(way: &mut Way, text: &Text, steps: usize) -> Result<String> {
    way.trainer.watch.timeline.take();
    let mut times = String::new();
    let before = processor_time();
    for _ in 0..steps {
        let start = Instant::now();
        way.trainer.step(text, way.rows)?;
        write!(times, " {}", start.elapsed().as_secs_f64())?;
    }
    let work = (processor_time() - before).as_secs_f64();
    let waits = way
        .trainer
        .watch
        .timeline
        .take()
        .into_iter()
        .filter(|span| span.kind == RankActivity::Wait);
    let waited: f64 = waits.map(|span| (span.end - span.start).as_secs_f64()).sum();
    Ok(format!("{waited} {work}{times}"))
}
