//! What other programs, and a hypervisor, took from the ranks while samples were taken.
//!
//! The kernel counts the time that each core was busy, and the time that each thread ran. What is
//! left when the ranks' time is subtracted from that of their cores went to other programs. On a
//! virtual machine a core may also be taken away as a whole, which the kernel counts as stolen time.
//!
//! The kernel counts the time of cores in ticks of 10 ms, so a short series is imprecise: less than
//! [`LEAST_TICKS`] are not reported.
//!
//! Source: `proc(5)` and `Documentation/scheduler/sched-stats.rst` of Linux.

use crate::doctor::kernel_text::number;
use crate::perf::mapping::RankMapping;
use crate::perf::measure::summary::Summary;
use maypole::{Communicator, Result};
use maypole_transports::clock::monotonic_ns;
use std::collections::BTreeSet;
use std::fs::read_to_string;

/// Nanoseconds of a tick (`USER_HZ`).
const TICK_NS: f64 = 1e7;
/// Fewer ticks may be an error of counting.
const LEAST_TICKS: f64 = 4.0;
/// From this part of the ranks' cores on, others make a row noisy.
const MUCH_TIME: f64 = 0.1;
/// From this distance between the tenth and the ninetieth percentile on, divided by the median, a
/// row is noisy.
const MUCH_SPREAD: f64 = 0.5;

/// What was taken during a series, over all machines. Equal on all ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Noise {
    /// Cores that other programs took, on average; `None` without a figure of the kernel.
    pub(crate) others: Option<f64>,
    /// Cores that a hypervisor took, on average.
    pub(crate) stolen: Option<f64>,
    /// Cores that the ranks had.
    pub(crate) cores: f64,
}

/// Reads the counters of one rank.
pub(crate) struct NoiseWatch {
    /// Whether this rank reads the counters of its machine's cores.
    is_first: bool,
    /// The cores of the machine's ranks; empty stands for all cores.
    cores: BTreeSet<usize>,
}

/// The counters at one moment.
pub(crate) struct NoiseCounters {
    ns: u64,
    /// Nanoseconds that this thread ran.
    ran: u64,
    /// Ticks that the cores were busy, and that were stolen; the number of these cores.
    cores: Option<CoreTicks>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct CoreTicks {
    busy: u64,
    stolen: u64,
    cores: u64,
}

impl NoiseWatch {
    pub(crate) fn new(mapping: &RankMapping) -> Self {
        Self { is_first: mapping.is_first_of_machine, cores: mapping.bound_here.clone() }
    }

    /// Reads the counters before a series.
    pub(crate) fn begin(&self) -> NoiseCounters {
        let read = |path: &str| read_to_string(path).unwrap_or_default();
        let cores = self.is_first.then(|| ticks(&read("/proc/stat"), &self.cores)).flatten();
        NoiseCounters {
            ns: monotonic_ns(),
            ran: number(&read("/proc/thread-self/schedstat"), "").unwrap_or(0),
            cores,
        }
    }

    /// What was taken since `before`. Collective.
    pub(crate) fn end(&self, comm: &mut Communicator, before: &NoiseCounters) -> Result<Noise> {
        let now = self.begin();
        let had = before.cores.zip(now.cores).map(|(before, now)| CoreTicks {
            busy: now.busy.saturating_sub(before.busy),
            stolen: now.stolen.saturating_sub(before.stolen),
            cores: now.cores,
        });
        let is_unknown = u64::from(self.is_first && had.is_none());
        let CoreTicks { busy, stolen, cores } = had.unwrap_or_default();
        let ran = now.ran.saturating_sub(before.ran);
        let mine = [now.ns - before.ns, ran, busy, stolen, cores, is_unknown];
        Ok(Noise::of(&comm.all_gather_values(&mine)?))
    }
}

impl Noise {
    /// Adds up the counts of all ranks.
    fn of(ranks: &[[u64; 6]]) -> Self {
        let sum = |nth: usize| ranks.iter().map(|rank| rank[nth]).sum::<u64>() as f64;
        let ns = ranks.iter().map(|rank| rank[0]).max().unwrap_or(0).max(1) as f64;
        let is_known = sum(5) == 0.0;
        let cores = |ticks: f64| {
            let known = if ticks < LEAST_TICKS { 0.0 } else { ticks * TICK_NS / ns };
            is_known.then_some(known)
        };
        // Some kernels do not count how long threads ran.
        let has_ran = sum(1) > 0.0;
        Self {
            others: cores(sum(2) - sum(1) / TICK_NS).filter(|_| has_ran),
            stolen: cores(sum(3)),
            cores: sum(4),
        }
    }

    /// The greater noise of two series.
    pub(crate) fn joined(self, later: Self) -> Self {
        let most = |before: Option<f64>, now: Option<f64>| Some(before?.max(now?));
        let (others, stolen) = (most(self.others, later.others), most(self.stolen, later.stolen));
        Self { others, stolen, cores: later.cores }
    }

    /// True if other programs or a hypervisor took much of the ranks' cores.
    pub(crate) fn is_disturbance(&self) -> bool {
        self.much(self.others).or(self.much(self.stolen)).is_some()
    }

    /// The cores that were taken, if they are many.
    fn much(&self, taken: Option<f64>) -> Option<f64> {
        taken.filter(|cores| *cores > MUCH_TIME * self.cores)
    }

    /// What makes a row with these samples noisy, in words. `None` if nothing does.
    pub(crate) fn words(&self, time: &Summary) -> Option<String> {
        let mut said = Vec::new();
        if let Some(others) = self.much(self.others) {
            let cores = self.cores;
            said.push(format!("other programs took {others:.1} of the ranks' {cores:.0} cores"));
        }
        if let Some(stolen) = self.much(self.stolen) {
            said.push(format!("the hypervisor took {stolen:.1} cores"));
        }
        let spread = time.spread();
        if spread > MUCH_SPREAD {
            let percent = spread * 100.0;
            said.push(format!("the batches spread by {percent:.0} % (p10 to p90)"));
        }
        (!said.is_empty()).then(|| said.join("; "))
    }
}

/// The ticks of `cores`, or of all cores if there are none, by the text of `/proc/stat`. The columns
/// are user, nice, system, idle, iowait, irq, softirq and steal.
fn ticks(stat: &str, cores: &BTreeSet<usize>) -> Option<CoreTicks> {
    let mut sum = CoreTicks::default();
    for line in stat.lines() {
        let Some((name, numbers)) = line.strip_prefix("cpu").and_then(|line| line.split_once(' '))
        else {
            continue;
        };
        let Ok(core) = name.parse::<usize>() else { continue };
        if !cores.is_empty() && !cores.contains(&core) {
            continue;
        }
        let ticks: Vec<u64> =
            numbers.split_whitespace().map_while(|number| number.parse().ok()).collect();
        let [user, nice, system, _, _, irq, softirq, steal] = *ticks.first_chunk()?;
        sum.busy += user + nice + system + irq + softirq;
        sum.stolen += steal;
        sum.cores += 1;
    }
    (sum.cores > 0).then_some(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAT: &str = "cpu  9 9 9 9 9 9 9 9 0 0\ncpu0 10 1 5 70 1 2 3 4 0 0\n\
                        cpu1 20 0 0 80 0 0 0 1 0 0\nintr 5\n";

    #[test]
    fn ticks_of_the_ranks_cores_are_counted() {
        let of = |cores: &[usize]| ticks(STAT, &cores.iter().copied().collect());
        assert_eq!(of(&[0]), Some(CoreTicks { busy: 21, stolen: 4, cores: 1 }));
        assert_eq!(of(&[]), Some(CoreTicks { busy: 41, stolen: 5, cores: 2 }));
        assert_eq!(of(&[7]), None);
        assert_eq!(ticks("", &BTreeSet::new()), None);
    }

    #[test]
    fn what_ranks_did_not_run_went_to_others() {
        // Two ranks on two cores, 1 s: the cores were busy for 1.9 s, and the ranks ran for 1.4 s.
        let second = 1_000_000_000;
        let ranks = [[second, second, 190, 30, 2, 0], [second, 4 * second / 10, 0, 0, 0, 0]];
        let noise = Noise::of(&ranks);
        assert!((noise.others.unwrap() - 0.5).abs() < 1e-9, "{noise:?}");
        assert!((noise.stolen.unwrap() - 0.3).abs() < 1e-9, "{noise:?}");
        let still = Summary::of(&[1.0; 20]).unwrap();
        let said = noise.words(&still).unwrap();
        assert!(said.contains("other programs took 0.5 of the ranks' 2 cores"), "{said}");
        assert!(said.contains("the hypervisor took 0.3"), "{said}");
    }

    #[test]
    fn a_quiet_machine_is_not_noisy_and_wild_samples_are() {
        let noise = Noise::of(&[[60_000_000, 60_000_000, 8, 0, 1, 0]]);
        assert_eq!(noise.others, Some(0.0), "two ticks are an error of counting");
        assert_eq!(noise.words(&Summary::of(&[1.0; 20]).unwrap()), None);
        let wild: Vec<f64> = (1..20).map(f64::from).collect();
        let said = noise.words(&Summary::of(&wild).unwrap()).unwrap();
        assert!(said.contains("the batches spread by"), "{said}");
    }

    #[test]
    fn where_the_kernel_counts_nothing_nothing_is_said() {
        let noise = Noise::of(&[[1000, 0, 0, 0, 0, 1]]);
        assert_eq!((noise.others, noise.stolen), (None, None));
        let noise = Noise::of(&[[1_000_000_000, 0, 100, 100, 1, 0]]);
        assert_eq!((noise.others, noise.stolen), (None, Some(1.0)), "ranks that ran for no time");
    }
}
