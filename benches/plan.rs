//! First-call latency: what a rank computes before the first message of a new call.
//!
//! ```text
//! cargo bench --bench plan
//! cargo bench --bench plan -- all-reduce
//! ```
//!
//! For each collective and 2 to 64 ranks of one host, the bench measures two parts. *choose*: the
//! tuner prices every algorithm for a vector of 64 KiB and takes the cheapest. *lower*: the chosen
//! algorithm's schedules of all ranks become rank 0's program. A repeated call does neither.

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use maypole::lower::{LoweringInput, lower};
use maypole::schedule::collective::Collective;
use maypole::schedule::hosts::{Boards, Hosts};
use maypole::schedule::{Layout, Placement};
use maypole::tuner::{CostTable, Plan, Question, plan};
use std::hint::black_box;
use std::time::Duration;

/// Bytes of the whole: of the vector, or of all blocks together.
const BYTES: usize = 64 << 10;
const ELEMENT: usize = size_of::<f32>();
const WORLDS: [usize; 4] = [2, 8, 16, 64];

fn choose(collective: Collective, boards: &Boards) -> Plan {
    let question = Question { collective, boards, bytes: BYTES, crowding: 1 };
    plan(&question, None, &CostTable::BUILT_IN).expect("no algorithm was asked for")
}

fn bench_collective(criterion: &mut Criterion, collective: Collective) {
    let mut group = criterion.benchmark_group(collective.option_name());
    group.sample_size(10).warm_up_time(Duration::from_millis(100));
    group.measurement_time(Duration::from_millis(500));
    for world in WORLDS {
        let boards = Boards::within(&Hosts::new(&vec![0; world]));
        group.bench_function(BenchmarkId::new("choose", world), |bencher| {
            bencher.iter(|| choose(black_box(collective), &boards));
        });
        let chosen = choose(collective, &boards);
        group.bench_function(BenchmarkId::new("lower", world), |bencher| {
            bencher.iter(|| {
                let schedules = chosen
                    .algorithm
                    .schedules_on(black_box(collective), boards.numbers())
                    .expect("the tuner chose it");
                let layout = Layout::even(BYTES / ELEMENT, schedules[0].chunks);
                let input = LoweringInput {
                    collective,
                    schedules: &schedules,
                    layout: &layout,
                    element: ELEMENT,
                    boards: &boards,
                    window: chosen.window,
                    fingerprint: 0,
                };
                lower(&input, 0, Placement::Apart).expect("the algorithms are proved")
            });
        });
    }
    group.finish();
}

fn bench_all(criterion: &mut Criterion) {
    for collective in Collective::all(0) {
        bench_collective(criterion, collective);
    }
}

criterion_group!(first_call, bench_all);
criterion_main!(first_call);
