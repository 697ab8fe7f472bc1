//! Whether this host has the memory that a measurement needs. Without this check the kernel would
//! kill a rank in the middle of the measurement.

use crate::doctor::kernel_text;
use crate::perf::benchmark::{Benchmark, BenchmarkPoint, BufferPlacement};
use crate::perf::measure::workload::buffer_ranges;
use crate::perf::settings::PerfSettings;
use crate::sizes;
use anyhow::{Result, ensure};
use std::fs;

/// Checks that `ranks` ranks on this host can hold the buffers of every point.
///
/// # Errors
///
/// The largest point, with the arithmetic.
pub(crate) fn check(settings: &PerfSettings, ranks: usize) -> Result<()> {
    let Some(available) = available(|path| fs::read_to_string(path).ok()) else { return Ok(()) };
    let swept = settings.options.sampling.off_cache.unwrap_or(0) as u128;
    match &settings.messages {
        Some(messages) => fits("the longest message", messages.bytes_of_rank(), ranks, available),
        None => {
            settings.benchmarks.iter().try_for_each(|it| check_within(it, swept, ranks, available))
        }
    }
}

/// The error if `ranks` ranks with buffers of `each` bytes do not fit; `what` needs them.
fn fits(what: &str, each: u128, ranks: usize, available: u64) -> Result<()> {
    let need = each.saturating_mul(ranks as u128);
    ensure!(
        need <= u128::from(available),
        "{what} needs {} of memory on this host: {ranks} ranks, each with buffers of {}; {} are \
         available. Measure smaller sizes (--sizes, --max), or start fewer ranks",
        sizes::rounded(need),
        sizes::rounded(each),
        sizes::rounded(available.into()),
    );
    Ok(())
}

/// Checks that `ranks` ranks can hold the buffers of every point, and `swept` bytes for --off-cache.
fn check_within(benchmark: &Benchmark, swept: u128, ranks: usize, available: u64) -> Result<()> {
    let points = benchmark.points();
    let needs = points.iter().map(|point| (largest(benchmark, point), point));
    let Some((bytes, point)) = needs.max_by_key(|(bytes, _)| *bytes) else { return Ok(()) };
    let whole = point.whole(benchmark.parameters.world) * benchmark.parameters.kind.size();
    let with = if swept > 0 { " with --off-cache" } else { "" };
    let what = format!("{} of {}{with}", point.collective.option_name(), sizes::name(whole));
    fits(&what, bytes.saturating_add(swept), ranks, available)
}

/// The bytes of an input and two outputs of the rank that needs most.
fn largest(benchmark: &Benchmark, point: &BenchmarkPoint) -> u128 {
    let world = benchmark.parameters.world;
    let size = benchmark.parameters.kind.size() as u128;
    let of = |rank: usize, place: BufferPlacement| {
        let ranges = buffer_ranges(point, place, rank, world);
        (ranges.input_buffer.len() as u128 + 2 * ranges.buffer.len() as u128) * size
    };
    let root = point.collective.root().unwrap_or(0);
    // A rank is the root, or it is like every other rank if blocks are.
    let ranks = match &point.shares {
        Some(_) => (0..world).collect(),
        None => vec![root, (root + 1) % world.max(1)],
    };
    let places = point.placements().iter();
    places.flat_map(|place| ranks.iter().map(|rank| of(*rank, *place))).max().unwrap_or(0)
}

/// Bytes that programs can get without swapping: of the machine, and of the control group if it has
/// a limit. `None` without a figure of the kernel.
fn available(read: impl Fn(&str) -> Option<String>) -> Option<u64> {
    let machine =
        kernel_text::number(&read("/proc/meminfo")?, "MemAvailable:")?.checked_mul(1024)?;
    let number = |path: &str| read(path)?.trim().parse::<u64>().ok();
    let group = number("/sys/fs/cgroup/memory.max")
        .map(|limit| limit.saturating_sub(number("/sys/fs/cgroup/memory.current").unwrap_or(0)));
    Some(machine.min(group.unwrap_or(u64::MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf::benchmark::tests::parameters;
    use maypole::DataType;
    use maypole::schedule::collective::Collective;

    fn benchmark(collective: Collective, bytes: usize) -> Benchmark {
        let (collectives, algorithms) = (vec![collective], vec![None]);
        let parameters = parameters(DataType::F32, 4);
        Benchmark { collectives, algorithms, sizes: vec![8, bytes], shares: None, parameters }
    }

    #[test]
    fn the_largest_point_must_fit() {
        let need = 4 * 3 * (1 << 20);
        let all_reduce = benchmark(Collective::AllReduce, 1 << 20);
        check_within(&all_reduce, 0, 4, need).unwrap();
        check_within(&all_reduce, 2 << 20, 4, need + 4 * (2 << 20)).unwrap();
        check_within(&all_reduce, 2 << 20, 4, need + 4 * (2 << 20) - 1).unwrap_err();
        let error = check_within(&all_reduce, 0, 4, need - 1);
        let text = error.unwrap_err().to_string();
        for part in ["all-reduce of 1M needs 12.0M", "4 ranks", "buffers of 3.0M"] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    #[test]
    fn the_root_needs_most() {
        let gather = benchmark(Collective::Gather { root: 3 }, 4 << 20);
        let point = gather.points().remove(1);
        assert_eq!(largest(&gather, &point), (1 << 20) + 2 * (4 << 20));
    }

    #[test]
    fn the_smaller_of_machine_and_group_counts() {
        let read = |limit: &'static str| {
            move |path: &str| match path {
                "/proc/meminfo" => Some("MemTotal: 9 kB\nMemAvailable:   4 kB\n".to_owned()),
                "/sys/fs/cgroup/memory.max" => Some(limit.to_owned()),
                "/sys/fs/cgroup/memory.current" => Some("1000\n".to_owned()),
                _ => None,
            }
        };
        assert_eq!(available(read("max\n")), Some(4096));
        assert_eq!(available(read("3000\n")), Some(2000));
        assert_eq!(available(|_| None), None);
    }
}
