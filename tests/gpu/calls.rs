//! Every collective, type and operation on a GPU against the executor.

use crate::{alone, capture, quiet_stream, run, stream};
use bytemuck::Pod;
use cudarc::driver::{CudaSlice, CudaStream, DeviceRepr};
use maypole::algorithms::Algorithm;
use maypole::cuda::Comm;
use maypole::schedule::collective::Collective;
use maypole::{Communicator, DataType, Element, ReduceOp, bf16, f16};
use maypole_kernels::{Scalar, ViewMut, divide};
use maypole_tests::common::SeededRng;
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
    fn check<T: Pod + Element + DeviceRepr>(
        &mut self,
        collective: Collective,
        op: ReduceOp,
        count: usize,
        what: &str,
    ) {
        use Collective as C;
        if collective == C::ExclusiveScan {
            // GPUs have no such call.
            return;
        }
        let (me, world) = (self.comm.rank(), self.comm.world());
        let whole = if collective.is_blocked() { count * world } else { count };
        let gathers = matches!(collective, C::Gather { .. } | C::AllGather);
        let gives = if gathers { count } else { whole };
        let scatters = matches!(collective, C::Scatter { .. } | C::ReduceScatter);
        let takes = if scatters { count } else { whole };
        let input = numbers::<T>((me as u64 + 1) << 20 | count as u64, whole);
        let mut place = input.clone();
        if collective == C::AllGather {
            place.fill(T::zeroed());
            place[me * count..][..count].copy_from_slice(&input[..count]);
        }
        let before = vec![numbers::<T>(7, 1)[0]; takes];
        let (data, mut out) = (self.to_gpu(&input[..gives]), self.to_gpu(&before));
        let mut placed = self.to_gpu(&place);
        let mut expected = before;
        // On a GPU the sum of integers wraps before it is divided.
        let wraps = op == ReduceOp::Avg && !T::DATA_TYPE.is_float() && collective.reduces();
        let host_op = if wraps { ReduceOp::Sum } else { op };
        match collective {
            C::Broadcast { .. } | C::Reduce { .. } | C::Scan => {
                expected.copy_from_slice(&input);
                self.comm.call(collective, &mut expected, host_op).unwrap();
            }
            _ => self.comm.call(collective, (&input[..gives], &mut expected), host_op).unwrap(),
        }
        if wraps && collective.root().is_none_or(|root| root == me) {
            let view = ViewMut::of(&mut expected);
            divide(view, view.as_view(), T::DATA_TYPE, world as u64);
        }
        self.meet();
        let (gpu, root) = (self.gpu, collective.root().unwrap_or(0) as i32);
        let (x, y, z) =
            (&data.slice(..gives), &mut out.slice_mut(..takes), &mut placed.slice_mut(..whole));
        let called = match collective {
            C::AllReduce => {
                gpu.all_reduce(x, y, &op).and_then(|()| gpu.all_reduce_in_place(z, &op))
            }
            C::Broadcast { .. } => {
                gpu.broadcast(Some(x), y, root).and_then(|()| gpu.broadcast_in_place(z, root))
            }
            C::Reduce { .. } => gpu.reduce_in_place(z, &op, root),
            C::Gather { .. } => gpu.gather(x, Some(y), root),
            C::AllGather => gpu.all_gather(x, y).and_then(|()| gpu.all_gather_in_place(z)),
            C::Scatter { .. } => gpu.scatter(Some(x), y, root),
            C::ReduceScatter => {
                gpu.reduce_scatter(x, y, &op).and_then(|()| gpu.reduce_scatter_in_place(z, &op))
            }
            C::AllToAll => gpu.all_to_all(x, y).and_then(|()| gpu.all_to_all_in_place(z)),
            C::Scan => gpu.scan_in_place(z, &op),
            _ => gpu.barrier(),
        };
        called.and_then(|()| gpu.synchronize()).unwrap_or_else(|error| panic!("{what}: {error}"));
        let place = self.back(&placed);
        let own = if collective == C::ReduceScatter { me * count } else { 0 };
        let same = |got: &[T]| {
            let equal =
                bytemuck::cast_slice::<T, u8>(got) == bytemuck::cast_slice::<T, u8>(&expected);
            assert!(equal, "rank {me} of {world}, {what}, count {count}");
        };
        if !matches!(collective, C::Gather { .. } | C::Scatter { .. } | C::Barrier) {
            same(&place[own..][..takes]);
        }
        if !matches!(collective, C::Reduce { .. } | C::Scan | C::Barrier) {
            same(&self.back(&out));
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
        assert_eq!(gpu.host_reason(), None);
        let mut meeting = comm.duplicate().unwrap();
        let (comm, meeting) = (&mut comm, &mut meeting);
        check(&mut Both { comm, meeting, gpu: &gpu, stream: &stream });
    });
}

/// Every collective by the plans that are chosen, for vectors of so many elements.
pub(crate) fn check_calls(both: &mut Both<'_>, counts: &[usize]) {
    let root = both.comm.world() - 1;
    let all = [
        Collective::Broadcast { root },
        Collective::Reduce { root },
        Collective::AllReduce,
        Collective::Gather { root },
        Collective::AllGather,
        Collective::Scatter { root },
        Collective::ReduceScatter,
        Collective::AllToAll,
        Collective::Scan,
        Collective::Barrier,
    ];
    for collective in all {
        for count in counts {
            both.check::<f64>(collective, ReduceOp::Max, *count, collective.name());
        }
    }
}

/// Every algorithm with every root, for vectors of no, few and many elements.
fn check_algorithms(world: usize, counts: &[usize]) {
    with_ranks(world, |both| {
        for algorithm in Algorithm::ALL {
            for collective in algorithm.collectives() {
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
        }
    });
}

#[test]
fn every_algorithm_has_the_bits_of_the_executor() {
    for world in [1, 2, 3, 4, 8] {
        check_algorithms(world, &[0, 1, 1000, 70_001]);
    }
}

#[test]
fn long_vectors_have_the_bits_of_the_executor() {
    // Longer than all slots of a mailbox together.
    for (world, count) in [(2, 5 << 20), (4, (9 << 20) + 1)] {
        with_ranks(world, |both| {
            for algorithm in [Algorithm::Ring, Algorithm::OneShot, Algorithm::DoubleTree] {
                if !algorithm.supports(Collective::AllReduce) {
                    continue;
                }
                both.comm.set_algorithm(Some(algorithm));
                both.gpu.set_algorithm(Some(algorithm));
                let what = format!("{algorithm} of a long vector");
                both.check::<f32>(Collective::AllReduce, ReduceOp::Sum, count, &what);
            }
        });
    }
}

fn check_type<T: Pod + Element + DeviceRepr>(both: &mut Both<'_>) {
    let ops = [ReduceOp::Sum, ReduceOp::Product, ReduceOp::Min, ReduceOp::Max, ReduceOp::Avg];
    let bitwise = [ReduceOp::And, ReduceOp::Or, ReduceOp::Xor];
    let ops = ops.iter().chain(if T::DATA_TYPE.is_float() { &[][..] } else { &bitwise });
    for op in ops {
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
            for kind in DataType::NUMBERS {
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
fn explanations_tell_the_algorithm_that_runs_or_why_calls_go_through_the_host() {
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
        let host = Comm::through_host(&mut comm, stream).unwrap();
        let told = host.explain(Collective::AllReduce, 4096).to_string();
        assert!(told.contains("that was asked for"), "{told}");
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
