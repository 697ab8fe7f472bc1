//! The mapping of ranks to hosts, machines and cores.

use crate::affinity;
use crate::perf::check::values::hash;
use anyhow::{Context, Result};
use maypole::Communicator;
use maypole::schedule::hosts::Hosts;
use maypole_transports::cores::UsableCores;
use std::collections::BTreeSet;

/// Where the ranks run. Equal on all ranks, but for the last two fields.
#[derive(Debug)]
pub(crate) struct RankMapping {
    /// The host of each rank, as the communicator numbers them.
    pub(crate) hosts: Hosts,
    /// The machine of each rank: the ranks of a machine read one clock. Where MAYPOLE_HOST
    /// separates ranks of one machine, a machine has several hosts.
    pub(crate) machines: Vec<usize>,
    /// For each machine, the number of cores that its ranks may use together.
    pub(crate) cores: Vec<usize>,
    /// The process of each rank.
    pub(crate) pids: Vec<u64>,
    /// The core that each rank is bound to.
    pub(crate) bound: Vec<Option<u64>>,
    /// True on the lowest rank of each machine.
    pub(crate) is_first_of_machine: bool,
    /// The cores that the ranks of this rank's machine are bound to; empty if one of them is not.
    pub(crate) bound_here: BTreeSet<u64>,
}

/// Stands for "not bound" where a core's number is exchanged.
const NOT_BOUND: u64 = u64::MAX;

impl RankMapping {
    /// Binds this rank to a core if `bind` is true, and exchanges the mapping of all ranks.
    /// Collective.
    pub(crate) fn exchange(comm: &mut Communicator, bind: bool) -> Result<Self> {
        let hosts = comm.hosts().clone();
        let machines = numbered(&gather(comm, [machine_id()])?);
        let cores = cores(&machines, &usable_cores(comm)?);
        let mine = machines[comm.rank()];
        let lower_ranks = machines[..comm.rank()].iter();
        let index_on_machine = lower_ranks.filter(|machine| **machine == mine).count();
        let core = if bind {
            affinity::bind(index_on_machine)
                .context("cannot bind this rank to a core; use --bind false")? as u64
        } else {
            NOT_BOUND
        };
        let mapping = gather(comm, [u64::from(std::process::id()), core])?;
        let (pids, bound): (_, Vec<Option<u64>>) = mapping
            .into_iter()
            .map(|[pid, core]| (pid, (core != NOT_BOUND).then_some(core)))
            .unzip();
        let here = machines.iter().zip(&bound).filter(|(machine, _)| **machine == mine);
        let bound_here = here.map(|(_, core)| *core).collect::<Option<_>>().unwrap_or_default();
        let is_first_of_machine = index_on_machine == 0;
        Ok(Self { hosts, machines, cores, pids, bound, is_first_of_machine, bound_here })
    }

    /// True if all ranks read one clock.
    pub(crate) fn is_one_machine(&self) -> bool {
        self.cores.len() == 1
    }

    /// True if every machine has a core for each of its ranks.
    pub(crate) fn has_core_for_each(&self) -> bool {
        let ranks_on = |machine| self.machines.iter().filter(|other| **other == machine).count();
        self.cores.iter().enumerate().all(|(machine, cores)| ranks_on(machine) <= *cores)
    }
}

/// A number that all processes of this machine have in common until it restarts.
fn machine_id() -> u64 {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    boot.bytes().fold(0, |mark, byte| hash(mark ^ u64::from(byte)))
}

/// Numbers the machines from 0 in the order of their lowest ranks.
fn numbered(ids: &[[u64; 1]]) -> Vec<usize> {
    let mut known = Vec::new();
    let number = |id: &[u64; 1]| {
        known.iter().position(|other| other == id).unwrap_or_else(|| {
            known.push(*id);
            known.len() - 1
        })
    };
    ids.iter().map(number).collect()
}

fn cores(machines: &[usize], shares: &[UsableCores]) -> Vec<usize> {
    let of = |machine| {
        let ranks = machines.iter().zip(shares).filter(|(other, _)| **other == machine);
        UsableCores::count(ranks.map(|(_, share)| share))
    };
    (0..=machines.iter().max().copied().unwrap_or(0)).map(of).collect()
}

/// The cores that each rank may use. Their encodings differ in length, so they are padded.
fn usable_cores(comm: &mut Communicator) -> Result<Vec<UsableCores>> {
    let mut mine = UsableCores::of_this_thread().to_bytes();
    let lengths = gather(comm, [mine.len() as u64])?;
    let longest = lengths.iter().map(|[length]| *length as usize).max().unwrap_or(0);
    mine.resize(longest, 0);
    let mut all = vec![0; longest * comm.world()];
    comm.all_gather((&mine, &mut all))?;
    let share =
        |(bytes, [length]): (&[u8], &[u64; 1])| UsableCores::from_bytes(&bytes[..*length as usize]);
    Ok(all.chunks_exact(longest.max(1)).zip(&lengths).map(share).collect())
}

fn gather<const N: usize>(comm: &mut Communicator, mine: [u64; N]) -> Result<Vec<[u64; N]>> {
    let mut all = vec![0; N * comm.world()];
    comm.all_gather((&mine, &mut all))?;
    Ok(all.as_chunks().0.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machines_are_numbered_by_their_first_rank() {
        assert_eq!(numbered(&[[7], [3], [7], [9], [3]]), [0, 1, 0, 2, 1]);
    }

    #[test]
    fn every_machine_needs_enough_cores() {
        let mapping = |machines: &[usize], cores: &[usize]| RankMapping {
            hosts: Hosts::new(machines),
            machines: machines.to_vec(),
            cores: cores.to_vec(),
            pids: Vec::new(),
            bound: Vec::new(),
            is_first_of_machine: true,
            bound_here: BTreeSet::new(),
        };
        assert!(mapping(&[0, 0, 1], &[2, 1]).has_core_for_each());
        assert!(!mapping(&[0, 1, 1], &[2, 1]).has_core_for_each());
    }

    #[test]
    fn hosts_that_are_set_apart_are_still_one_machine() {
        std::thread::scope(|scope| {
            for mut comm in maypole::Local::new(2).hosts(&[0, 1]).build() {
                scope.spawn(move || {
                    let mapping = RankMapping::exchange(&mut comm, false).unwrap();
                    assert_eq!(mapping.hosts.count(), 2);
                    assert!(mapping.is_one_machine());
                });
            }
        });
    }

    #[test]
    fn ranks_find_one_another() {
        let all =
            Communicator::run_local(3, |mut comm| RankMapping::exchange(&mut comm, false).unwrap());
        for mapping in all {
            assert_eq!(mapping.hosts.numbers(), [0; 3]);
            assert_eq!(mapping.machines, [0; 3]);
            assert_eq!(mapping.bound, [None; 3]);
            assert_eq!(mapping.pids, [u64::from(std::process::id()); 3]);
            assert_eq!(mapping.cores.len(), 1);
        }
    }
}
