//! The network between the hosts of a world, and its sites, by the ranks' round trips to the host of rank 0.

use crate::schedule::hosts::Hosts;
use crate::tuner::Network;
use crate::world::Peer;
use std::time::Duration;

/// Classes by which the round trip of a far host is longer than the shortest: 4 to 16 times. One class may be the
/// load of a machine.
const FAR: u32 = 2;

/// The network of a world, and by rank the number of its site. Hosts that are as near to the host of rank 0 as the
/// nearest, to a factor of 4 to 16, are at its site. Two others are at one site if their round trips have one class,
/// and their addresses one subnet; all else would have to be measured between them.
pub(super) fn found(hosts: &Hosts, peers: &[Peer]) -> (Network, Vec<usize>) {
    let elsewhere = (0..peers.len()).filter(|rank| !hosts.together(0, *rank));
    let paths: Vec<_> = elsewhere.map(|rank| (rank, &peers[rank])).collect();
    // Ranks of a host have one path, and the kernel of one of them may have been late.
    let mut classes: Vec<Option<u32>> = vec![None; hosts.count()];
    for (rank, path) in &paths {
        let least = &mut classes[hosts.of(*rank)];
        let class = path.round_trip.map(Network::class);
        *least = class.into_iter().chain(*least).min();
    }
    let nearest = classes.iter().flatten().min().copied().unwrap_or(0);
    let mut sites = vec![(0, 0); peers.len()];
    let (mut near, mut far, mut bandwidths): (Vec<Duration>, Vec<Duration>, Vec<u64>) =
        Default::default();
    for (rank, path) in &paths {
        let Some(class) = classes[hosts.of(*rank)] else { continue };
        if class >= nearest + FAR {
            sites[*rank] = (class, path.subnet());
            far.extend(path.round_trip);
        } else {
            near.extend(path.round_trip);
            bandwidths.extend(path.bandwidth);
        }
    }
    let network = Network::measured(&near, &bandwidths).between_sites(&far);
    (network, Hosts::new(&sites).numbers().to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::service::AgreedWorld;

    /// The sites of hosts with one rank each, and the hop within one and between two in microseconds.
    fn of(trips: &[(u64, u64)]) -> (Vec<usize>, [u64; 2]) {
        let first = AgreedWorld::alone(&[]).peers;
        let other = |(at, (us, subnet)): (usize, &(u64, u64))| {
            let mut peer = first[0].clone();
            peer.host = at.to_string();
            peer.listen = ([10, 0, *subnet as u8, 1], 0).into();
            peer.round_trip = Some(Duration::from_micros(*us));
            peer
        };
        let others: Vec<_> = trips.iter().enumerate().map(other).collect();
        let all = [&first[..], &others].concat();
        let hosts = Hosts::new(&all.iter().map(|it| &*it.host).collect::<Vec<_>>());
        let (network, sites) = found(&hosts, &all);
        (sites, [network.hop, network.far].map(|it| it / 1_000_000))
    }

    #[test]
    fn hosts_of_one_network_are_one_site_whatever_their_load() {
        assert_eq!(of(&[(200, 1), (300, 1), (900, 2)]), (vec![0; 4], [256, 0]));
        assert_eq!(of(&[(20_000, 1), (21_000, 1)]), (vec![0; 3], [16_384, 0]));
        assert_eq!(of(&[]), (vec![0], [0, 0]));
    }

    #[test]
    fn far_hosts_are_a_site_of_their_own_subnet() {
        let far = 4096 - 64;
        assert_eq!(of(&[(200, 1), (9_000, 1), (9_500, 1)]), (vec![0, 0, 1, 1], [64, far]));
        assert_eq!(of(&[(200, 1), (9_000, 2), (9_500, 3)]), (vec![0, 0, 1, 2], [64, far]));
        // Containers of one machine, and one elsewhere.
        assert_eq!(of(&[(20, 1), (9_000, 1)]), (vec![0, 0, 1], [0, 4096]));
    }
}
