//! Every collective, type and operation on a GPU against the executor.

use crate::{alone, stream};
use cudarc::driver::{CudaSlice, CudaStream, DeviceRepr};
use maypole::algorithms::Algorithm;
use maypole::cuda::Comm;
use maypole::schedule::collective::Collective;
use maypole::{Communicator, DataType, Element, ReduceOp, bf16, f16};
use std::sync::Arc;

/// Numbers of very different sizes, so that sums depend on the order of the terms.
trait Number: Element + DeviceRepr + Copy + PartialEq + std::fmt::Debug {
    fn of(word: u64) -> Self;
    fn bits(self) -> u64;
}

macro_rules! integers {
    ($($type:ty)*) => {$(
        impl Number for $type {
            fn of(word: u64) -> Self {
                word as Self
            }
            fn bits(self) -> u64 {
                self as u64
            }
        }
    )*};
}
integers! { i8 i16 i32 i64 u8 u16 u32 u64 }

macro_rules! floats {
    ($($type:ty: $from:expr;)*) => {$(
        impl Number for $type {
            fn of(word: u64) -> Self {
                let size = f64::from(1u32 << (word >> 40 & 15));
                $from((word % 20_001) as f64 / 64.0 / size - 150.0 / size)
            }
            fn bits(self) -> u64 {
                u64::from(self.to_bits())
            }
        }
    )*};
}
floats! { f32: |x| x as f32; f64: |x| x; f16: f16::from_f64; bf16: bf16::from_f64; }

fn numbers<T: Number>(seed: u64, len: usize) -> Vec<T> {
    let mut word = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        word ^= word << 13;
        word ^= word >> 7;
        word ^= word << 17;
        T::of(word)
    };
    (0..len).map(|_| next()).collect()
}

fn bits<T: Number>(numbers: &[T]) -> Vec<u64> {
    numbers.iter().map(|number| number.bits()).collect()
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
    fn to_gpu<T: Number>(&self, data: &[T]) -> CudaSlice<T> {
        // An allocation of no bytes is an error of the driver.
        let whole = [data, &[T::of(0)]].concat();
        self.stream.clone_htod(&whole).unwrap()
    }

    /// Asserts that `collective` leaves the same bits, apart and in place.
    fn check<T: Number>(&mut self, collective: Collective, op: ReduceOp, count: usize, what: &str) {
        let (me, world) = (self.comm.rank(), self.comm.world());
        let seed = (me as u64 + 1) << 20 | count as u64;
        let whole = if collective.is_blocked() { count * world } else { count };
        let input = numbers::<T>(seed, whole);
        let (expected, got) = match collective {
            Collective::AllReduce => {
                let mut expected = input.clone();
                self.comm.all_reduce(&mut expected, op).unwrap();
                let mut data = self.to_gpu(&input);
                let mut out = self.to_gpu(&vec![T::of(7); count]);
                self.meet();
                self.gpu
                    .all_reduce(&data.slice(..count), &mut out.slice_mut(..count), &op)
                    .unwrap();
                self.gpu.all_reduce_in_place(&mut data.slice_mut(..count), &op).unwrap();
                (
                    [expected.clone(), expected].concat(),
                    [self.back(&data), self.back(&out)].concat(),
                )
            }
            Collective::Broadcast { root } => {
                let mut expected = input.clone();
                self.comm.broadcast(&mut expected, root).unwrap();
                let mut data = self.to_gpu(&input);
                let mut out = self.to_gpu(&vec![T::of(7); count]);
                let from = data.slice(..count);
                self.meet();
                self.gpu.broadcast(Some(&from), &mut out.slice_mut(..count), root as i32).unwrap();
                self.gpu.broadcast_in_place(&mut data.slice_mut(..count), root as i32).unwrap();
                (
                    [expected.clone(), expected].concat(),
                    [self.back(&data), self.back(&out)].concat(),
                )
            }
            Collective::Reduce { root } => {
                let mut expected = input.clone();
                self.comm.reduce(&mut expected, op, root).unwrap();
                let mut data = self.to_gpu(&input);
                self.meet();
                self.gpu.reduce_in_place(&mut data.slice_mut(..count), &op, root as i32).unwrap();
                (expected, self.back(&data))
            }
            Collective::Gather { root } => {
                let mut expected = vec![T::of(7); whole];
                let mine = numbers::<T>(seed, count);
                self.comm.gather((&mine, &mut expected), root).unwrap();
                let data = self.to_gpu(&mine);
                let mut out = self.to_gpu(&vec![T::of(7); whole]);
                let mut into = out.slice_mut(..whole);
                self.meet();
                self.gpu.gather(&data.slice(..count), Some(&mut into), root as i32).unwrap();
                (expected, self.back(&out))
            }
            Collective::AllGather => {
                let mine = numbers::<T>(seed, count);
                let mut expected = vec![T::of(7); whole];
                self.comm.all_gather((&mine, &mut expected)).unwrap();
                let mut placed = vec![T::of(9); whole];
                placed[me * count..][..count].copy_from_slice(&mine);
                let mut placed = self.to_gpu(&placed);
                let data = self.to_gpu(&mine);
                let mut out = self.to_gpu(&vec![T::of(7); whole]);
                self.meet();
                self.gpu.all_gather(&data.slice(..count), &mut out.slice_mut(..whole)).unwrap();
                self.gpu.all_gather_in_place(&mut placed.slice_mut(..whole)).unwrap();
                (
                    [expected.clone(), expected].concat(),
                    [self.back(&out), self.back(&placed)].concat(),
                )
            }
            Collective::Scatter { root } => {
                let mut expected = vec![T::of(7); count];
                self.comm.scatter((&input, &mut expected), root).unwrap();
                let data = self.to_gpu(&input);
                let mut out = self.to_gpu(&vec![T::of(7); count]);
                let from = data.slice(..whole);
                self.meet();
                self.gpu.scatter(Some(&from), &mut out.slice_mut(..count), root as i32).unwrap();
                (expected, self.back(&out))
            }
            Collective::ReduceScatter => {
                let mut expected = vec![T::of(7); count];
                self.comm.reduce_scatter((&input, &mut expected), op).unwrap();
                let mut data = self.to_gpu(&input);
                let mut out = self.to_gpu(&vec![T::of(7); count]);
                let from = data.slice(..whole);
                self.meet();
                self.gpu.reduce_scatter(&from, &mut out.slice_mut(..count), &op).unwrap();
                self.gpu.reduce_scatter_in_place(&mut data.slice_mut(..whole), &op).unwrap();
                let block = self.back(&data)[me * count..][..count].to_vec();
                ([expected.clone(), expected].concat(), [self.back(&out), block].concat())
            }
            Collective::AllToAll => {
                let mut expected = vec![T::of(7); whole];
                self.comm.all_to_all((&input, &mut expected)).unwrap();
                let mut data = self.to_gpu(&input);
                let mut out = self.to_gpu(&vec![T::of(7); whole]);
                self.meet();
                self.gpu.all_to_all(&data.slice(..whole), &mut out.slice_mut(..whole)).unwrap();
                self.gpu.all_to_all_in_place(&mut data.slice_mut(..whole)).unwrap();
                (
                    [expected.clone(), expected].concat(),
                    [self.back(&out), self.back(&data)].concat(),
                )
            }
            Collective::Scan => {
                let mut expected = input.clone();
                self.comm.scan(&mut expected, op).unwrap();
                let mut data = self.to_gpu(&input);
                self.meet();
                self.gpu.scan_in_place(&mut data.slice_mut(..count), &op).unwrap();
                (expected, self.back(&data))
            }
            Collective::Barrier => {
                self.meet();
                self.gpu.barrier().unwrap();
                (Vec::new(), Vec::new())
            }
            _ => (Vec::new(), Vec::new()),
        };
        self.gpu.synchronize().unwrap_or_else(|error| panic!("{what}: {error}"));
        assert!(bits(&expected) == bits(&got), "rank {me} of {world}, {what}, count {count}");
    }

    /// All ranks have their buffers. On a GPU that ranks share, an allocation may wait for all
    /// kernels, also for one that waits for the rank that allocates.
    fn meet(&mut self) {
        self.meeting.barrier().unwrap();
    }

    /// All but the last element.
    fn back<T: Number>(&self, data: &CudaSlice<T>) -> Vec<T> {
        let mut data = self.stream.clone_dtoh(data).unwrap();
        data.pop();
        data
    }
}

fn with_ranks(world: usize, check: impl Fn(&mut Both<'_>) + Sync) {
    let Some(_alone) = alone() else { return };
    Communicator::run_local(world, |mut comm| {
        let stream = stream().unwrap();
        let gpu = Comm::new(&mut comm, Arc::clone(&stream)).unwrap();
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

fn check_type<T: Number>(both: &mut Both<'_>) {
    let ops = [ReduceOp::Sum, ReduceOp::Product, ReduceOp::Min, ReduceOp::Max, ReduceOp::Avg];
    let bitwise = [ReduceOp::And, ReduceOp::Or, ReduceOp::Xor];
    let ops = ops.iter().chain(if T::DATA_TYPE.is_float() { &[][..] } else { &bitwise });
    for op in ops {
        for count in [5, 4000, 200_001] {
            both.check::<T>(Collective::AllReduce, *op, count, &format!("{:?} {op}", T::DATA_TYPE));
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
    Communicator::run_local(4, |mut comm| {
        let stream = stream().unwrap();
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
    use cudarc::driver::sys::{CUgraphInstantiate_flags, CUstreamCaptureMode};
    let Some(_alone) = alone() else { return };
    Communicator::run_local(2, |mut comm| {
        let stream = stream().unwrap();
        // SAFETY: each buffer is used on one stream alone, as in the test of replays.
        unsafe { stream.context().disable_event_tracking() };
        for _ in 0..3 {
            let gpu = Comm::new(&mut comm, Arc::clone(&stream)).unwrap();
            let mut data = stream.clone_htod(&vec![1.0f64; 3000]).unwrap();
            stream.synchronize().unwrap();
            let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
            stream.begin_capture(mode).unwrap();
            gpu.all_reduce_in_place(&mut data, &ReduceOp::Sum).unwrap();
            let flags = CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
            let graph = stream.end_capture(flags).unwrap().expect("something was captured");
            graph.launch().unwrap();
            gpu.synchronize().unwrap();
            assert_eq!(stream.clone_dtoh(&data).unwrap()[2999], 2.0);
        }
    });
}

#[test]
fn a_graph_is_replayed_a_thousand_times() {
    use cudarc::driver::sys::{CUgraphInstantiate_flags, CUstreamCaptureMode};
    let Some(_alone) = alone() else { return };
    let sums = Communicator::run_local(2, |mut comm| {
        let stream = stream().unwrap();
        let gpu = Comm::new(&mut comm, Arc::clone(&stream)).unwrap();
        // SAFETY: each buffer is used on one stream alone. cudarc would record its events across
        // the capture, which the driver refuses.
        unsafe { stream.context().disable_event_tracking() };
        let mut data = stream.clone_htod(&vec![1.0f64; 3000]).unwrap();
        stream.synchronize().unwrap();
        comm.barrier().unwrap();
        // The first call of its kind is the captured one.
        let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        stream.begin_capture(mode).unwrap();
        gpu.all_reduce_in_place(&mut data, &ReduceOp::Sum).unwrap();
        let flags = CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
        let graph = stream.end_capture(flags).unwrap().expect("something was captured");
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
