//! The report that each rank sends to all others right after joining: the cores that it may use,
//! whether it can use verbs and, from rank 0, the costs by which all ranks choose.

use crate::control::transport::VerbsOffer;
use crate::schedule::hosts::Hosts;
use crate::tuner::CostTable;
use maypole_transports::cores::UsableCores;

/// The report of one rank.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct JoinReport {
    pub(crate) cores: UsableCores,
    /// The table of costs, if the report is of rank 0.
    pub(crate) costs: Option<CostTable>,
    pub(crate) verbs: VerbsOffer,
}

/// A report as it is sent: cores, costs, and whether the rank can use verbs.
type SentReport = (Vec<u8>, Option<String>, VerbsOffer);

impl JoinReport {
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let costs = self.costs.as_ref().map(CostTable::to_string);
        let report: SentReport = (self.cores.to_bytes(), costs, self.verbs.clone());
        postcard::to_stdvec(&report).expect("bytes and a string can be serialized")
    }

    /// Reads the report of rank `rank`.
    ///
    /// # Errors
    /// What is wrong with `bytes`, in words.
    pub(crate) fn from_bytes(rank: usize, bytes: &[u8]) -> Result<Self, String> {
        let refused = |why: String| {
            format!(
                "rank {rank} sent no valid report when it joined: {why}; run one version of \
                 maypole on all ranks"
            )
        };
        let (cores, costs, verbs) = match postcard::take_from_bytes::<SentReport>(bytes) {
            Ok((report, [])) => report,
            Ok((_, rest)) => return Err(refused(format!("{} bytes are left over", rest.len()))),
            Err(error) => return Err(refused(error.to_string())),
        };
        let costs = match costs.map(|text| text.parse::<CostTable>()) {
            None => None,
            Some(Ok(costs)) => Some(costs),
            Some(Err(error)) => return Err(refused(error.to_string())),
        };
        Ok(Self { cores: UsableCores::from_bytes(&cores), costs, verbs })
    }
}

/// How many ranks share how many cores of a host.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct HostLoad {
    pub(crate) ranks: usize,
    pub(crate) cores: usize,
}

impl HostLoad {
    /// The load of each host.
    pub(crate) fn of_hosts(hosts: &Hosts, reports: &[JoinReport]) -> Vec<Self> {
        let load = |host| {
            let ranks = (0..hosts.world()).filter(|rank| hosts.of(*rank) == host);
            let cores: Vec<_> = ranks.map(|rank| &reports[rank].cores).collect();
            Self { ranks: cores.len(), cores: UsableCores::count(cores) }
        };
        (0..hosts.count()).map(load).collect()
    }

    /// Ranks to a core, rounded up.
    pub(crate) fn crowding(self) -> usize {
        self.ranks.div_ceil(self.cores)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::VerbsPortOffer;
    use proptest::prelude::*;

    #[test]
    fn reports_are_read_back() {
        let offer = VerbsPortOffer {
            network: "InfiniBand".to_owned(),
            port: "port 1 of mlx5_0".to_owned(),
            ports: 2,
            number: 1,
        };
        let offers = [Ok(offer), Err("no device".to_owned())];
        for (costs, verbs) in [None, Some(CostTable::BUILT_IN)].into_iter().zip(offers) {
            let report = JoinReport { cores: UsableCores::of_this_thread(), costs, verbs };
            assert_eq!(JoinReport::from_bytes(1, &report.to_bytes()), Ok(report));
        }
    }

    #[test]
    fn a_report_that_cannot_be_read_names_its_rank() {
        let error = JoinReport::from_bytes(3, &[200, 1]).unwrap_err();
        assert!(error.starts_with("rank 3 sent no valid report"), "{error}");
    }

    proptest! {
        #[test]
        fn other_bytes_are_an_error_or_a_report(bytes: Vec<u8>) {
            if let Ok(report) = JoinReport::from_bytes(0, &bytes) {
                prop_assert_eq!(JoinReport::from_bytes(0, &report.to_bytes()), Ok(report));
            }
        }
    }

    #[test]
    fn ranks_and_cores_are_counted_by_host() {
        let verbs = Err("no device".to_owned());
        let report = JoinReport { cores: UsableCores::default(), costs: None, verbs };
        let loads = HostLoad::of_hosts(&Hosts::new(&[0, 0, 0, 1]), &vec![report; 4]);
        assert_eq!(loads, [HostLoad { ranks: 3, cores: 1 }, HostLoad { ranks: 1, cores: 1 }]);
        assert_eq!(loads[0].crowding(), 3);
    }
}
