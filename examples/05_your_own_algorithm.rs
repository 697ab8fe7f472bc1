//! Lesson 5: write an algorithm, have it proved, lower it, and run it on threads.
//!
//! A star: rank 0 takes everybody's vector in rank order and hands the sum out. Fine for few ranks, poor for many.

use maypole::collective::Collective;
use maypole::draw;
use maypole::execute::{Buffers, Executor};
use maypole::lower::{Request, lower};
use maypole::schedule::{Layout, Placement, Schedule, Step, input, output};
use maypole::verify::verify;
use maypole_kernels::{BinaryOp, DataType, Fold, Region, View, ViewMut};
use maypole_transports::{Alarm, Board, Waiting};
use std::sync::Arc;
use std::time::Duration;

fn star(world: usize, rank: usize) -> Schedule {
    if rank != 0 {
        return Schedule::new(1, vec![Step::Send { from: input(0), to: 0 }, Step::Recv { into: output(0), from: 0 }]);
    }
    let mut steps = vec![Step::Copy { from: input(0), into: output(0) }];
    steps.extend((1..world).map(|from| Step::RecvReduce { into: output(0), from }));
    steps.extend((1..world).map(|to| Step::Send { from: output(0), to }));
    Schedule::new(1, steps)
}

fn main() {
    let (world, count, collective) = (4, 100_000, Collective::AllReduce);
    let schedules: Vec<_> = (0..world).map(|rank| star(world, rank)).collect();
    let proof = verify(collective, &schedules, Placement::Apart).expect("a star sums");
    println!("{}\n{proof:?}", draw::text(&schedules));

    let (layout, hosts) = (Layout::even(count, 1), vec![0; world]);
    let (element, window, fingerprint) = (4, 32 << 10, 1);
    let request =
        Request { collective, schedules: &schedules, layout: &layout, element, hosts: &hosts, window, fingerprint };
    let memory = Arc::new(Region::new(Board::bytes(world)));
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for rank in 0..world {
            let (request, memory) = (&request, Arc::clone(&memory));
            scope.spawn(move || {
                let program = lower(request, rank, Placement::Apart).expect("what is proved can be lowered");
                let waiting = Waiting::new(world, cores, Duration::from_secs(10));
                // Nobody raises an alarm here, and threads do not leave.
                let mut executor = Executor::new(rank, waiting, Arc::new(Alarm::default()), Box::new(|_| false));
                executor.share(Board::new(memory, world, rank), (0..world).collect(), rank);
                let (mine, mut sum) = (vec![rank as f32; count], vec![0_f32; count]);
                let scratch = Region::new(program.scratch);
                let buffers =
                    Buffers { input: View::of(&mine), output: ViewMut::of(&mut sum), scratch: scratch.view() };
                executor
                    .run(&program, &Fold::new(DataType::F32, BinaryOp::Sum).into(), &buffers)
                    .expect("nobody fails");
                assert!(sum.iter().all(|x| *x == 6.0));
                println!("rank {rank}: {} folds over {} windows gave {}", program.ops.len(), program.windows, sum[0]);
            });
        }
    });
}
