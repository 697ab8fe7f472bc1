//! A schedule of an exercise runs on numbers, between threads.

use maypole::schedule::collective::{Collective, Symbol};
use maypole::{Communicator, ReduceOp, Result};
use maypole_pictures::draw::values;
use maypole_pictures::file::ScheduleFile;

/// Runs the schedules on the numbers of [`values`], one to a chunk. Returns a remark.
///
/// # Errors
/// If a call fails, or its result is another than that of the collective.
pub(super) fn run(file: &ScheduleFile) -> std::result::Result<String, String> {
    let collective = file.collective();
    let world = file.schedules().len();
    let chunks = file.schedules()[0].chunks;
    // A call of the others takes buffers that not every rank has.
    let is_known = matches!(
        collective,
        Collective::AllReduce | Collective::Scan | Collective::AllGather | Collective::AllToAll
    );
    if !is_known || world > values::MOST_RANKS {
        return Ok("it was not run, because not every rank has buffers".to_owned());
    }
    let results = Communicator::run_local(world, |mut comm| one(&mut comm, file));
    for (rank, result) in results.into_iter().enumerate() {
        let numbers = result.map_err(|error| format!("on real numbers: {error}"))?;
        let expected: Vec<u64> = (0..chunks)
            .map(|chunk| values::number(&collective.result(world, rank, chunk)))
            .collect();
        if numbers != expected {
            return Err(format!(
                "on real numbers rank {rank} ends with {numbers:?}, not {expected:?}"
            ));
        }
    }
    Ok(format!("it ran on {world} threads, and all numbers are right"))
}

/// The result of one rank.
fn one(comm: &mut Communicator, file: &ScheduleFile) -> Result<Vec<u64>> {
    let (collective, rank) = (file.collective(), comm.rank());
    let chunks = file.schedules()[0].chunks;
    let held = (0..chunks).filter(|chunk| collective.input(rank).contains(*chunk));
    let input: Vec<u64> = held.map(|chunk| values::number(&[Symbol { rank, chunk }])).collect();
    let mut output = vec![0; chunks];
    let schedule = |rank: usize| file.schedules()[rank].clone();
    comm.run(schedule, collective, (&input, &mut output), ReduceOp::Sum)?;
    Ok(output)
}
