//! Collectives between threads, against the obvious answer.
use maypole::algorithms::Algorithm;
use maypole::{Local, ReduceOp};
#[test]
fn smoke() {
    for world in 1..=5usize {
        for hosts in [vec![0; world], (0..world).collect::<Vec<_>>(), (0..world).map(|r| r / 2).collect()] {
            for count in [0usize, 1, 2, 7, 1000, 5000, 100_003] {
                for algorithm in [
                    None,
                    Some(Algorithm::Ring),
                    Some(Algorithm::Tree),
                    Some(Algorithm::OneShot),
                    Some(Algorithm::TwoShot),
                ] {
                    let out = Local::new(world)
                        .hosts(&hosts)
                        .stream_capacity(1000)
                        .timeout(std::time::Duration::from_secs(10))
                        .run(|mut comm| {
                            comm.set_algorithm(algorithm);
                            let r = comm.rank() as u64;
                            let mut x: Vec<u64> = (0..count as u64).map(|i| i * (r + 1)).collect();
                            for _ in 0..3 {
                                x = (0..count as u64).map(|i| i * (r + 1)).collect();
                                comm.all_reduce(&mut x, ReduceOp::Sum)
                                    .unwrap_or_else(|e| panic!("{hosts:?} {count} {algorithm:?} {e}"));
                            }
                            x
                        });
                    let k = (world * (world + 1) / 2) as u64;
                    for o in out {
                        assert_eq!(
                            o,
                            (0..count as u64).map(|i| i * k).collect::<Vec<_>>(),
                            "{hosts:?} {count} {algorithm:?}"
                        );
                    }
                }
            }
        }
    }
}
