//! Every collective, type and operation on a GPU against the executor.

use crate::gpu_calls::issue;
use crate::{alone, capture, quiet_stream, run, skip, stream};
use bytemuck::Pod;
use cudarc::driver::{CudaSlice, CudaStream, DeviceRepr};
use maypole::algorithms::Algorithm;
use maypole::cuda::Comm;
use maypole::schedule::collective::{Collective, HeldChunks};
use maypole::{Communicator, DataType, Element, ReduceOp, bf16, f16};
use maypole_kernels::{Scalar, ViewMut, divide};
use maypole_tests::common::SeededRng;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Numbers of very different sizes, so that sums depend on the order of the terms.
fn numbers<T: Pod + Element>(seed: u64, len: usize) -> Vec<T> {
    let mut rng = SeededRng::new(seed);
    let next = |_| {
        let number = (rng.below(20_001) as f64 / 64.0 - 150.0) / f64::from(1 << rng.below(16));
        match Scalar::from_f64(T::DATA_TYPE, number) {
            Some(value) => bytemuck::pod_read_unaligned(value.bytes()),
            None => bytemuck::pod_read_unaligned(&rng.next_u64().to_le_bytes()[..size_of::<T>()]),
        }
    };
    (0..len).map(next).collect()
}

/// One call on the GPU and by the executor, with the lengths of its buffers.
pub(crate) struct Both<'a> {
    pub(crate) comm: &'a mut Communicator,
    /// The same ranks, with no algorithm named.
    pub(crate) meeting: &'a mut Communicator,
    pub(crate) gpu: &'a Comm,
    pub(crate) stream: &'a Arc<CudaStream>,
}

impl Both<'_> {
    fn to_gpu<T: Pod + DeviceRepr>(&self, data: &[T]) -> CudaSlice<T> {
        // An allocation of no bytes is an error of the driver.
        let whole = [data, &[T::zeroed()]].concat();
        self.stream.clone_htod(&whole).unwrap()
    }

    /// Asserts that `collective` leaves the same bits, apart and in place.
    pub(crate) fn check<T: Pod + Element + DeviceRepr>(
        &mut self,
        collective: Collective,
        op: ReduceOp,
        count: usize,
        what: &str,
    ) {
        let (me, world) = (self.comm.rank(), self.comm.world());
        let whole = if collective.is_blocked() { count * world } else { count };
        let part = |held| match held {
            HeldChunks::Nothing => 0..0,
            HeldChunks::One(block) => block * count..(block + 1) * count,
            HeldChunks::All => 0..whole,
        };
        let (gives, takes) = (part(collective.input(me)), part(collective.output(me)));
        // In place, the one buffer is for both.
        let both = if gives.len() > takes.len() { &gives } else { &takes };
        let at = |range: &Range<usize>| range.start.saturating_sub(both.start);
        let (to, end) = (at(&takes), at(&takes) + takes.len());
        let input = &numbers::<T>((me as u64 + 1) << 20 | count as u64, whole)[gives.clone()];
        let mut expected = vec![numbers::<T>(7, 1)[0]; takes.len()];
        let mut placed = vec![numbers::<T>(8, 1)[0]; both.len()];
        placed[at(&gives)..][..gives.len()].copy_from_slice(input);
        let (x, mut y) = (self.to_gpu(input), self.to_gpu(&expected));
        let mut z = self.to_gpu(&placed);
        // On a GPU the sum of integers wraps before it is divided.
        let wraps = op == ReduceOp::Avg && !T::DATA_TYPE.is_float() && collective.reduces();
        let host_op = if wraps { ReduceOp::Sum } else { op };
        self.comm.call(collective, (input, &mut expected), host_op).unwrap();
        self.comm.call(collective, &mut placed, host_op).unwrap();
        for results in [&mut expected[..], &mut placed[to..end]].into_iter().filter(|_| wraps) {
            let view = ViewMut::of(results);
            divide(view, view.as_view(), T::DATA_TYPE, world as u64);
        }
        self.meet();
        let x = &x.slice(..input.len());
        let apart = (x, &mut y.slice_mut(..takes.len()));
        let called = issue(self.gpu, (collective, op), false, apart);
        let in_place = (x, &mut z.slice_mut(..both.len()));
        let called = called.and_then(|()| issue(self.gpu, (collective, op), true, in_place));
        let done = called.and_then(|()| self.gpu.synchronize());
        done.unwrap_or_else(|error| panic!("{what}: {error}"));
        for (got, right) in [(&self.back(&y)[..], &expected), (&self.back(&z)[to..end], &placed)] {
            let right = if right.len() == got.len() { &right[..] } else { &right[to..end] };
            let equal = bytemuck::cast_slice::<T, u8>(got) == bytemuck::cast_slice::<T, u8>(right);
            assert!(equal, "rank {me} of {world}, {what}, count {count}");
        }
    }

    /// All ranks have their buffers. On a GPU that ranks share, an allocation may wait for all
    /// kernels, also for one that waits for the rank that allocates.
    fn meet(&mut self) {
        self.meeting.barrier().unwrap();
    }

    /// All but the last element.
    fn back<T: DeviceRepr>(&self, data: &CudaSlice<T>) -> Vec<T> {
        let mut data = self.stream.clone_dtoh(data).unwrap();
        data.pop();
        data
    }
}

fn with_ranks(world: usize, check: impl Fn(&mut Both<'_>) + Sync) {
    let Some(_alone) = alone() else { return };
    run(world, |mut comm| {
        let stream = stream(comm.rank()).unwrap();
        let gpu = Comm::new(&mut comm, Arc::clone(&stream)).unwrap();
        let mut meeting = comm.duplicate().unwrap();
        let (comm, meeting) = (&mut comm, &mut meeting);
        check(&mut Both { comm, meeting, gpu: &gpu, stream: &stream });
    });
}

/// Every collective by the plans that are chosen, for vectors of so many elements.
pub(crate) fn check_calls(both: &mut Both<'_>, counts: &[usize]) {
    for collective in Collective::all(both.comm.world() - 1) {
        for count in counts {
            both.check::<f64>(collective, ReduceOp::Max, *count, collective.name());
        }
    }
}

/// Every algorithm with every root, for vectors of no, few and many elements.
fn check_algorithms(world: usize, counts: &[usize]) {
    with_ranks(world, |both| {
        let pairs =
            |algorithm: Algorithm| algorithm.collectives().iter().map(move |it| (algorithm, it));
        for (algorithm, collective) in
            skip::every_nth(3, Algorithm::ALL.into_iter().flat_map(pairs))
        {
            let roots = collective.root().map_or(1, |_| world);
            for root in [0, roots - 1] {
                let collective = collective.with_root(root);
                if algorithm.schedules(collective, world).is_none() {
                    continue;
                }
                both.comm.set_algorithm(Some(algorithm));
                both.gpu.set_algorithm(Some(algorithm));
                for count in counts {
                    let what = format!("{algorithm} {}", collective.name());
                    both.check::<f32>(collective, ReduceOp::Sum, *count, &what);
                }
            }
        }
    });
}

#[test]
fn every_algorithm_has_the_bits_of_the_executor() {
    for world in skip::every_nth(2, [1, 2, 3, 4, 8]) {
        check_algorithms(world, &[0, 1, 1000, 70_001]);
    }
}

#[test]
fn long_vectors_have_the_bits_of_the_executor() {
    // Longer than all slots of a mailbox together.
    let lengths = [(2, 5 << 20), (4, (9 << 20) + 1)];
    let algorithms = [Algorithm::Ring, Algorithm::OneShot, Algorithm::DoubleTree];
    let cases = lengths.into_iter().flat_map(|length| algorithms.map(|it| (length, it)));
    for ((world, count), algorithm) in skip::every_nth(4, cases) {
        with_ranks(world, |both| {
            both.comm.set_algorithm(Some(algorithm));
            both.gpu.set_algorithm(Some(algorithm));
            let what = format!("{algorithm} of a long vector");
            both.check::<f32>(Collective::AllReduce, ReduceOp::Sum, count, &what);
        });
    }
}

fn check_type<T: Pod + Element + DeviceRepr>(both: &mut Both<'_>) {
    let ops = [ReduceOp::Sum, ReduceOp::Product, ReduceOp::Min, ReduceOp::Max, ReduceOp::Avg];
    let bitwise = [ReduceOp::And, ReduceOp::Or, ReduceOp::Xor];
    let ops = ops.iter().chain(if T::DATA_TYPE.is_float() { &[][..] } else { &bitwise });
    let factor = if T::DATA_TYPE.is_float() { 0.37 } else { 3.0 };
    let scaled = ReduceOp::PreMulSum(maypole::Factor::new(factor));
    for op in ops.chain([&scaled]) {
        for count in [5, 4000, 200_001] {
            let start = Instant::now();
            both.check::<T>(Collective::AllReduce, *op, count, &format!("{:?} {op}", T::DATA_TYPE));
            // Ranks that are threads load a module at once, and one's kernel soon waits for the others.
            assert!(start.elapsed() < Duration::from_secs(9), "{:?} {op}", T::DATA_TYPE);
        }
    }
}

#[test]
fn every_type_and_operation_has_the_bits_of_the_executor() {
    for (world, algorithm) in [(3, Algorithm::Ring), (4, Algorithm::OneShot)] {
        with_ranks(world, |both| {
            both.comm.set_algorithm(Some(algorithm));
            both.gpu.set_algorithm(Some(algorithm));
            for kind in skip::every_nth(3, DataType::NUMBERS) {
                match kind {
                    DataType::F16 => check_type::<f16>(both),
                    DataType::BF16 => check_type::<bf16>(both),
                    DataType::F32 => check_type::<f32>(both),
                    DataType::F64 => check_type::<f64>(both),
                    DataType::I8 => check_type::<i8>(both),
                    DataType::I16 => check_type::<i16>(both),
                    DataType::I32 => check_type::<i32>(both),
                    DataType::I64 => check_type::<i64>(both),
                    DataType::U8 => check_type::<u8>(both),
                    DataType::U16 => check_type::<u16>(both),
                    DataType::U32 => check_type::<u32>(both),
                    _ => check_type::<u64>(both),
                }
            }
        });
    }
}

/// The tuner's own choices, in deterministic mode too, and calls whose inputs are scaled first.
#[test]
fn chosen_plans_have_the_bits_of_the_loop_over_the_ranks() {
    with_ranks(4, |both| {
        both.comm.set_deterministic(true);
        both.gpu.set_deterministic(true);
        for count in [1, 10, 1000, 50_000, 1 << 20] {
            both.check::<f32>(Collective::AllReduce, ReduceOp::Sum, count, "deterministic");
            both.check::<bf16>(Collective::ReduceScatter, ReduceOp::Sum, count, "deterministic");
            let op = ReduceOp::PreMulSum(maypole::Factor::new(0.3));
            both.check::<f32>(Collective::AllReduce, op, count, "scaled");
        }
    });
}

#[test]
fn explanations_tell_the_algorithm_that_runs() {
    let Some(_alone) = alone() else { return };
    run(4, |mut comm| {
        let stream = stream(comm.rank()).unwrap();
        let gpu = Comm::new(&mut comm, Arc::clone(&stream)).unwrap();
        for (count, deterministic) in [(2, false), (1 << 24, false), (2, true), (1 << 24, true)] {
            gpu.set_deterministic(deterministic);
            let collective = Collective::AllReduce;
            let explanation = gpu.explain(collective, count * size_of::<f32>());
            let chosen = explanation.chosen().unwrap().plan.algorithm;
            assert_eq!(chosen, gpu.algorithm(collective, count, DataType::F32).unwrap());
            assert!(explanation.to_string().contains("on GPUs"), "{explanation}");
        }
    });
}

/// A rank of which calls were captured refuses later replays when it leaves. The others may still be
/// ending the last call with it. It keeps its memory, so that few groups fit a GPU.
#[test]
fn a_rank_that_leaves_after_a_captured_call_fails_no_other() {
    let Some(_alone) = alone() else { return };
    run(2, |mut comm| {
        let stream = quiet_stream(comm.rank());
        for _ in 0..3 {
            let gpu = Comm::new(&mut comm, Arc::clone(&stream)).unwrap();
            let mut data = stream.clone_htod(&vec![1.0f64; 3000]).unwrap();
            stream.synchronize().unwrap();
            let graph =
                capture(&stream, || gpu.all_reduce_in_place(&mut data, &ReduceOp::Sum).unwrap());
            graph.launch().unwrap();
            gpu.synchronize().unwrap();
            assert_eq!(stream.clone_dtoh(&data).unwrap()[2999], 2.0);
        }
    });
}

#[test]
fn a_graph_is_replayed_a_thousand_times() {
    let Some(_alone) = alone() else { return };
    let sums = run(2, |mut comm| {
        let stream = quiet_stream(comm.rank());
        let gpu = Comm::new(&mut comm, Arc::clone(&stream)).unwrap();
        let mut data = stream.clone_htod(&vec![1.0f64; 3000]).unwrap();
        stream.synchronize().unwrap();
        comm.barrier().unwrap();
        // The first call of its kind is the captured one.
        let graph =
            capture(&stream, || gpu.all_reduce_in_place(&mut data, &ReduceOp::Sum).unwrap());
        for nth in 0..1000 {
            graph.launch().unwrap();
            if nth % 100 == 0 {
                gpu.all_reduce_in_place(&mut data, &ReduceOp::Sum).unwrap();
            }
        }
        gpu.synchronize().unwrap();
        stream.clone_dtoh(&data).unwrap()[2999]
    });
    assert_eq!(sums, [2f64.powi(1010); 2]);
}
