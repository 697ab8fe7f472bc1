//! Where the ranks sit: on which host, on which core, and whether there is one for each.

use crate::perf::check::values::hash;
use anyhow::{Context, Result};
use maypole::Communicator;
use maypole_transports::affinity;
use maypole_transports::cores::UsableCores;

/// The same on all ranks.
#[derive(Debug)]
pub(crate) struct RankMapping {
    /// The host of each rank: those with one number read one clock.
    pub(crate) hosts: Vec<usize>,
    /// The cores that the ranks of each host have together.
    pub(crate) cores: Vec<usize>,
    /// Of each rank.
    pub(crate) pids: Vec<u64>,
    /// What each rank is bound to.
    pub(crate) bound: Vec<Option<u64>>,
}

/// Stands for no core.
const NOWHERE: u64 = u64::MAX;

impl RankMapping {
    /// Binds this rank to a core, unless `bind` says otherwise, and learns where the others are.
    /// Collective.
    pub(crate) fn take(comm: &mut Communicator, bind: bool) -> Result<Self> {
        let hosts = numbered(&gather(comm, [mark()])?);
        let cores = cores(&hosts, &shares(comm)?);
        let mine = hosts[comm.rank()];
        let neighbours = |ranks: &[usize]| ranks.iter().filter(|host| **host == mine).count();
        let core = match bind {
            true => affinity::bind(neighbours(&hosts[..comm.rank()]))
                .context("cannot bind to a core; try --bind false")? as u64,
            false => NOWHERE,
        };
        let mapping = gather(comm, [u64::from(std::process::id()), core])?;
        let (pids, bound) =
            mapping.into_iter().map(|[pid, core]| (pid, (core != NOWHERE).then_some(core))).unzip();
        Ok(Self { hosts, cores, pids, bound })
    }

    pub(crate) fn is_one_host(&self) -> bool {
        self.cores.len() == 1
    }

    /// True if no rank need wait for another to leave its core.
    pub(crate) fn are_enough(&self) -> bool {
        let ranks = |host| self.hosts.iter().filter(|other| **other == host).count();
        self.cores.iter().enumerate().all(|(host, cores)| ranks(host) <= *cores)
    }
}

/// A number for this start of this host: its processes have it in common, and nobody else.
fn mark() -> u64 {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    boot.bytes().fold(0, |mark, byte| hash(mark ^ u64::from(byte)))
}

/// Equal marks get equal numbers, from 0, in the order of the ranks.
fn numbered(marks: &[[u64; 1]]) -> Vec<usize> {
    let mut known = Vec::new();
    let number = |mark: &[u64; 1]| {
        known.iter().position(|other| other == mark).unwrap_or_else(|| {
            known.push(*mark);
            known.len() - 1
        })
    };
    marks.iter().map(number).collect()
}

fn cores(hosts: &[usize], shares: &[UsableCores]) -> Vec<usize> {
    let of = |host| {
        UsableCores::count(
            hosts.iter().zip(shares).filter(|(other, _)| **other == host).map(|(_, share)| share),
        )
    };
    (0..=hosts.iter().max().copied().unwrap_or(0)).map(of).collect()
}

/// What cores each rank may use. Their lists differ in length.
fn shares(comm: &mut Communicator) -> Result<Vec<UsableCores>> {
    let mut mine = UsableCores::of_this_thread().to_bytes();
    let lengths = gather(comm, [mine.len() as u64])?;
    let longest = lengths.iter().map(|[length]| *length as usize).max().unwrap_or(0);
    mine.resize(longest, 0);
    let mut all = vec![0; longest * comm.world()];
    comm.all_gather(&mine, &mut all)?;
    let share =
        |(bytes, [length]): (&[u8], &[u64; 1])| UsableCores::from_bytes(&bytes[..*length as usize]);
    Ok(all.chunks_exact(longest.max(1)).zip(&lengths).map(share).collect())
}

fn gather<const N: usize>(comm: &mut Communicator, mine: [u64; N]) -> Result<Vec<[u64; N]>> {
    let mut all = vec![0; N * comm.world()];
    comm.all_gather(&mine, &mut all)?;
    Ok(all.as_chunks().0.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_numbered_by_their_first_rank() {
        assert_eq!(numbered(&[[7], [3], [7], [9], [3]]), [0, 1, 0, 2, 1]);
    }

    #[test]
    fn seats_are_enough_if_every_host_has_enough() {
        let mapping = |hosts: &[usize], cores: &[usize]| RankMapping {
            hosts: hosts.to_vec(),
            cores: cores.to_vec(),
            pids: Vec::new(),
            bound: Vec::new(),
        };
        assert!(mapping(&[0, 0, 1], &[2, 1]).are_enough());
        assert!(!mapping(&[0, 1, 1], &[2, 1]).are_enough());
    }

    #[test]
    fn ranks_find_one_another() {
        let all =
            Communicator::run_local(3, |mut comm| RankMapping::take(&mut comm, false).unwrap());
        for mapping in all {
            assert_eq!((mapping.hosts, mapping.bound), (vec![0; 3], vec![None; 3]));
            assert_eq!(mapping.pids, [u64::from(std::process::id()); 3]);
            assert_eq!(mapping.cores.len(), 1);
        }
    }
}
