//! Ranks measure what slots cost before the first long calls of a group, and explanations show it.

use maypole::schedule::collective::Collective;
use maypole::tuner::{CostTable, Explanation};
use maypole::{Communicator, Error, Local, ReduceOp};
use std::time::Duration;

const MIB: usize = 1 << 20;

/// The built-in costs, but slots are `times` as dear.
fn dear(times: u64) -> CostTable {
    let mut costs = CostTable::BUILT_IN;
    for slots in [&mut costs.small, &mut costs.chunk] {
        slots.beta *= times;
    }
    costs
}

fn predicted(explanation: &Explanation) -> u64 {
    explanation.chosen().unwrap().predicted_ns
}

#[test]
fn prices_become_those_of_this_machine_and_the_algorithm_stays() {
    let ended = Local::new(3).costs(dear(1_000_000)).run(|mut comm| {
        let explain = |comm: &mut Communicator| comm.explain(Collective::AllReduce, 3 * MIB);
        let before = explain(&mut comm);
        assert_eq!(before.slot_scale, None);
        // Ranks wait for the last one.
        std::thread::sleep(Duration::from_millis(100 * comm.rank() as u64));
        let mut vector = vec![1u32; 3 * MIB / 4];
        comm.all_reduce(&mut vector, ReduceOp::Sum).unwrap();
        assert!(vector.iter().all(|sum| *sum == 3));
        assert_eq!(comm.counters().calls, [("all_reduce", 1)].into());
        let after = explain(&mut comm);
        let plan = |it: &Explanation| it.chosen().map(|one| one.plan);
        assert_eq!(plan(&after), plan(&before));
        assert!(predicted(&after) < predicted(&before) / 10, "{before}{after}");
        assert_eq!(comm.explain(Collective::Gather { root: 0 }, 65_535).slot_scale, None);
        let said = after.to_string();
        let said = said.lines().find(|line| line.starts_with("  slots:"));
        (after.slot_scale.unwrap(), said.unwrap_or_default().to_owned())
    });
    assert!(ended.iter().all(|one| *one == ended[0]), "{ended:?}");
    let said =
        "as long here as the table of maypole tune says, which prices count; it is of another";
    assert!(ended[0].0 < 0.1 && ended[0].1.contains(said), "{ended:?}");
}

#[test]
fn a_group_that_is_made_later_knows_it() {
    Local::new(2).run(|mut comm| {
        comm.all_gather((&vec![1u8; MIB], &mut vec![0u8; 2 * MIB])).unwrap();
        let of = |comm: &mut Communicator| comm.explain(Collective::AllGather, 2 * MIB);
        let mut group = comm.duplicate().unwrap();
        assert_eq!(of(&mut group).slot_scale, of(&mut comm).slot_scale);
        assert!(
            of(&mut comm).to_string().contains("times as long here as the built-in table says")
        );
        // Each of the three lengths is measured once.
        let before = group.explain(Collective::AllGather, 64 << 10).slot_scale;
        comm.all_gather((&vec![1u8; 32 << 10], &mut vec![0u8; 64 << 10])).unwrap();
        let after = comm.explain(Collective::AllGather, 64 << 10).slot_scale;
        assert!(before.is_some() && after.is_some(), "{before:?}, {after:?}");
        comm.all_gather((&vec![2u8; 33 << 10], &mut vec![0u8; 66 << 10])).unwrap();
        assert_eq!(comm.explain(Collective::AllGather, 64 << 10).slot_scale, after);
    });
}

/// A machine may change its state. All ranks measure before the same call, also if one of them is late.
#[test]
fn slots_are_measured_again_after_many_calls() {
    let ended = Local::new(2).run(|mut comm| {
        let mut vector = vec![1u8; 64 << 10];
        let scale = |comm: &mut Communicator| {
            comm.explain(Collective::Broadcast { root: 0 }, 64 << 10).slot_scale.unwrap()
        };
        let mut calls = |comm: &mut Communicator, times| {
            (0..times).for_each(|_| comm.broadcast(&mut vector, 0).unwrap());
            scale(comm)
        };
        let mut measured = vec![calls(&mut comm, 1)];
        for _ in 0..4 {
            assert_eq!(calls(&mut comm, 5_998), measured[measured.len() - 1]);
            std::thread::sleep(Duration::from_millis(20 * comm.rank() as u64));
            measured.push(calls(&mut comm, 1));
            assert_eq!(calls(&mut comm, 1), measured[measured.len() - 1]);
        }
        assert_eq!(comm.counters().calls, [("broadcast", 24_001)].into());
        measured
    });
    assert_eq!(ended[0], ended[1]);
    // Two may happen to be equal.
    assert!(ended[0].iter().any(|scale| *scale != ended[0][0]), "{ended:?}");
}

#[test]
fn a_rank_that_makes_another_call_meanwhile_is_named() {
    let ended = Local::new(2).run(|mut comm| match comm.rank() {
        0 => comm.all_gather((&vec![1u8; MIB], &mut vec![0u8; 2 * MIB])),
        _ => comm.broadcast(&mut [1u8; 8], 0),
    });
    for one in ended {
        assert!(matches!(one, Err(Error::Mismatch { .. })), "{one:?}");
        let said = one.unwrap_err().to_string();
        assert!(said.contains("all_gather") && said.contains("broadcast"), "{said}");
    }
}
