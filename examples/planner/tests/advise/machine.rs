//! The machine on which steps are measured: its cores, and what collectives cost there.

use crate::order::RANKS;
use maypole::{Communicator, ReduceOp};
use maypole_planner::cluster::{Accelerator, AcceleratorCluster, CoreSharing};
use maypole_trainer::tensor::matmul::{MatrixView, matmul};
use std::time::Instant;

/// A product of square matrices.
struct Product {
    side: usize,
    matrix: Vec<f32>,
    out: Vec<f32>,
}

impl Product {
    fn new(side: usize) -> Self {
        Self { side, matrix: vec![1.0; side * side], out: vec![0.0; side * side] }
    }

    fn run(&mut self) {
        let view = || MatrixView::new(&self.matrix, self.side);
        matmul(&mut self.out, self.side, view(), view(), 1.0, false);
        std::hint::black_box(&self.out);
    }
}

/// Seconds of each of `repeats` runs of `work` on the slowest rank. Each rank makes its work of its
/// communicator.
fn seconds<W: FnMut()>(repeats: usize, work: impl Fn(Communicator) -> W + Sync) -> f64 {
    let rank = |comm: Communicator| {
        let mut work = work(comm);
        work();
        let began = Instant::now();
        (0..repeats).for_each(|_| work());
        began.elapsed().as_secs_f64() / repeats as f64
    };
    Communicator::run_local(RANKS, rank).into_iter().fold(0.0, f64::max)
}

fn all_reduce(len: usize) -> f64 {
    seconds(30, |mut comm| {
        let mut data = vec![1.0f32; len];
        move || comm.all_reduce(&mut data, ReduceOp::Sum).unwrap()
    })
}

/// This machine: the rates of a core at matrix products and at uncached memory, and the overhead of
/// collectives and small products for ranks that share cores.
pub(crate) fn this_machine() -> AcceleratorCluster {
    let cores = std::thread::available_parallelism().unwrap().get().min(RANKS);
    let crowding = RANKS as f64 / cores as f64;
    let product = |side: usize, repeats| {
        let one = seconds(repeats, |_| {
            let mut product = Product::new(side);
            move || product.run()
        });
        one / crowding
    };
    let wide = 2.0 * 512f64.powi(3) / product(512, 20);
    let small = product(8, 100_000);
    let elements = 4 << 20;
    let copy = seconds(10, |_| {
        let [from, mut to] = [1.0f32, 0.0].map(|number| vec![number; elements]);
        move || to.copy_from_slice(&from)
    });
    let bandwidth = crowding * 8.0 * elements as f64 / copy;
    let call = all_reduce(2);
    let long = 1 << 20;
    let byte = (all_reduce(long) - call).max(0.0) / (6.0 * long as f64) / crowding;
    println!(
        "{cores} cores: {:.0} Gflop/s, {:.1} GB/s; {:.1} us a collective, {:.2} us a small \
         product, {:.2} ns a byte",
        wide / 1e9,
        bandwidth / 1e9,
        1e6 * call,
        1e6 * small,
        1e9 * byte
    );
    let cluster = AcceleratorCluster::named("cpu:4").unwrap();
    let accelerator = Accelerator { wide, reached: 1.0, bandwidth, ..cluster.accelerator };
    let sharing = CoreSharing { ranks: RANKS, cores, call, product: small, byte };
    AcceleratorCluster { accelerator, sharing: Some(sharing), ..cluster }
}

/// Two cores of an AMD EPYC (Zen 5), as [`this_machine`] measured them in the run that recorded the steps.
pub(crate) fn recorded_machine() -> AcceleratorCluster {
    let cluster = AcceleratorCluster::named("cpu:4").unwrap();
    let (wide, bandwidth) = (222e9, 27.8e9);
    let accelerator = Accelerator { wide, reached: 1.0, bandwidth, ..cluster.accelerator };
    let sharing =
        CoreSharing { ranks: RANKS, cores: 2, call: 8.9e-6, product: 0.34e-6, byte: 0.09e-9 };
    AcceleratorCluster { accelerator, sharing: Some(sharing), ..cluster }
}
