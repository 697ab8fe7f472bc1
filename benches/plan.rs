//! First-call latency: the work of a rank before the first message of a new call.
//!
//! ```text
//! cargo bench --bench plan
//! cargo bench --bench plan -- all-reduce
//! ```
//!
//! For each collective and 2 to 64 ranks of one host, the bench measures two parts. *choose*: the
//! tuner prices every algorithm for a vector of 64 KiB and takes the cheapest. *lower*: the chosen
//! algorithm's schedules of all ranks become rank 0's program. A repeated call does neither.
//!
//! Before that it measures both parts together among 64 to 4,096 ranks, eight on a host, with the memory
//! that they take at most, for vectors of three lengths; and both parts together, and choosing alone, among 2 to 1,024 ranks over
//! TCP: the least of three runs. It prints how the times grow: `p` of the fit `t = c n^p` from 64
//! ranks on. A time that grows with n log n has a `p` of about 1.2 there. A time that grows with
//! the square of n has 2, for example if a rank lowers the messages between all pairs.

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use maypole::algorithms::Algorithm;
use maypole::lower::{LoweringInput, Program, lower, lower_symmetric};
use maypole::schedule::collective::Collective;
use maypole::schedule::hosts::{Boards, Hosts};
use maypole::schedule::{Layout, Placement, Symmetry};
use maypole::tuner::{CostTable, Plan, Question, plan};
use std::hint::black_box;
use std::time::{Duration, Instant};

/// Bytes of the whole: of the vector, or of all blocks together.
const BYTES: usize = 64 << 10;
const ELEMENT: usize = size_of::<f32>();
const WORLDS: [usize; 4] = [2, 8, 16, 64];
/// The worlds of the fit, and how often each is measured.
const GROWING: [usize; 6] = [2, 16, 64, 128, 256, 1024];
const RUNS: usize = 3;
/// The worlds of eight ranks a host, and the bytes of their calls.
const WIDE: [usize; 4] = [64, 256, 1024, 4096];
const LENGTHS: [usize; 3] = [64, 64 << 10, 64 << 20];

fn choose(collective: Collective, boards: &Boards, bytes: usize) -> Plan {
    let question = Question { collective, boards, bytes, crowding: 1, gpus: None };
    plan(&question, None, &CostTable::BUILT_IN).expect("no algorithm was asked for")
}

/// The program of rank 0, from the schedules of its board where these are enough, else from all.
fn lower_by(chosen: Plan, collective: Collective, boards: &Boards, bytes: usize) -> Program {
    let lowered = |ranks: usize, symmetry: Option<Symmetry>| {
        let schedule =
            |rank| chosen.algorithm.schedule_on(black_box(collective), boards.numbers(), rank);
        let schedules: Option<Vec<_>> = (0..ranks).map(schedule).collect();
        let schedules = schedules.expect("the tuner chose it");
        let layout = Layout::even(bytes / ELEMENT, schedules[0].chunks);
        let input = LoweringInput {
            collective,
            schedules: &schedules,
            layout: &layout,
            element: ELEMENT,
            boards,
            window: chosen.window,
            fingerprint: 0,
        };
        match symmetry {
            Some(symmetry) => lower_symmetric(&input, symmetry, 0, Placement::Apart),
            None => lower(&input, 0, Placement::Apart).ok(),
        }
    };
    let symmetry = chosen.algorithm.symmetry(collective, boards);
    let here = symmetry.zip(boards.width()).and_then(|(it, width)| lowered(width, Some(it)));
    here.or_else(|| lowered(boards.world(), None)).expect("the algorithms are proved")
}

/// The least seconds of choosing, and of both parts, among `world` ranks over TCP.
fn seconds(collective: Collective, world: usize) -> (f64, f64) {
    let boards = Boards::separate(world);
    let run = |_| {
        let start = Instant::now();
        let plan = choose(collective, &boards, BYTES);
        let chosen = start.elapsed().as_secs_f64();
        black_box(lower_by(plan, collective, &boards, BYTES));
        (chosen, start.elapsed().as_secs_f64())
    };
    let least = |a: (f64, f64), b: (f64, f64)| (a.0.min(b.0), a.1.min(b.1));
    (0..RUNS).map(run).fold((f64::INFINITY, f64::INFINITY), least)
}

/// The exponent `p` of the line through the logarithms of `points`, (ranks, seconds).
fn exponent(points: &[(usize, f64)]) -> f64 {
    let logs = points.iter().map(|(ranks, seconds)| ((*ranks as f64).ln(), seconds.ln()));
    let count = points.len() as f64;
    let (x, y) = logs.clone().fold((0.0, 0.0), |(x, y), (a, b)| (x + a / count, y + b / count));
    let covariance: f64 = logs.clone().map(|(a, b)| (a - x) * (b - y)).sum();
    let variance: f64 = logs.map(|(a, _)| (a - x) * (a - x)).sum();
    covariance / variance
}

fn print_growth() {
    println!("# ms a rank before the first message of a call of {BYTES} bytes, over TCP");
    print!("#{:>15}", "collective");
    GROWING.iter().for_each(|world| print!(" {world:>9}"));
    println!(" {:>6}", "p");
    for collective in Collective::all(0) {
        let points = GROWING.map(|world| (world, seconds(collective, world)));
        print_line(&collective.option_name(), points.map(|(world, (_, both))| (world, both)));
        print_line("of it choosing", points.map(|(world, (chosen, _))| (world, chosen)));
        let largest = Boards::separate(GROWING[GROWING.len() - 1]);
        println!("#{:>15} {}", "by", choose(collective, &largest, BYTES).algorithm);
    }
}

fn print_line(name: &str, points: [(usize, f64); GROWING.len()]) {
    print!(" {name:>15}");
    points.iter().for_each(|(_, seconds)| print!(" {:>9.3}", seconds * 1e3));
    println!(" {:>6.2}", exponent(&points[2..]));
}

/// Milliseconds and MiB of a rank before a call among `world` ranks, eight on each host.
fn print_wide() {
    println!("# ms and MiB a rank before the first message of a call, eight ranks a host");
    print!("#{:>15} {:>9}", "collective", "bytes");
    WIDE.iter().for_each(|world| print!(" {world:>16}"));
    println!();
    for collective in Collective::all(0) {
        for bytes in LENGTHS {
            print!(" {:>15} {bytes:>9}", collective.option_name());
            let points = WIDE.map(|world| wide(collective, world, bytes));
            points.iter().for_each(|(ms, mib, _)| print!(" {ms:>9.2} {mib:>6.1}"));
            println!("  {}", points[WIDE.len() - 2].2);
        }
    }
}

fn wide(collective: Collective, world: usize, bytes: usize) -> (f64, f64, Algorithm) {
    let hosts: Vec<usize> = (0..world).map(|rank| rank / 8).collect();
    let boards = Boards::new(&hosts);
    let before = peak(true);
    let start = Instant::now();
    let plan = choose(collective, &boards, bytes);
    black_box(lower_by(plan, collective, &boards, bytes));
    (start.elapsed().as_secs_f64() * 1e3, peak(false) - before, plan.algorithm)
}

/// The most MiB that the process has had in memory; from now on, if it is to `begin`. 0 where Linux is not.
fn peak(begin: bool) -> f64 {
    if begin {
        let _ = std::fs::write("/proc/self/clear_refs", "5");
    }
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.trim().split(' ').next()?.parse::<f64>().ok());
    kib.unwrap_or(0.0) / 1024.0
}

fn bench_collective(criterion: &mut Criterion, collective: Collective) {
    let mut group = criterion.benchmark_group(collective.option_name());
    group.sample_size(10).warm_up_time(Duration::from_millis(100));
    group.measurement_time(Duration::from_millis(500));
    for world in WORLDS {
        let boards = Boards::within(&Hosts::new(&vec![0; world]));
        group.bench_function(BenchmarkId::new("choose", world), |bencher| {
            bencher.iter(|| choose(black_box(collective), &boards, BYTES));
        });
        let chosen = choose(collective, &boards, BYTES);
        group.bench_function(BenchmarkId::new("lower", world), |bencher| {
            bencher.iter(|| lower_by(chosen, collective, &boards, BYTES));
        });
    }
    group.finish();
}

fn bench_all(criterion: &mut Criterion) {
    print_wide();
    print_growth();
    for collective in Collective::all(0) {
        bench_collective(criterion, collective);
    }
}

criterion_group!(first_call, bench_all);
criterion_main!(first_call);
