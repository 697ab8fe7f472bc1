//! Calls on bytes, whose element type is known at run time, against the typed calls.

use crate::common::SeededRng;
use bytemuck::Pod;
use maypole::schedule::collective::Collective;
use maypole::{
    Communicator, DataType, Element, ErasedBuffers, ErasedCall, Error, Local, ReduceOp, bf16, f16,
};
use std::time::Duration;

const WORLD: usize = 3;
/// Elements of a block.
const COUNT: usize = 17;

fn local() -> Local {
    Local::new(WORLD).timeout(Duration::from_secs(60))
}

/// Every collective with the elements of its input and of its output on `rank`.
fn shapes(rank: usize) -> Vec<(Collective, usize, usize)> {
    let root = 1;
    let at_root = |whole: usize| if rank == root { whole } else { 0 };
    vec![
        (Collective::Broadcast { root }, at_root(COUNT), COUNT),
        (Collective::Reduce { root }, COUNT, at_root(COUNT)),
        (Collective::AllReduce, COUNT, COUNT),
        (Collective::Gather { root }, COUNT, at_root(WORLD * COUNT)),
        (Collective::AllGather, COUNT, WORLD * COUNT),
        (Collective::Scatter { root }, at_root(WORLD * COUNT), COUNT),
        (Collective::ReduceScatter, WORLD * COUNT, COUNT),
        (Collective::AllToAll, WORLD * COUNT, WORLD * COUNT),
        (Collective::Scan, COUNT, COUNT),
        (Collective::ExclusiveScan, COUNT, COUNT),
        (Collective::Barrier, 0, 0),
    ]
}

/// The typed call of the same name.
fn typed<T: Element>(
    comm: &mut Communicator,
    collective: Collective,
    input: &[T],
    output: &mut [T],
) -> maypole::Result<()> {
    let op = ReduceOp::Max;
    match collective {
        Collective::Broadcast { root } => {
            if comm.rank() == root {
                output.copy_from_slice(input);
            }
            comm.broadcast(output, root)
        }
        Collective::Reduce { root } => comm.reduce_into(input, output, op, root),
        Collective::AllReduce => comm.all_reduce_into(input, output, op),
        Collective::Gather { root } => comm.gather(input, output, root),
        Collective::AllGather => comm.all_gather(input, output),
        Collective::Scatter { root } => comm.scatter(input, output, root),
        Collective::ReduceScatter => comm.reduce_scatter(input, output, op),
        Collective::AllToAll => comm.all_to_all(input, output),
        Collective::Scan => comm.scan_into(input, output, op),
        Collective::ExclusiveScan => comm.exclusive_scan_into(input, output, op),
        Collective::Barrier => comm.barrier(),
    }
}

/// Numbers that every type holds exactly.
fn draw<T: Pod>(rng: &mut SeededRng, count: usize, of: impl Fn(u8) -> T) -> Vec<T> {
    (0..count).map(|_| of((rng.next_u64() % 100) as u8)).collect()
}

fn every_collective_of<T: Element + Pod + PartialEq + std::fmt::Debug>(
    of: impl Fn(u8) -> T + Sync,
) {
    local().run(|mut comm| {
        let mut rng = SeededRng::new(comm.rank() as u64 + 9);
        for (collective, sent, received) in shapes(comm.rank()) {
            let input = draw(&mut rng, sent, &of);
            let mut expected = vec![of(1); received];
            typed(&mut comm, collective, &input, &mut expected).unwrap();
            let mut output = vec![of(1); received];
            let call =
                ErasedCall { op: ReduceOp::Max, ..ErasedCall::new(collective, T::DATA_TYPE) };
            let bytes = bytemuck::cast_slice_mut(&mut output);
            let buffers = ErasedBuffers::Apart(bytemuck::cast_slice(&input), bytes);
            comm.call_erased(call, buffers).unwrap();
            assert_eq!(output, expected, "{collective:?} of {:?}", T::DATA_TYPE);
        }
    });
}

#[test]
fn every_type_and_collective_gives_what_the_typed_call_gives() {
    every_collective_of(|it| f16::from_f32(f32::from(it)));
    every_collective_of(|it| bf16::from_f32(f32::from(it)));
    every_collective_of(f32::from);
    every_collective_of(f64::from);
    every_collective_of(|it| it as i8);
    every_collective_of(i16::from);
    every_collective_of(i32::from);
    every_collective_of(i64::from);
    every_collective_of(|it| it);
    every_collective_of(u16::from);
    every_collective_of(u32::from);
    every_collective_of(u64::from);
}

#[test]
fn calls_in_place_give_what_calls_apart_give() {
    local().run(|mut comm| {
        let rank = comm.rank();
        let mut rng = SeededRng::new(rank as u64);
        for (collective, sent, received) in shapes(rank) {
            let input = draw(&mut rng, sent, u32::from);
            let mut apart = vec![0; received];
            typed(&mut comm, collective, &input, &mut apart).unwrap();
            // In place, the longer of the two buffers holds both, each block in its place.
            let mut whole = if sent >= received { input.clone() } else { vec![0; received] };
            let mine = if received == WORLD * COUNT { rank * COUNT } else { 0 };
            if sent < received {
                whole[mine..mine + sent].copy_from_slice(&input);
            }
            let call =
                ErasedCall { op: ReduceOp::Max, ..ErasedCall::new(collective, DataType::U32) };
            let buffers = ErasedBuffers::InPlace(bytemuck::cast_slice_mut(&mut whole));
            comm.call_erased(call, buffers).unwrap();
            let at = if sent == WORLD * COUNT && received == COUNT { rank * COUNT } else { 0 };
            // Rank 0 of an exclusive scan gets nothing, and keeps what it had.
            if (collective, rank) != (Collective::ExclusiveScan, 0) {
                assert_eq!(whole[at..at + received], apart, "{collective:?}, rank {rank}");
            }
        }
    });
}

#[test]
fn blocks_may_differ_in_length() {
    local().run(|mut comm| {
        let rank = comm.rank();
        let counts = [2, 0, 3];
        let mine: Vec<u16> = (0..counts[rank]).map(|at| (10 * rank + at) as u16).collect();
        let mut all = [0u16; 5];
        let call = ErasedCall::new(Collective::AllGather, DataType::U16).with_counts(&counts);
        let bytes = bytemuck::cast_slice_mut(&mut all);
        comm.call_erased(call, ErasedBuffers::Apart(bytemuck::cast_slice(&mine), bytes)).unwrap();
        assert_eq!(all, [0, 1, 20, 21, 22]);
    });
}

#[test]
fn bools_are_bytes_of_which_every_one_but_zero_is_true() {
    local().run(|mut comm| {
        let mut truths = [u8::from(comm.rank() == 2) * 7, 255, 0];
        let call = |op| ErasedCall { op, ..ErasedCall::new(Collective::AllReduce, DataType::Bool) };
        let buffers = ErasedBuffers::InPlace(&mut truths);
        comm.call_erased(call(ReduceOp::Or), buffers).unwrap();
        assert_eq!(truths, [1, 1, 0]);
        let sum = comm.call_erased(call(ReduceOp::Sum), ErasedBuffers::InPlace(&mut truths));
        assert!(matches!(sum, Err(Error::Invalid { .. })), "{sum:?}");
    });
}

#[test]
fn messages_of_bytes_are_those_of_elements() {
    local().run(|mut comm| match comm.rank() {
        0 => comm.send_erased(DataType::F64, bytemuck::bytes_of(&2.5), 1, 3).unwrap(),
        1 => {
            let mut number = [0.0];
            comm.recv(&mut number, 0, 3).unwrap();
            assert_eq!(number, [2.5]);
            comm.send(&[true, false], 2, 4).unwrap();
        }
        _ => {
            let mut truths = [9; 5];
            let received = comm.recv_erased(DataType::Bool, &mut truths, None, 4).unwrap();
            assert_eq!((received, truths), ((1, 2), [1, 0, 1, 1, 1]));
        }
    });
}

#[test]
fn bytes_that_are_no_elements_are_refused_on_this_rank_alone() {
    local().run(|mut comm| {
        let mut memory = [0u32; 4];
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut memory);
        let call = ErasedCall::new(Collective::AllReduce, DataType::U32);
        for (range, why) in [(1..9, "multiple of 4"), (0..7, "no whole number")] {
            let refused = comm.call_erased(call, ErasedBuffers::InPlace(&mut bytes[range]));
            let error = refused.unwrap_err();
            assert!(matches!(error, Error::Invalid { .. }), "{error}");
            assert!(error.to_string().contains(why), "{error}");
        }
        let counted = call.with_counts(&[1, 1, 1]);
        let refused = comm.call_erased(counted, ErasedBuffers::InPlace(&mut bytes[..4]));
        assert!(matches!(refused, Err(Error::Invalid { .. })), "{refused:?}");
        comm.barrier().unwrap();
    });
}
