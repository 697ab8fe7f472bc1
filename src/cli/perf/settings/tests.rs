//! Command lines, and the settings that come of them.

use super::points::DEFAULT_SIZES;
use super::*;
use crate::perf::benchmark::CallParameters;
use crate::perf::messages::MessageTest;
use clap::Parser;
use maypole::ReduceOp;
use maypole::algorithms::Algorithm;
use maypole::schedule::collective::Collective;
use std::time::Duration;

#[derive(Parser)]
struct CommandLine {
    #[command(flatten)]
    args: PerfArgs,
}

fn settings(line: &str) -> Result<PerfSettings> {
    let words = std::iter::once("perf").chain(line.split_whitespace());
    let args = CommandLine::try_parse_from(words)?.args;
    args.settings(args.ranks()?)
}

fn sizes(line: &str) -> Vec<usize> {
    settings(line).unwrap().benchmarks[0].sizes.clone()
}

#[test]
fn without_options_everything_is_measured_in_a_few_sizes() {
    let all = settings("").unwrap();
    assert_eq!(all.world, 4);
    assert_eq!(all.benchmarks[0].collectives.len(), 11);
    assert_eq!(all.transport, TransportSelection::All);
    assert!(all.options.sampling.check);
    assert_eq!(all.benchmarks[0].sizes, DEFAULT_SIZES);
}

#[test]
fn a_report_measures_all_algorithms_in_many_sizes() {
    let benchmark = settings("all-reduce --report there").unwrap().benchmarks.remove(0);
    assert_eq!(benchmark.algorithms.len(), Algorithm::ALL.len());
    assert_eq!(benchmark.sizes.len(), 12);
    let line = "all-reduce --report there -a ring,auto --max 64";
    let benchmark = settings(line).unwrap().benchmarks.remove(0);
    assert_eq!(benchmark.algorithms, [Some(Algorithm::Ring), None]);
    assert_eq!(benchmark.sizes, [8, 32]);
}

#[test]
fn sizes_go_from_min_to_max_by_the_factor_or_the_step() {
    assert_eq!(sizes("--min 8 --max 1K"), [8, 32, 128, 512]);
    assert_eq!(sizes("-b 8 -e 16 -f 2"), [8, 16]);
    assert_eq!(sizes("-b 1K -e 3K --step 1K"), [1024, 2048, 3072]);
    assert_eq!(sizes("--max 4"), [4]);
    assert_eq!(sizes("--min 128M"), [128 << 20]);
    assert_eq!(sizes("--sizes 4K,8"), [4096, 8]);
}

#[test]
fn command_lines_of_nccl_tests_are_understood() {
    let line = "all_reduce -b 8 -e 32 -f 2 -g 2 -w 5 -c 1 -d float -o prod -r 1 -T 60";
    let of = settings(line).unwrap();
    assert_eq!(of.benchmarks[0].sizes, [8, 16, 32]);
    assert_eq!(of.world, 2);
    assert_eq!(of.options.sampling.warmup, 5);
    assert!(of.options.sampling.check);
    assert_eq!(of.benchmarks[0].parameters.kind, maypole::DataType::F32);
    assert_eq!(of.benchmarks[0].parameters.op, ReduceOp::Product);
    assert_eq!(of.options.timeout, Some(Duration::from_secs(60)));
    let long = "--minbytes 8 --maxbytes 32 --stepbytes 8 --datatype half --check 0 --ngpus 3";
    let settings = settings(long).unwrap();
    assert_eq!(settings.benchmarks[0].sizes, [8, 16, 24, 32]);
    assert_eq!(settings.benchmarks[0].parameters.kind, maypole::DataType::F16);
    assert_eq!(settings.world, 3);
    assert!(!settings.options.sampling.check);
}

#[test]
fn messages_are_measured_between_two_ranks() {
    let tests = |line: &str| settings(line).unwrap().messages.unwrap().tests;
    assert_eq!(tests("p2p latency"), MessageTest::PAIRS);
    assert_eq!(tests("exchange -n 4"), [MessageTest::Exchange]);
    assert_eq!(settings("p2p").unwrap().world, 2);
    assert!(settings("p2p --pairs all -n 4").unwrap().messages.unwrap().all_pairs);
    assert!(settings("all-reduce").unwrap().messages.is_none());
}

#[test]
fn buffers_begin_where_those_of_users_do() {
    let offset = |line: &str| settings(line).unwrap().benchmarks[0].parameters.offset;
    assert_eq!(offset(""), 16);
    assert_eq!(offset("--offset 0"), 0);
    assert_eq!(offset("--type i8 --offset 3"), 3);
}

#[test]
fn registered_memory_is_shared_memory() {
    let over = |line: &str| settings(line).unwrap().transport;
    assert_eq!(over("--registered"), TransportSelection::Shm);
    assert_eq!(over("--registered --transport auto"), TransportSelection::Shm);
    assert_eq!(over("--registered-too"), TransportSelection::Shm);
    assert!(settings("--registered-too").unwrap().options.registered_too);
    assert!(!settings("").unwrap().options.has_registered());
}

#[test]
fn check_needs_no_value() {
    assert!(settings("--check").unwrap().options.sampling.check);
    assert!(settings("-c true").unwrap().options.sampling.check);
    assert!(!settings("-c false").unwrap().options.sampling.check);
}

#[test]
fn the_root_reaches_every_rooted_collective() {
    let collectives = settings("broadcast all-reduce broadcast --root 3").unwrap().benchmarks[0]
        .collectives
        .clone();
    assert_eq!(collectives, [Collective::Broadcast { root: 3 }, Collective::AllReduce]);
}

#[test]
fn types_operations_and_roots_may_be_all() {
    let points = |line: &str| {
        let settings = settings(line).unwrap();
        let points = settings.benchmarks.iter().flat_map(|it| {
            let CallParameters { kind, op, .. } = it.parameters;
            it.collectives.iter().map(move |collective| (kind.name(), op, *collective))
        });
        points.collect::<Vec<_>>()
    };
    let all = points("-d all -o all -r all -n 3");
    let count =
        |kind: &str, op: ReduceOp| all.iter().filter(|it| it.0 == kind && it.1 == op).count();
    // Of the first operation all; of others three roots of reduce, and four without a root.
    assert_eq!(count("f32", ReduceOp::Sum), 11 + 2 * 4);
    assert_eq!(count("f32", ReduceOp::Max), 3 + 4);
    assert_eq!(count("f32", ReduceOp::Avg), 3 + 2, "no scan has an average");
    assert_eq!(count("f32", ReduceOp::Xor), 0);
    assert_eq!(count("u8", ReduceOp::Xor), 3 + 4);
    assert_eq!(
        points("barrier -d f32,f64 -r all"),
        [("f32", ReduceOp::Sum, Collective::Barrier), ("f64", ReduceOp::Sum, Collective::Barrier)]
    );
}

#[test]
fn contradictions_are_refused() {
    for (line, says) in [
        ("--min 64 --max 8", "--min 64 is more than --max 8"),
        ("--factor 1", "at least 2"),
        ("--min 8 --max 1T --step 1", "16384 sizes or more from 8 to 1T"),
        ("--factor 2 --step 8", "cannot be used with"),
        ("--root 4", "no rank 4"),
        ("-n 2 --root 2", "no rank 2"),
        ("-n 0", "at least 1"),
        ("barrier --algorithm ring", "barrier: one-shot, dissemination"),
        ("--algorithm rung", "one-shot"),
        ("--type quad", "bf16"),
        ("--op mean", "avg"),
        ("--check maybe", "not a boolean"),
        ("everything", "reduce-scatter"),
        ("--min 0", "at least one byte"),
        ("--transport pigeon", "tcp"),
        ("--timeout 0", "more than 0"),
        ("--timeout -1", ""),
        ("--offset 2", "multiple of that"),
        ("--type f16 --offset 1", "have 2 bytes"),
        ("--offset 4096", "less than a page"),
        ("p2p all-reduce", "in two runs"),
        ("p2p -n 1", "a message has two ranks"),
        ("latency -a ring", "--algorithm is about collectives"),
        ("--pairs all", "measure p2p"),
        ("--samples", "--json"),
        ("--registered -n 1", "two or more with -n"),
        ("--registered --transport tcp", "use --transport shm"),
    ] {
        let error = settings(line).expect_err(line).to_string();
        assert!(error.contains(says), "{line}: {error}");
    }
}
