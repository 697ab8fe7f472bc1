//! Lesson 5: write an algorithm; draw, prove and run it; then break it and see that it is refused.
//!
//! In a star, rank 0 receives the vectors of all ranks in rank order and sends the sum to each.
//! This is fast for few ranks and slow for many.

use maypole::schedule::collective::Collective;
use maypole::schedule::verify::verify;
use maypole::schedule::{Placement, Schedule, Step, input, output};
use maypole::{Communicator, ReduceOp};
use maypole_pictures::draw;

const WORLD: usize = 4;

fn star(rank: usize) -> Schedule {
    if rank != 0 {
        return Schedule::new(
            1,
            vec![Step::Send { from: input(0), to: 0 }, Step::Recv { into: output(0), from: 0 }],
        );
    }
    let mut steps = vec![Step::Copy { from: input(0), into: output(0) }];
    steps.extend((1..WORLD).map(|from| Step::RecvReduce { into: output(0), from }));
    steps.extend((1..WORLD).map(|to| Step::Send { from: output(0), to }));
    Schedule::new(1, steps)
}

/// The same, but rank 0 does not send the sum to the last rank.
fn forgetful_star(rank: usize) -> Schedule {
    let mut schedule = star(rank);
    if rank == 0 {
        schedule.steps.pop();
    }
    schedule
}

fn main() {
    let schedules: Vec<_> = (0..WORLD).map(star).collect();
    let proof = verify(Collective::AllReduce, &schedules, Placement::Apart).expect("a star sums");
    println!("{}\n{proof:?}", draw::text(&schedules));

    Communicator::run_local(WORLD, |mut comm| {
        let rank = comm.rank();
        let mut data = vec![rank as f32; 100_000];
        // The first call proves the schedules. Then they run like those of any other algorithm.
        comm.run(star, Collective::AllReduce, &mut data, ReduceOp::Sum).expect("nobody fails");
        assert!(data.iter().all(|x| *x == 6.0));

        // A refused call sends nothing, so the communicator can still be used.
        let refused =
            comm.run(forgetful_star, Collective::AllReduce, &mut data, ReduceOp::Sum).unwrap_err();
        comm.barrier().expect("nobody fails");
        println!("rank {rank} has {}; {refused}", data[0]);
    });
}
