//! Whether the ranks use verbs: each rank offers its port, and all ranks derive the same decision.

use crate::control::Control;
use crate::control::transport::{Transport, VerbsOffer};
use crate::error::Error;
use crate::schedule::hosts::Hosts;
use crate::topology::StreamLinks;
use crate::topology::transport::RefusalReason;
use crate::wire;
use crate::world::PortChoice;
use std::time::Instant;

/// Attempts after the first one. Each failure takes some seconds.
const MOST_ATTEMPTS: usize = 7;

impl Transport {
    /// The transport of streams between ranks on `hosts` that make these offers, by rank.
    ///
    /// # Errors
    /// If verbs were requested by name, and a rank cannot use them.
    pub(super) fn links(self, hosts: &Hosts, offers: &[VerbsOffer]) -> Result<StreamLinks, String> {
        if !self.looks_for_verbs(hosts) {
            return Ok(StreamLinks::Tcp(match self {
                Self::Auto => RefusalReason::Other(StreamLinks::BETWEEN_HOSTS.to_owned()),
                _ => RefusalReason::Forbidden,
            }));
        }
        let offers = of_one_network(offers);
        let refusing = offers.iter().filter(|offer| offer.is_err()).count();
        let mut refusals = offers.iter().enumerate();
        let first = refusals.find_map(|(rank, offer)| Some((rank, offer.as_ref().err()?)));
        match (self, first) {
            (Self::Ib, None) => Ok(StreamLinks::Verbs),
            (_, None) => Ok(StreamLinks::VerbsBetweenHosts),
            (Self::Ib, Some((rank, why))) => Err(format!(
                "ib was asked for, but {refusing} of {} ranks cannot use verbs, the first of them \
                 rank {rank}: {why}; or use auto or tcp",
                offers.len()
            )),
            (_, Some((rank, why))) => {
                Ok(StreamLinks::Tcp(RefusalReason::Other(format!("rank {rank}: {why}"))))
            }
        }
    }
}

/// Rank `rank` of the ranks on `hosts`, which choose the transport of their streams together.
pub(super) struct OfferingGroup<'a> {
    pub(super) control: &'a dyn Control,
    pub(super) transport: Transport,
    pub(super) rank: usize,
    pub(super) hosts: &'a Hosts,
    pub(super) deadline: Instant,
}

impl OfferingGroup<'_> {
    /// Exchanges offers and decides. Collective.
    ///
    /// # Errors
    /// As of [`decide`](Self::decide).
    pub(super) fn agree(&self) -> Result<StreamLinks, Error> {
        let offers = match self.transport.looks_for_verbs(self.hosts) {
            true => self.tell(&self.control.offer_verbs(self.transport, PortChoice::Share))?,
            false => Vec::new(),
        };
        self.decide(&offers)
    }

    /// Decides the transport of streams between the ranks, which make these offers. Collective,
    /// with the same result on all ranks.
    ///
    /// An active port may be on another network, so each rank tests its connection to others. If
    /// one fails, all try their next best ports.
    ///
    /// # Errors
    /// If verbs were requested by name and a rank cannot use them, or if an exchange of trial
    /// results does not complete by the deadline.
    pub(super) fn decide(&self, offers: &[VerbsOffer]) -> Result<StreamLinks, Error> {
        let links = |offers| self.transport.links(self.hosts, offers).map_err(Error::wrong_setting);
        if !self.transport.looks_for_verbs(self.hosts) {
            return links(offers);
        }
        let first = self.try_ways(offers)?;
        let mut last = first.clone();
        for attempt in other_attempts(offers) {
            if last.iter().all(Result::is_ok) {
                break;
            }
            let offers = self.tell(&self.control.offer_verbs(self.transport, attempt))?;
            last = self.try_ways(&offers)?;
        }
        // If no port serves, the error is that of the best ports.
        links(if last.iter().all(Result::is_ok) { &last } else { &first })
    }

    /// Exchanges the offers of all ranks; returns them by rank.
    fn tell(&self, mine: &VerbsOffer) -> Result<Vec<VerbsOffer>, Error> {
        let told = self.control.exchange(wire::encode(mine), self.deadline);
        let told = told.map_err(Error::unjoined)?;
        Ok(told.iter().map(|offer| read(offer)).collect())
    }

    /// Tests the connections between the ports of `offers`. Returns the same offers, but refuses
    /// those of ranks that do not reach others.
    fn try_ways(&self, offers: &[VerbsOffer]) -> Result<Vec<VerbsOffer>, Error> {
        let offers = of_one_network(offers);
        let all: Result<Vec<_>, _> = offers.iter().map(Result::as_ref).collect();
        let Ok(ports) = all else { return Ok(offers) };
        let port = ports[self.rank];
        let fails = |peer: usize| {
            let why = self.control.try_verbs(peer).err()?;
            Some(format!("verbs do not reach rank {peer} from {}: {why}", port.port))
        };
        let peers = trial_peers(self.transport, self.hosts, self.rank);
        let why = peers.into_iter().find_map(fails);
        let told = self.tell(&why.map_or_else(|| Ok(port.clone()), Err))?;
        // All ranks have made their trials.
        self.control.end_trials();
        Ok(told)
    }
}

/// The next attempts of ranks that do not reach one another by the ports of these offers: the best
/// port of each, then the second best of each, and so on. Empty if a rank has no port.
fn other_attempts(offers: &[VerbsOffer]) -> Vec<PortChoice> {
    let offers: Option<Vec<_>> = offers.iter().map(|offer| offer.as_ref().ok()).collect();
    let offers = offers.unwrap_or_default();
    let most = offers.iter().map(|offer| offer.ports).max().unwrap_or(0);
    let has_tried_best = offers.iter().all(|offer| offer.number == 0);
    let numbers = usize::from(has_tried_best)..most;
    numbers.map(PortChoice::Nth).take(MOST_ATTEMPTS).collect()
}

/// The ranks to which `rank` tests a connection: on the next host the rank with its own number
/// there, whose port is likely to have the same number, and the one after it. Where ranks of one
/// host use verbs too, also the next rank of this host.
fn trial_peers(transport: Transport, hosts: &Hosts, rank: usize) -> Vec<usize> {
    let at = hosts.index(rank);
    let of_host = |host: usize| -> Vec<usize> {
        (0..hosts.world()).filter(|other| hosts.of(*other) == host).collect()
    };
    let here = of_host(hosts.of(rank));
    let there = of_host((hosts.of(rank) + 1) % hosts.count());
    let mut peers = Vec::new();
    if !hosts.is_one() {
        peers.extend([there[at % there.len()], there[(at + 1) % there.len()]]);
    }
    if transport == Transport::Ib {
        peers.push(here[(at + 1) % here.len()]);
    }
    peers.dedup();
    peers.retain(|peer| *peer != rank);
    peers
}

/// The offers, of which those of another network than the first rank's are refused.
fn of_one_network(offers: &[VerbsOffer]) -> Vec<VerbsOffer> {
    let first =
        offers.iter().enumerate().find_map(|(rank, offer)| Some((rank, offer.as_ref().ok()?)));
    let checked = |offer: &VerbsOffer| match (offer, first) {
        (Ok(mine), Some((rank, theirs))) if mine.network != theirs.network => Err(format!(
            "its port is of {}, that of rank {rank} of {}; MAYPOLE_IB_DEVICE, MAYPOLE_IB_PORT and \
             MAYPOLE_IB_GID_INDEX choose another",
            mine.network, theirs.network
        )),
        _ => offer.clone(),
    };
    offers.iter().map(checked).collect()
}

/// Reads the offer of a rank. Invalid bytes are a refused offer.
fn read(bytes: &[u8]) -> VerbsOffer {
    wire::decode(bytes).unwrap_or_else(|why| {
        Err(format!("it sent no valid offer: {why}; run one version of maypole on all ranks"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::VerbsPortOffer;

    const ROCE: &str = "RoCE v2 over IPv4";

    fn offers(refusing: &[usize]) -> Vec<VerbsOffer> {
        let offer = |rank| match refusing.contains(&rank) {
            true => Err(format!("no port on host {rank}; plug it in")),
            false => Ok(port(ROCE, 1, 0)),
        };
        (0..4).map(offer).collect()
    }

    fn port(network: &str, ports: usize, number: usize) -> VerbsPortOffer {
        let port = format!("port 1 of rxe{number}");
        VerbsPortOffer { network: network.to_owned(), port, ports, number }
    }

    #[test]
    fn all_ranks_or_none_use_verbs() {
        let two = Hosts::new(&[0, 0, 1, 1]);
        let links =
            |transport: Transport, refusing: &[usize]| transport.links(&two, &offers(refusing));
        assert_eq!(links(Transport::Ib, &[]), Ok(StreamLinks::Verbs));
        assert_eq!(links(Transport::Auto, &[]), Ok(StreamLinks::VerbsBetweenHosts));
        let why = "rank 2: no port on host 2; plug it in".to_owned();
        let tcp = StreamLinks::Tcp(RefusalReason::Other(why.clone()));
        assert_eq!(links(Transport::Auto, &[2, 3]), Ok(tcp));
        let error = links(Transport::Ib, &[2, 3]).unwrap_err();
        assert!(error.contains(&why) && error.contains("2 of 4 ranks"), "{error}");
        for other in [Transport::Shm, Transport::Tcp] {
            assert_eq!(links(other, &[]), Ok(StreamLinks::Tcp(RefusalReason::Forbidden)));
        }
    }

    #[test]
    fn ports_that_do_not_reach_each_other_are_not_used() {
        let two = Hosts::new(&[0, 0, 1, 1]);
        let mut offers = offers(&[]);
        offers[3] = Ok(port("InfiniBand", 1, 0));
        let why = "rank 3: its port is of InfiniBand, that of rank 0 of RoCE v2 over IPv4";
        match Transport::Auto.links(&two, &offers) {
            Ok(StreamLinks::Tcp(RefusalReason::Other(said))) => {
                assert!(said.starts_with(why), "{said}");
            }
            other => panic!("{other:?}"),
        }
        let error = Transport::Ib.links(&two, &offers).unwrap_err();
        assert!(error.contains("1 of 4 ranks") && error.contains(why), "{error}");
    }

    #[test]
    fn trials_go_around_all_hosts_between_ports_of_the_same_and_of_other_numbers() {
        let hosts = Hosts::new(&[0, 0, 1, 2, 2]);
        let peers = |transport| -> Vec<_> {
            (0..5).map(|rank| trial_peers(transport, &hosts, rank)).collect()
        };
        let between = [vec![2], vec![2], vec![3, 4], vec![0, 1], vec![1, 0]];
        assert_eq!(peers(Transport::Auto), between);
        let everywhere = [vec![2, 1], vec![2, 0], vec![3, 4], vec![0, 1, 4], vec![1, 0, 3]];
        assert_eq!(peers(Transport::Ib), everywhere);
        let one = Hosts::new(&[0; 3]);
        assert_eq!(trial_peers(Transport::Ib, &one, 2), [0]);
        assert_eq!(trial_peers(Transport::Ib, &Hosts::new(&[0]), 0), [0; 0]);
    }

    #[test]
    fn ranks_that_do_not_reach_one_another_try_their_other_ports() {
        let nth =
            |numbers: std::ops::Range<usize>| numbers.map(PortChoice::Nth).collect::<Vec<_>>();
        let of = |number| Ok(port(ROCE, 3, number));
        assert_eq!(other_attempts(&[of(0), of(0)]), nth(1..3));
        assert_eq!(other_attempts(&[of(0), of(1)]), nth(0..3), "nobody has tried the best alone");
        assert_eq!(other_attempts(&[Ok(port(ROCE, 1, 0)), of(0)]), nth(1..3));
        assert_eq!(other_attempts(&[Err("no device".to_owned()), of(1)]), []);
        assert_eq!(other_attempts(&[Ok(port(ROCE, 99, 0))]).len(), MOST_ATTEMPTS);
    }

    /// Opening the library takes time, which ranks of one host save.
    #[test]
    fn ranks_of_one_host_look_for_ports_only_if_asked_by_name() {
        let one = Hosts::new(&[0; 4]);
        assert!(!Transport::Auto.looks_for_verbs(&one) && Transport::Ib.looks_for_verbs(&one));
        assert_eq!(Transport::Ib.links(&one, &offers(&[])), Ok(StreamLinks::Verbs));
        assert!(matches!(Transport::Auto.links(&one, &offers(&[])), Ok(StreamLinks::Tcp(_))));
    }

    #[test]
    fn an_offer_comes_back() {
        for offer in [Ok(port(ROCE, 3, 2)), Err("no device".to_owned())] {
            assert_eq!(read(&wire::encode(&offer)), offer);
        }
        assert!(read(&[7]).unwrap_err().contains("one version"));
    }
}
