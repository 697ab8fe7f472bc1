//! The world that the ranks agreed on, in words.

use crate::comm::Communicator;
use crate::tuner::pair_groups;
use std::fmt::Write;

impl Communicator {
    /// Describes the world: the number of ranks and of hosts, and which transport joins each pair
    /// of ranks, with the reasons against faster ones. The same on every rank. With
    /// `MAYPOLE_LOG=info` rank 0 prints this when a program joins.
    ///
    /// ```
    /// let said = maypole::Communicator::run_local(2, |comm| comm.summary());
    /// assert!(said[0].starts_with("maypole: 2 ranks on 1 host"));
    /// assert!(said[0].contains("1 pairs by shm, first 0-1; CUDA: the buffers are in host memory"));
    /// ```
    pub fn summary(&self) -> String {
        let hosts = self.hosts.count();
        let ranks = self.world();
        let noun = if hosts == 1 { "host" } else { "hosts" };
        let mut text = format!(
            "maypole: {ranks} ranks on {hosts} {noun}, at most {} to a core",
            self.crowding()
        );
        for group in pair_groups(self.boards(), &self.hosts, &self.conditions().links) {
            write!(text, "\nmaypole: {group}").expect("a string takes all");
        }
        let network = self.engine.get().conditions.prices().network;
        if hosts > 1 && !network.is_near() {
            write!(text, "\nmaypole: between hosts {network} is counted on (MAYPOLE_NETWORK)")
                .expect("a string takes all");
        }
        text
    }
}
