//! What each rank tells all others right after joining: its share of the cores, and rank 0 the
//! table of costs.

use crate::schedule::hosts::Hosts;
use crate::tuner::CostTable;
use maypole_transports::cores::UsableCores;
use std::collections::BTreeMap;

/// What one rank says.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Offer {
    pub(crate) share: UsableCores,
    pub(crate) costs: Option<CostTable>,
}

impl Offer {
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let share = self.share.to_bytes();
        let mut bytes = (share.len() as u32).to_le_bytes().to_vec();
        bytes.extend(share);
        bytes.extend(self.costs.iter().flat_map(|costs| costs.to_string().into_bytes()));
        bytes
    }

    /// The reverse. Any bytes are some offer.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Self {
        let (len, rest) = bytes.split_first_chunk().unwrap_or((&[0; 4], &[]));
        let (share, costs) = rest.split_at((u32::from_le_bytes(*len) as usize).min(rest.len()));
        let costs = std::str::from_utf8(costs).ok().and_then(|text| text.parse().ok());
        Self { share: UsableCores::from_bytes(share), costs }
    }
}

/// For each machine, how many ranks share how many cores.
pub(crate) struct Crowds(BTreeMap<usize, (usize, usize)>);

impl Crowds {
    pub(crate) fn new(hosts: &Hosts, offers: &[Offer]) -> Self {
        let mut shares: BTreeMap<usize, Vec<&UsableCores>> = BTreeMap::new();
        for (host, offer) in hosts.numbers().iter().zip(offers) {
            shares.entry(*host).or_default().push(&offer.share);
        }
        let crowd = |(machine, shares): (usize, Vec<&UsableCores>)| {
            (machine, (shares.len(), UsableCores::count(shares)))
        };
        Self(shares.into_iter().map(crowd).collect())
    }

    pub(crate) fn of(&self, machine: usize) -> (usize, usize) {
        self.0[&machine]
    }

    /// Ranks to a core on the fullest machine, rounded up.
    pub(crate) fn worst(&self) -> usize {
        self.0.values().map(|(ranks, cores)| ranks.div_ceil(*cores)).max().unwrap_or(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn offers_are_read_back() {
        for costs in [None, Some(CostTable::BUILT_IN)] {
            let offer = Offer { share: UsableCores::of_this_thread(), costs };
            assert_eq!(Offer::from_bytes(&offer.to_bytes()), offer);
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_some_offer(bytes: Vec<u8>) {
            Offer::from_bytes(&bytes);
        }
    }

    #[test]
    fn the_fullest_machine_counts() {
        let offer = Offer { share: UsableCores::default(), costs: None };
        let crowds = Crowds::new(&Hosts::new(&[0, 0, 0, 1]), &vec![offer; 4]);
        assert_eq!((crowds.of(0), crowds.of(1), crowds.worst()), ((3, 1), (1, 1), 3));
    }
}
