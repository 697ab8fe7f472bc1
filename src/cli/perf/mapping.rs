//! The mapping of ranks to hosts, machines and cores.

use crate::affinity;
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
    pub(crate) machines: Hosts,
    /// For each machine, the number of cores that its ranks may use together.
    pub(crate) cores: Vec<usize>,
    /// The process of each rank.
    pub(crate) pids: Vec<u32>,
    /// The core that each rank is bound to.
    pub(crate) bound: Vec<Option<usize>>,
    /// True on the lowest rank of each machine.
    pub(crate) is_first_of_machine: bool,
    /// The cores that the ranks of this rank's machine are bound to; empty if one of them is not.
    pub(crate) bound_here: BTreeSet<usize>,
}

impl RankMapping {
    /// Binds this rank to a core if `bind` is true, and exchanges the mapping of all ranks.
    /// Collective.
    pub(crate) fn exchange(comm: &mut Communicator, bind: bool) -> Result<Self> {
        let rank = comm.rank();
        let usable = UsableCores::of_this_thread().to_bytes();
        let places = comm.all_gather_values(&(machine_id(), usable))?;
        let (ids, usable): (Vec<String>, Vec<Vec<u8>>) = places.into_iter().unzip();
        let machines = Hosts::new(&ids);
        let index_on_machine = machines.index(rank);
        let core = bind
            .then(|| affinity::bind(index_on_machine))
            .transpose()
            .context("cannot bind this rank to a core; use --bind false")?;
        let processes = comm.all_gather_values(&(std::process::id(), core))?;
        let (pids, bound): (_, Vec<Option<usize>>) = processes.into_iter().unzip();
        let bound_here = machines.locals(rank).into_iter().map(|rank| bound[rank]);
        Ok(Self {
            hosts: comm.hosts().clone(),
            cores: cores(&machines, &usable),
            pids,
            is_first_of_machine: index_on_machine == 0,
            bound_here: bound_here.collect::<Option<_>>().unwrap_or_default(),
            bound,
            machines,
        })
    }

    /// True if all ranks read one clock.
    pub(crate) fn is_one_machine(&self) -> bool {
        self.machines.is_one()
    }

    /// True if every machine has a core for each of its ranks.
    pub(crate) fn has_core_for_each(&self) -> bool {
        self.machines.sizes().iter().zip(&self.cores).all(|(ranks, cores)| ranks <= cores)
    }
}

/// Words that all processes of this machine have in common until it restarts.
fn machine_id() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default()
}

/// By machine: how many of the `usable` cores of its ranks there are.
fn cores(machines: &Hosts, usable: &[Vec<u8>]) -> Vec<usize> {
    let of_machine = |machine: usize| {
        let ranks = machines.numbers().iter().zip(usable).filter(|(of, _)| **of == machine);
        let usable: Vec<_> = ranks.map(|(_, bytes)| UsableCores::from_bytes(bytes)).collect();
        UsableCores::count(&usable)
    };
    (0..machines.count()).map(of_machine).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_machine_needs_enough_cores() {
        let mapping = |machines: &[usize], cores: &[usize]| RankMapping {
            hosts: Hosts::new(machines),
            machines: Hosts::new(machines),
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
            assert_eq!(mapping.machines.numbers(), [0; 3]);
            assert_eq!(mapping.bound, [None; 3]);
            assert_eq!(mapping.pids, [std::process::id(); 3]);
            assert_eq!(mapping.cores.len(), 1);
        }
    }
}
