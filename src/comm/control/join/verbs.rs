//! Whether the ranks use verbs: each rank tells what its machine has, and all decide alike.

use super::Transport;
use crate::comm::control::Control;
use crate::comm::error::Error;
use crate::schedule::hosts::Hosts;
use crate::topology::StreamLinks;
use crate::topology::transport::RefusalReason;
use std::time::Instant;

/// Why a rank that was not asked for verbs by name does not look for a port.
pub(crate) const NO_DEVICES: &str =
    "the kernel offers programs no RDMA devices (there is no /dev/infiniband)";

/// What one rank has: the kind of network that its port is of, or what is wrong with the port.
pub(crate) type VerbsOffer = Result<String, String>;

impl Transport {
    /// True if ranks on `hosts` look for RDMA ports when they choose this transport.
    pub(super) fn looks_for_verbs(self, hosts: &Hosts) -> bool {
        match self {
            Self::Auto => !hosts.is_one(),
            Self::Shm | Self::Tcp => false,
            Self::Ib => true,
        }
    }

    /// What carries the streams between ranks on `hosts` that make these offers, by rank.
    ///
    /// # Errors
    /// If verbs were asked for by name, and a rank cannot use them.
    pub(super) fn links(self, hosts: &Hosts, offers: &[VerbsOffer]) -> Result<StreamLinks, String> {
        if !self.looks_for_verbs(hosts) {
            return Ok(match self {
                Self::Auto => {
                    let why = StreamLinks::BETWEEN_HOSTS.to_owned();
                    StreamLinks::Tcp(RefusalReason::Other(why))
                }
                _ => StreamLinks::Tcp(RefusalReason::Forbidden),
            });
        }
        let offers = of_one_network(offers);
        let refusing = offers.iter().filter(|offer| offer.is_err()).count();
        let first = offers.iter().enumerate().find_map(|(rank, offer)| match offer {
            Err(why) => Some((rank, why)),
            Ok(_) => None,
        });
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

/// Decides what carries the streams between the ranks on `hosts` that make these offers, and tells
/// the same to all. All ranks of the group call this; this one is `rank`.
///
/// Where ranks use verbs unasked, the first rank of each host makes sure that it reaches that of the
/// next host: an active port may be on another network.
///
/// # Errors
/// If verbs were asked for by name and a rank cannot use them, or if the ranks are not told of one
/// another's trials by `deadline`.
pub(super) fn decide(
    control: &dyn Control,
    transport: Transport,
    (rank, hosts): (usize, &Hosts),
    offers: &[VerbsOffer],
    deadline: Instant,
) -> Result<StreamLinks, Error> {
    let links = transport.links(hosts, offers).map_err(Error::wrong_setting)?;
    if transport != Transport::Auto || links != StreamLinks::VerbsBetweenHosts {
        return Ok(links);
    }
    let tried = match first_of_next_host(hosts, rank) {
        Some(peer) => control
            .try_verbs(peer)
            .map_err(|why| format!("verbs do not reach rank {peer} from it: {why}")),
        None => Ok(()),
    };
    let mine = tried.and_then(|()| offers[rank].clone());
    let told = control.exchange(to_bytes(&mine), deadline).map_err(Error::unjoined)?;
    // All ranks have made their trials.
    control.end_trials();
    let offers: Vec<_> = told.iter().map(|offer| from_bytes(offer)).collect();
    transport.links(hosts, &offers).map_err(Error::wrong_setting)
}

/// The first rank of the host after that of `rank`, if `rank` is the first of its host.
fn first_of_next_host(hosts: &Hosts, rank: usize) -> Option<usize> {
    if hosts.index(rank) > 0 {
        return None;
    }
    let next = (hosts.of(rank) + 1) % hosts.count();
    (0..hosts.world()).find(|other| hosts.of(*other) == next)
}

/// The offers, of which those of another network than the first rank's are refused.
fn of_one_network(offers: &[VerbsOffer]) -> Vec<VerbsOffer> {
    let first =
        offers.iter().enumerate().find_map(|(rank, offer)| Some((rank, offer.as_ref().ok()?)));
    let checked = |offer: &VerbsOffer| match (offer, first) {
        (Ok(network), Some((rank, others))) if network != others => Err(format!(
            "its port is of {network}, that of rank {rank} of {others}; MAYPOLE_IB_DEVICE, \
             MAYPOLE_IB_PORT and MAYPOLE_IB_GID_INDEX choose another"
        )),
        _ => offer.clone(),
    };
    offers.iter().map(checked).collect()
}

/// The offer as other ranks read it.
pub(super) fn to_bytes(offer: &VerbsOffer) -> Vec<u8> {
    postcard::to_stdvec(offer).expect("a string can be serialized")
}

/// Reads the offer of a rank. What cannot be read is an offer of nothing.
pub(super) fn from_bytes(bytes: &[u8]) -> VerbsOffer {
    match postcard::take_from_bytes::<VerbsOffer>(bytes) {
        Ok((offer, [])) => offer,
        _ => Err("it sent no valid offer; run one version of maypole on all ranks".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROCE: &str = "RoCE v2 over IPv4";

    fn offers(refusing: &[usize]) -> Vec<VerbsOffer> {
        let offer = |rank| match refusing.contains(&rank) {
            true => Err(format!("no port on host {rank}; plug it in")),
            false => Ok(ROCE.to_owned()),
        };
        (0..4).map(offer).collect()
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
        offers[3] = Ok("InfiniBand".to_owned());
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
    fn trials_go_once_around_all_hosts() {
        let hosts = Hosts::new(&[0, 0, 1, 2, 2]);
        let trials: Vec<_> = (0..5).map(|rank| first_of_next_host(&hosts, rank)).collect();
        assert_eq!(trials, [Some(2), None, Some(3), Some(0), None]);
    }

    /// Opening a library takes time that ranks of one host need not spend.
    #[test]
    fn ranks_of_one_host_look_for_ports_only_if_asked_by_name() {
        let one = Hosts::new(&[0; 4]);
        assert!(!Transport::Auto.looks_for_verbs(&one) && Transport::Ib.looks_for_verbs(&one));
        assert_eq!(Transport::Ib.links(&one, &offers(&[])), Ok(StreamLinks::Verbs));
        assert!(matches!(Transport::Auto.links(&one, &offers(&[])), Ok(StreamLinks::Tcp(_))));
    }

    #[test]
    fn an_offer_comes_back() {
        for offer in [Ok(ROCE.to_owned()), Err("no device".to_owned())] {
            assert_eq!(from_bytes(&to_bytes(&offer)), offer);
        }
        assert!(from_bytes(&[7]).unwrap_err().contains("one version"));
    }
}
