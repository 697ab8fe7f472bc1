//! The effect of each class of rounds on the steps of its ranks.

use crate::draw::Draw;
use crate::plan::{Call, Class, Step, What};
use maypole::schedule::collective::Collective;
use maypole::{DataType, ReduceOp};

/// Functions of the driver that fail, and the errors that they return.
const FAILURES: [(&str, i32); 6] = [
    ("kernel", 719),
    ("cuLaunchKernel", 701),
    ("cuMemAllocAsync", 2),
    ("cuMemAlloc_v2", 2),
    ("cuMemcpyHtoDAsync_v2", 999),
    ("cuModuleLoadData", 218),
];

/// Adds the additional calls of a class.
pub(crate) fn add_calls(draw: &mut Draw) {
    match draw.plan.class {
        Class::Mismatch => mismatch(draw),
        Class::Uncaptured => draw.capture_new(0),
        _ => {}
    }
}

/// Changes the steps of a rank, or its driver, by the class.
pub(crate) fn disturb(draw: &mut Draw) {
    match draw.plan.class {
        Class::Late => come_late(draw),
        Class::Leave => leave(draw),
        Class::Abort => insert(draw, Step::Abort),
        Class::Kill => insert(draw, Step::Kill),
        Class::Fault => fail(draw),
        _ => {}
    }
}

/// A random rank, and a random place among its steps.
fn place(draw: &mut Draw) -> (usize, usize) {
    let rank = draw.rng.below(draw.plan.world);
    let at = draw.rng.below(draw.plan.steps[rank].len() + 1);
    (rank, at)
}

fn insert(draw: &mut Draw, step: Step) {
    let (rank, at) = place(draw);
    draw.plan.steps[rank].insert(at, step);
}

/// One rank's stream is delayed for longer than the others' timeout.
fn come_late(draw: &mut Draw) {
    let (rank, at) = place(draw);
    let of = |group: &usize| draw.plan.groups[*group].contains(&rank);
    let groups: Vec<usize> = (0..draw.plan.groups.len()).filter(of).collect();
    let group = groups[draw.rng.below(groups.len())];
    let millis = 2 * draw.plan.patience.as_millis() as u64 + 500;
    draw.plan.steps[rank].insert(at, Step::Hold { group, millis });
}

/// One rank ends in the middle of its steps, as on an error of its own.
fn leave(draw: &mut Draw) {
    let (rank, at) = place(draw);
    draw.plan.steps[rank].truncate(at);
}

/// A call of the driver fails in one process.
fn fail(draw: &mut Draw) {
    let rank = draw.rng.below(draw.plan.world);
    let (name, code) = FAILURES[draw.rng.below(FAILURES.len())];
    let nth = 1 + draw.rng.below(60);
    draw.plan.driver.fails = Some((rank, format!("{name}:{nth}:{code}")));
}

/// One rank makes another call than the others. Calls that all ranks make alike follow, by which a
/// difference is noticed at the latest.
fn mismatch(draw: &mut Draw) {
    let rank = draw.rng.below(draw.plan.world);
    let calls = draw.plan.steps[rank].iter().enumerate();
    let calls: Vec<(usize, usize)> = calls
        .filter_map(|(at, step)| match step {
            Step::Call(call) if is_compared(draw, *call) => Some((at, *call)),
            _ => None,
        })
        .collect();
    if calls.is_empty() {
        return closing(draw);
    }
    let nth = draw.rng.below(calls.len());
    let (at, call) = calls[nth];
    let group = draw.plan.calls[call].group;
    let swaps = |other: usize| {
        // Two barriers are the same call.
        let alike = [call, other].iter().all(|it| draw.plan.calls[*it].what.is_barrier());
        draw.plan.calls[other].group == group && !alike
    };
    let next = calls[nth + 1..].iter().find(|(_, other)| swaps(*other));
    let said = match (next.copied(), draw.rng.below(3)) {
        (Some((later, _)), 0) => {
            draw.plan.steps[rank].swap(at, later);
            format!("rank {rank} makes the calls of its steps {at} and {later} in turn")
        }
        _ => {
            let other = changed(draw, call);
            draw.plan.steps[rank][at] = Step::Call(other);
            format!("rank {rank} makes call {other} instead of call {call}")
        }
    };
    draw.plan.mismatch = Some(said);
    closing(draw);
}

/// False for messages: the ranks of a group do not order them alike.
fn is_compared(draw: &Draw, call: usize) -> bool {
    matches!(draw.plan.calls[call].what, What::Collective { .. })
}

fn closing(draw: &mut Draw) {
    for group in 0..draw.plan.groups.len() {
        let (op, kind) = (ReduceOp::Sum, DataType::I64);
        let what = What::Collective { collective: Collective::AllReduce, op, in_place: false };
        let call = Call { group, what, kind, count: 77, seed: 0, replays: 0 };
        let call = draw.add_call(call);
        draw.all(group, &Step::Call(call));
        draw.sync(group);
    }
}

/// A call that differs from `call` in one argument.
fn changed(draw: &mut Draw, call: usize) -> usize {
    let mut other = draw.plan.calls[call].clone();
    let ranks = draw.plan.groups[other.group].len();
    let What::Collective { collective, op, in_place } = other.what else { unreachable!() };
    let reduces = collective.reduces();
    match draw.rng.below(4) {
        0 if collective != Collective::Barrier => other.count += 1 + draw.rng.below(3),
        1 if reduces => {
            let differs = |it: &ReduceOp| *it != op && it.supports(other.kind);
            let ops = [ReduceOp::Min, ReduceOp::Max].into_iter().find(differs);
            let op = ops.expect("every type has both");
            other.what = What::Collective { collective, op, in_place };
        }
        2 if collective.root().is_some() => {
            let root = (collective.root().unwrap_or(0) + 1) % ranks;
            other.what = What::Collective { collective: collective.with_root(root), op, in_place };
        }
        _ => {
            let instead = match collective {
                Collective::AllReduce => Collective::Broadcast { root: draw.rng.below(ranks) },
                _ => Collective::AllReduce,
            };
            let op = ReduceOp::Max;
            other.what = What::Collective { collective: instead, op, in_place };
            other.count = other.count.max(1);
        }
    }
    draw.add_call(other)
}
