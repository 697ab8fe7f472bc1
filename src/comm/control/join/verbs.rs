//! Whether the ranks use verbs: each rank tells what its machine has, and all decide alike.

use super::Transport;
use crate::schedule::hosts::Hosts;
use crate::topology::StreamLinks;
use crate::topology::transport::RefusalReason;

/// Why a rank that could choose does not look for a port. Verbs have not been shown on real adapters,
/// so nobody gets them unasked.
pub(crate) const UNNAMED: &str =
    "used only if every rank names its device (MAYPOLE_IB_DEVICE), or the job asks for ib";

/// What one rank has: nothing is wrong with its port, or what is.
pub(crate) type VerbsOffer = Result<(), String>;

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
        let refusing = offers.iter().filter(|offer| offer.is_err()).count();
        let first = offers.iter().enumerate().find_map(|(rank, offer)| match offer {
            Err(why) => Some((rank, why)),
            Ok(()) => None,
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

/// The offer as other ranks read it.
pub(super) fn to_bytes(offer: &VerbsOffer) -> Vec<u8> {
    postcard::to_stdvec(&offer.as_ref().err()).expect("a string can be serialized")
}

/// Reads the offer of a rank. What cannot be read is an offer of nothing.
pub(super) fn from_bytes(bytes: &[u8]) -> VerbsOffer {
    match postcard::take_from_bytes::<Option<String>>(bytes) {
        Ok((None, [])) => Ok(()),
        Ok((Some(why), [])) => Err(why),
        _ => Err("it sent no valid offer; run one version of maypole on all ranks".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offers(refusing: &[usize]) -> Vec<VerbsOffer> {
        let offer = |rank| match refusing.contains(&rank) {
            true => Err(format!("no port on host {rank}; plug it in")),
            false => Ok(()),
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
        for offer in [Ok(()), Err("no device".to_owned())] {
            assert_eq!(from_bytes(&to_bytes(&offer)), offer);
        }
        assert!(from_bytes(&[7]).unwrap_err().contains("one version"));
    }
}
