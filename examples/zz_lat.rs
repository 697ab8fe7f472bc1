//! tmp
use maypole::{Communicator, ReduceOp};
use std::time::Instant;
fn main() {
    let world: usize = std::env::args().nth(1).map_or(2, |a| a.parse().unwrap());
    Communicator::run_local(world, |mut comm| {
        let tid = std::fs::read_link("/proc/thread-self").unwrap();
        let tid = tid.file_name().unwrap().to_str().unwrap().to_owned();
        std::process::Command::new("taskset").args(["-cp", &format!("{}", comm.rank() % 2), &tid]).output().unwrap();
        for bytes in
            std::env::args().nth(2).map_or(vec![8usize, 4096, 65536, 1 << 20, 16 << 20], |a| vec![a.parse().unwrap()])
        {
            let n = bytes / 4;
            let input = vec![1f32; n];
            let mut output = vec![0f32; n];
            let iters = (400_000_000 / (bytes + 20000)).clamp(10, 20000);
            let mut best = f64::MAX;
            for _ in 0..7 {
                comm.barrier().unwrap();
                let t = Instant::now();
                for _ in 0..iters {
                    comm.all_reduce_into(&input, &mut output, ReduceOp::Sum).unwrap();
                }
                best = best.min(t.elapsed().as_secs_f64() / iters as f64);
            }
            assert_eq!(output[n - 1], world as f32);
            if comm.rank() == 0 {
                println!("{bytes:>9} {:.3} us", best * 1e6);
            }
        }
    });
}
