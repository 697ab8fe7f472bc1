//! Hierarchical: one algorithm among the ranks of each host, another one across hosts.
//!
//! Two hosts with two ranks each, [linear](super::linear) within and [two shots](super::direct)
//! across:
//!
//! ```text
//! hierarchical all_reduce, n = 4
//!      rank 0              rank 1              rank 2               rank 3
//! 0    tmp0 =in0           in0,1 ->0           tmp1 =in1            in1,0 ->2
//!      tmp1 =in1                               tmp0 =in0
//!      in2,3 ->1                               in3,2 ->3
//! 1    tmp0 +=1            tmp2,3 <-0          tmp1 +=3             tmp3,2 <-2
//!      tmp1 +=1            tmp2 +=in2          tmp0 +=3             tmp3 +=in3
//!      tmp1 ->2            tmp3 +=in3 ->3      tmp0 ->0             tmp2 +=in2 ->1
//! 2    out0 =tmp0 +=2 ->2  out2 =tmp2 +=3 ->3  out1 <-0 +=tmp1 ->0  out3 <-1 +=tmp3 ->1
//! 3    out1 <-2            out3 <-3            out0 <-0             out2 <-1
//!      out0,1 ->1          out2,3 ->0          out1,0 ->3           out3,2 ->2
//! 4    out2,3 <-1          out0,1 <-0          out3,2 <-3           out1,0 <-2
//! ```
//!
//! As many ranks of every host as the smallest host has are *leaders*, one for each slice of the
//! vector. The ranks of a host reduce slice `l` to their `l`-th leader, the `l`-th leaders of all
//! hosts reduce it among themselves, and each hands it back to its host. With equal hosts that is
//! reduce-scatter, all-reduce, all-gather, and every rank sends the same number of bytes between
//! hosts. Hosts may have any number of ranks, in any order.
//!
//! The other collectives have one leader a host: the root on its own host, the lowest rank on the
//! others. Blocks are gathered there, exchanged host by host, and scattered from there.
//!
//! **Cost**: that of the parts, one after the other. With h hosts of m ranks, all-reduce sends 2
//! (h-1)/h S/m bytes a rank between hosts, where a flat ring sends up to 2 (n-1)/n S through the
//! one rank at each host's end.
//!
//! **Why**: as few bytes as possible cross between hosts, and each level can use the algorithm that
//! is best for its links.
//!
//! **Source**: N. T. Karonis, B. R. de Supinski, I. Foster, W. Gropp, E. Lusk, J. Bresnahan,
//! "Exploiting hierarchy in parallel computer networks to optimize collective operation
//! performance", IPDPS 2000.

mod blocks;
mod group;
mod vectors;

use super::Algorithm;
use crate::schedule::Schedule;
use crate::schedule::collective::Collective;
use group::HostGroup;

/// The two algorithms that a hierarchical one is made of.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Levels {
    /// The algorithm among the ranks of a host. The collective may need broadcast, reduce, gather
    /// and scatter; [`Linear`](Algorithm::Linear) and [`Binomial`](Algorithm::Binomial) have all
    /// four.
    pub local: Algorithm,
    /// The algorithm across hosts. It must implement the collective itself; a barrier may also be
    /// an all-reduce of its token.
    pub across: Algorithm,
}

impl Levels {
    /// Up to this many hosts, every host exchanges messages with every other.
    const FEW: usize = 8;

    /// The usual levels for `collective` across `hosts` hosts. Within a host one step is enough,
    /// because one publication reaches all ranks. Across few hosts there are few messages, so bytes
    /// decide.
    ///
    /// ```
    /// use maypole::algorithms::{Algorithm, hierarchical::Levels};
    /// use maypole::schedule::collective::Collective;
    /// assert_eq!(Levels::usual(Collective::AllReduce, 2).across, Algorithm::TwoShot);
    /// assert_eq!(Levels::usual(Collective::AllReduce, 64).across, Algorithm::HalvingDoubling);
    /// ```
    pub fn usual(collective: Collective, hosts: usize) -> Self {
        let few = hosts <= Self::FEW;
        let across = match collective {
            Collective::AllReduce if few => Algorithm::TwoShot,
            Collective::AllReduce => Algorithm::HalvingDoubling,
            Collective::Broadcast { .. } | Collective::Reduce { .. } => Algorithm::Tree,
            Collective::Gather { .. } | Collective::Scatter { .. } if few => Algorithm::Linear,
            Collective::Gather { .. } | Collective::Scatter { .. } => Algorithm::Binomial,
            Collective::AllGather | Collective::ReduceScatter if !few => Algorithm::Ring,
            Collective::Barrier => Algorithm::Dissemination,
            // All-to-all and scans have no hierarchical form.
            _ => Algorithm::Direct,
        };
        Self { local: Algorithm::Linear, across }
    }
}

/// How many hosts there are.
pub(crate) fn nodes(hosts: &[usize]) -> usize {
    let mut hosts = hosts.to_vec();
    hosts.sort_unstable();
    hosts.dedup();
    hosts.len()
}

/// The schedule of `rank` if rank `r` is on host `hosts[r]`. `None` if one of the two algorithms
/// does not implement its part, or if the collective is all-to-all or a scan.
///
/// Equal numbers in `hosts` are one host; the values mean nothing else. The schedules are right on
/// all executors, for any `hosts` that all ranks agree about, true or not. They work in place.
///
/// ```
/// use maypole::algorithms::{Algorithm, hierarchical::{Levels, schedule}};
/// use maypole::{schedule::collective::Collective, schedule::Placement, schedule::verify::verify};
/// let hosts = [0, 0, 0, 1, 1];
/// let levels = Levels { local: Algorithm::Linear, across: Algorithm::Ring };
/// let of = |rank| schedule(Collective::AllReduce, &hosts, rank, levels).unwrap();
/// let all: Vec<_> = (0..5).map(of).collect();
/// assert!(verify(Collective::AllReduce, &all, Placement::Apart).is_ok());
/// assert_eq!(schedule(Collective::AllToAll, &hosts, 0, levels), None);
/// ```
///
/// # Panics
/// If `rank` or the collective's root is not below the number of hosts given, one for each rank.
pub fn schedule(
    collective: Collective,
    hosts: &[usize],
    rank: usize,
    levels: Levels,
) -> Option<Schedule> {
    let world = hosts.len();
    assert!(rank < world, "rank {rank} in a world of {world}");
    assert!(
        collective.root().is_none_or(|root| root < world),
        "{collective:?} in a world of {world}"
    );
    let group = HostGroup::new(hosts, rank, levels);
    match collective {
        Collective::AllReduce => group.all_reduce(),
        Collective::Broadcast { root } => group.broadcast(root),
        Collective::Reduce { root } => group.reduce(root),
        Collective::Barrier => group.barrier(),
        Collective::Gather { root } => group.gather(root),
        Collective::AllGather => group.all_gather(),
        Collective::Scatter { root } => group.scatter(root),
        Collective::ReduceScatter => group.reduce_scatter(),
        Collective::AllToAll | Collective::Scan | Collective::ExclusiveScan => None,
    }
}
