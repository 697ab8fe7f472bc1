//! Lesson 1: four ranks each have a vector, and each of them needs the sum of all four.
//!
//! `run_local` starts the ranks as threads of this process and gives each of them a communicator.
//! Under a launcher the ranks are processes, and the code inside the closure stays the same (lesson
//! 6).

use maypole::schedule::collective::Collective;
use maypole::{Communicator, DataType, ReduceOp};

fn main() {
    let lines = Communicator::run_local(4, |mut comm| {
        let mine = [comm.rank() as f32, 10.0, -1.0];
        let mut sum = mine;
        comm.all_reduce(&mut sum, ReduceOp::Sum).expect("all ranks call the same");
        format!("rank {} brought {mine:?} and leaves with {sum:?}", comm.rank())
    });
    for line in lines {
        println!("{line}");
    }

    // The choice of an algorithm depends only on facts that are equal on all ranks, so all ranks
    // choose the same one.
    let comm = Communicator::local(4).remove(0);
    for count in [2, 2_000, 2_000_000] {
        let algorithm = comm
            .algorithm(Collective::AllReduce, count, DataType::F32)
            .expect("nobody named another");
        println!("{count} elements would go by {algorithm}");
    }
}
