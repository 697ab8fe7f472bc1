//! The same schedule gives the same bits, and a deterministic call gives the bits of the plain loop
//! over the ranks.

use crate::common::SeededRng;
use crate::common::world::{self, Operation as Lowered, TIMEOUT};
use crate::number::Number;
use crate::spawn::{World, say};
use maypole::algorithms::Algorithm;
use maypole::schedule::collective::{Collective, HeldChunks};
use maypole::schedule::verify::verify;
use maypole::schedule::{Layout, Placement};
use maypole::{Communicator, DataType, Error, Local, Operation, ReduceOp, Transport};
use maypole::{bf16, f16};
use std::collections::HashSet;
use std::fmt::Debug;

fn reductions(root: usize) -> impl Iterator<Item = Collective> {
    Collective::all(root).into_iter().filter(|collective| collective.reduces())
}

/// `tests/proofs` shows that this order is the plain loop.
#[test]
fn the_choice_goes_from_left_to_right_in_the_order_of_the_ranks() {
    let mut chosen = HashSet::new();
    for world in [1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16, 31, 64] {
        for hosts in
            [vec![0; world], (0..world).collect(), (0..world).map(|rank| rank / 8).collect()]
        {
            let mut comm = Local::new(world).hosts(&hosts).build().swap_remove(world / 2);
            comm.set_deterministic(true);
            for (collective, count) in
                reductions(world / 3).flat_map(|it| [1, 1 << 20].map(|count| (it, count)))
            {
                chosen.insert((
                    world,
                    collective,
                    comm.algorithm(collective, count, DataType::F32).unwrap(),
                ));
            }
        }
    }
    for (world, collective, algorithm) in chosen {
        let proof =
            verify(collective, &algorithm.schedules(collective, world).unwrap(), Placement::Apart)
                .unwrap();
        assert!(
            proof.keeps_rank_order && proof.left_to_right,
            "{algorithm}, {collective:?}, {world} ranks"
        );
    }
}

#[test]
fn an_explanation_says_what_the_mode_rules_out() {
    let mut comm = Communicator::local(4).swap_remove(0);
    for (deterministic, bytes) in [(false, 8), (true, 8), (true, 1 << 20)] {
        comm.set_deterministic(deterministic);
        let text = comm.explain(Collective::Reduce { root: 2 }, bytes).to_string();
        let ruled_out = text.matches("combines the ranks in another order").count();
        assert_eq!(ruled_out > 3, deterministic, "{text}");
        let chosen = text.lines().find(|line| line.starts_with('*')).unwrap();
        assert!(!deterministic || chosen.starts_with("* linear"), "{text}");
    }
}

/// Element `at` of the contribution of `rank`: arbitrary, so that different orders give different
/// bits.
fn brings<T: Number>(rank: usize, at: usize) -> T {
    T::any(SeededRng::new((rank * 1_000_003 + at) as u64).next_u64())
}

fn all_of<T: Number>(rank: usize, range: std::ops::Range<usize>) -> Vec<T> {
    range.map(|at| brings(rank, at)).collect()
}

fn loop_over<T: Number>(ranks: usize, range: std::ops::Range<usize>, op: ReduceOp) -> Vec<T> {
    let combine =
        |at| (1..ranks).fold(brings::<T>(0, at), |sum, rank| sum.combine(brings(rank, at), op));
    let finish = |sum: T| if op == ReduceOp::Avg { sum.divide(ranks) } else { sum };
    range.map(combine).map(finish).collect()
}

#[track_caller]
fn same<T: Number>(found: &[T], expected: &[T], what: impl Debug) {
    let bits = |all: &[T]| all.iter().map(|it| it.bits()).collect::<Vec<_>>();
    assert!(bits(found) == bits(expected), "{what:?} is not the plain loop");
}

/// Every reduction, in place and between two buffers.
fn check_loops<T: Number>(comm: &mut Communicator, count: usize, op: ReduceOp) {
    let rank = comm.rank();
    let world = comm.world();
    let mine = all_of::<T>(rank, 0..count);
    let sum = loop_over::<T>(world, 0..count, op);
    let what = |name: &'static str| (name, op, count, T::DATA_TYPE);
    let mut data = mine.clone();
    let mut out = mine.clone();
    comm.all_reduce(&mut data, op).unwrap();
    comm.all_reduce_into(&mine, &mut out, op).unwrap();
    same(&data, &sum, what("all_reduce"));
    same(&out, &sum, what("all_reduce_into"));

    let root = count % world;
    let mut data = mine.clone();
    comm.reduce(&mut data, op, root).unwrap();
    comm.reduce_into(&mine, &mut out, op, root).unwrap();
    same(&data, if rank == root { &sum } else { &mine }, what("reduce"));
    same(&out, &sum, what("reduce_into"));

    let whole = all_of::<T>(rank, 0..count * world);
    let block = rank * count..(rank + 1) * count;
    let sum = loop_over::<T>(world, block.clone(), op);
    let mut data = whole.clone();
    comm.reduce_scatter(&whole, &mut out, op).unwrap();
    comm.reduce_scatter_in_place(&mut data, op).unwrap();
    same(&out, &sum, what("reduce_scatter"));
    same(&data[block], &sum, what("reduce_scatter_in_place"));
    if op != ReduceOp::Avg {
        check_scans(comm, &mine, op);
    }
}

fn check_scans<T: Number>(comm: &mut Communicator, mine: &[T], op: ReduceOp) {
    let rank = comm.rank();
    let count = mine.len();
    let mut data = mine.to_vec();
    let mut out = mine.to_vec();
    let sum = loop_over::<T>(rank + 1, 0..count, op);
    comm.scan(&mut data, op).unwrap();
    comm.scan_into(mine, &mut out, op).unwrap();
    same(&data, &sum, "scan");
    same(&out, &sum, "scan_into");

    let mut data = mine.to_vec();
    let mut out = mine.to_vec();
    let sum = if rank == 0 { mine.to_vec() } else { loop_over::<T>(rank, 0..count, op) };
    comm.exclusive_scan(&mut data, op).unwrap();
    comm.exclusive_scan_into(mine, &mut out, op).unwrap();
    same(&data, &sum, "exclusive_scan");
    same(&out, &sum, "exclusive_scan_into");
}

#[test]
fn a_deterministic_call_gives_the_bits_of_the_plain_loop() {
    for hosts in [&[0; 2][..], &[0, 1], &[0; 5], &[0, 1, 2], &[0, 0, 1, 1], &[1, 0, 1, 0, 2]] {
        Local::new(hosts.len()).hosts(hosts).stream_capacity(5000).timeout(TIMEOUT).run(
            |mut comm| {
                comm.set_deterministic(true);
                for op in [ReduceOp::Sum, ReduceOp::Product, ReduceOp::Avg] {
                    for count in [1, 37, 9001] {
                        check_loops::<f32>(&mut comm, count, op);
                    }
                    check_loops::<f16>(&mut comm, 1009, op);
                    check_loops::<bf16>(&mut comm, 1009, op);
                    check_loops::<f64>(&mut comm, 1009, op);
                }
            },
        );
    }
}

/// Otherwise the tests above would pass without the mode, too.
#[test]
fn the_plain_loop_has_bits_of_its_own() {
    let rings = Communicator::run_local(4, |mut comm| {
        comm.set_algorithm(Some(Algorithm::Ring));
        let mut data = all_of::<f32>(comm.rank(), 0..100);
        comm.all_reduce(&mut data, ReduceOp::Sum).unwrap();
        data.iter().map(|it| it.bits()).collect::<Vec<_>>()
    });
    let plain: Vec<u64> =
        loop_over::<f32>(4, 0..100, ReduceOp::Sum).iter().map(|it| it.bits()).collect();
    let differ = rings[0].iter().zip(&plain).filter(|(ring, plain)| ring != plain).count();
    assert!(differ > 10, "{differ} of 100");
    assert!(rings.iter().all(|ring| *ring == rings[0]), "one result for all ranks");
}

#[test]
fn own_operations_go_from_left_to_right_too() {
    let add = Operation::new("add", true, |left: &[f32], right: &mut [f32]| {
        left.iter().zip(right).for_each(|(left, right)| *right += *left);
    });
    for hosts in [&[0; 4][..], &[0, 1, 2, 3]] {
        Local::new(4).hosts(hosts).timeout(TIMEOUT).run(|mut comm| {
            comm.set_deterministic(true);
            for count in [3, 20_000] {
                let mut data = all_of::<f32>(comm.rank(), 0..count);
                comm.reduce_with(&mut data, &add, 0).unwrap();
                if comm.rank() == 0 {
                    same(&data, &loop_over::<f32>(4, 0..count, ReduceOp::Sum), "reduce_with");
                }
            }
        });
    }
}

#[test]
fn a_named_algorithm_in_another_order_is_refused_where_bits_may_differ() {
    Communicator::run_local(3, |mut comm| {
        comm.set_deterministic(true);
        comm.set_algorithm(Some(Algorithm::Ring));
        let error = comm.all_reduce(&mut [1f32], ReduceOp::Sum).unwrap_err();
        assert!(error.is_harmless());
        let why = "algorithm 'ring' does not combine the ranks one by one from left to right, as a \
                   deterministic call needs; leave the choice to 'auto'";
        assert_eq!(error.to_string(), format!("rank {}: all_reduce: {why}", comm.rank()));
        comm.all_reduce(&mut [1u8], ReduceOp::Sum).unwrap();
        comm.all_reduce(&mut [1f32], ReduceOp::Max).unwrap();
        comm.all_gather(&[1f32], &mut [0.0; 3]).unwrap();
    });
}

#[test]
fn ranks_that_do_not_agree_about_the_mode_do_not_match() {
    let errors = Communicator::run_local(2, |mut comm| {
        comm.set_timeout(TIMEOUT);
        comm.set_deterministic(comm.rank() == 1);
        comm.barrier().unwrap();
        comm.all_reduce(&mut [1f32], ReduceOp::Sum).unwrap_err()
    });
    let both = ["all_reduce(1 x f32, sum)", "all_reduce(1 x f32, sum, deterministic)"];
    let told = |error: &Error| both.iter().all(|call| error.to_string().contains(call));
    assert!(errors.iter().any(told), "{errors:?}");
}

/// Every algorithm that reduces, in windows of several lengths, on boards and over streams: one
/// result.
#[test]
fn windows_and_placements_leave_the_bits_as_they_are() {
    let ways = [(vec![0; 4], 1), ((0..4).collect(), 777), (vec![0, 0, 1, 1], 4099)];
    for algorithm in Algorithm::ALL {
        for &collective in algorithm.collectives().iter().filter(|it| it.reduces()) {
            let schedules = algorithm.schedules(collective, 4).unwrap();
            let layout = Layout::even(1203, schedules[0].chunks);
            let mut results = Vec::new();
            for (window, (hosts, capacity)) in [64, 500, 4096, 1 << 20]
                .into_iter()
                .flat_map(|w| ways.iter().map(move |way| (w, way)))
            {
                let lowered = Lowered {
                    collective,
                    schedules: schedules.clone(),
                    layout: layout.clone(),
                    window,
                    fingerprint: 7,
                };
                results.push(run_lowered(&lowered, hosts, *capacity));
            }
            assert!(
                results.iter().all(|result| *result == results[0]),
                "{algorithm}, {collective:?}"
            );
        }
    }
}

/// The bits of all ranks, which are the same in place and between two buffers.
fn run_lowered(operation: &Lowered, hosts: &[usize], capacity: usize) -> Vec<Vec<u64>> {
    let results = std::sync::Mutex::new(vec![Vec::new(); hosts.len()]);
    let way = world::World { hosts: hosts.to_vec(), capacity };
    way.run(|me, executor| {
        let brought = all_of::<f32>(me, operation.brings(me));
        let (mut out, mut whole) =
            (vec![0.0; operation.holds(me).len()], vec![0.0; operation.layout.count()]);
        whole[operation.brings(me)].copy_from_slice(&brought);
        let program = operation.lower::<f32>(hosts, me, Placement::Apart);
        operation
            .apart(executor, &program, &brought, &mut out)
            .map_err(|failure| format!("{failure:?}"))?;
        let program = operation.lower::<f32>(hosts, me, Placement::InPlace);
        operation
            .in_place(executor, &program, me, &mut whole)
            .map_err(|failure| format!("{failure:?}"))?;
        same(&whole[operation.holds(me)], &out, (operation.collective, "in place"));
        results.lock().unwrap()[me] = out.iter().map(|it| it.bits()).collect();
        Ok(())
    })
    .unwrap();
    results.into_inner().unwrap()
}

/// One number for the bits of everything that reduces, by every algorithm.
fn hash_of_everything(comm: &mut Communicator) -> u64 {
    let mut hash = 0;
    for algorithm in Algorithm::ALL {
        for &collective in algorithm.collectives().iter().filter(|it| it.reduces()) {
            comm.set_algorithm(Some(algorithm));
            for count in [5, 4099] {
                hash = reduced(comm, collective, count)
                    .iter()
                    .fold(hash, |hash, it| SeededRng::new(hash ^ it.bits()).next_u64());
            }
        }
    }
    hash
}

fn reduced(comm: &mut Communicator, collective: Collective, count: usize) -> Vec<f32> {
    let whole = if collective.is_blocked() { count * comm.world() } else { count };
    let mine = all_of::<f32>(comm.rank(), 0..whole);
    let op = ReduceOp::Sum;
    let mut out =
        vec![0.0; if collective.output(comm.rank()) == HeldChunks::Nothing { 0 } else { count }];
    match collective {
        Collective::AllReduce => comm.all_reduce_into(&mine, &mut out, op).unwrap(),
        Collective::Reduce { root } => comm.reduce_into(&mine, &mut out, op, root).unwrap(),
        Collective::ReduceScatter => comm.reduce_scatter(&mine, &mut out, op).unwrap(),
        Collective::Scan => comm.scan_into(&mine, &mut out, op).unwrap(),
        Collective::ExclusiveScan => comm.exclusive_scan_into(&mine, &mut out, op).unwrap(),
        other => unreachable!("{other:?} combines nothing"),
    }
    out
}

/// A rank process of a test of this file.
pub(crate) fn rank_process(role: &str) {
    match role {
        "bits" => {
            let mut comm = Communicator::from_env().unwrap();
            for transport in [Transport::Shm, Transport::Tcp, Transport::Shm] {
                let mut over = comm.over(transport).unwrap();
                say("bits", hash_of_everything(&mut over));
            }
        }
        "mode" => match Communicator::from_env() {
            Ok(comm) => say("mode", comm.is_deterministic()),
            Err(error) => say("mode", error),
        },
        other => panic!("there is no role {other}"),
    }
}

/// Threads on a board and over narrow streams, processes over shared memory and TCP.
#[test]
fn every_transport_and_every_run_gives_the_same_bits() {
    for world in [2, 5] {
        let threads = |hosts: Vec<usize>| {
            let local = Local::new(world).hosts(&hosts).stream_capacity(1000).timeout(TIMEOUT);
            local.run(|mut comm| hash_of_everything(&mut comm).to_string())
        };
        let expected = threads(vec![0; world]);
        assert_eq!(threads((0..world).collect()), expected);
        for (rank, ended) in World::new("bits", world).start().succeed().iter().enumerate() {
            assert_eq!(
                ended.said("bits"),
                vec![expected[rank].as_str(); 3],
                "rank {rank} of {world}"
            );
        }
    }
}

#[test]
fn the_variable_sets_the_mode_and_must_be_equal_everywhere() {
    let said = |world: World| {
        let ended = world.start().succeed();
        ended.iter().flat_map(|ended| ended.said("mode")).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(said(World::new("mode", 2)), ["false", "false"]);
    assert_eq!(said(World::new("mode", 2).set("MAYPOLE_DETERMINISTIC", 1)), ["true", "true"]);
    let unlike = said(
        World::new("mode", 2).set_of(1, "MAYPOLE_DETERMINISTIC", 1).set("MAYPOLE_TIMEOUT", 20),
    );
    assert!(unlike.iter().all(|error| error.contains("MAYPOLE_DETERMINISTIC")), "{unlike:?}");
    let neither = said(World::new("mode", 1).set("MAYPOLE_DETERMINISTIC", "yes"));
    assert!(neither[0].ends_with("MAYPOLE_DETERMINISTIC: 'yes' is neither 0 nor 1"), "{neither:?}");
}
