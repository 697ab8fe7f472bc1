//! Arbitrary reports of ranks that have just joined.

use super::report::{JoinReport, MachineLoad};
use crate::control::transport::Transport;
use crate::fuzz::Fuzz;
use crate::schedule::hosts::Hosts;
use crate::tuner::CostTable;
use crate::wire;
use maypole_transports::cores::UsableCores;

#[test]
fn reports_of_joining() {
    let report = |costs| JoinReport {
        cores: UsableCores::of_this_thread().to_bytes(),
        costs,
        transport: Transport::Auto,
        unshared: None,
    };
    let costs = Some(CostTable::BUILT_IN.to_string());
    let corpus = [report(None), report(costs)].map(|report| wire::encode(&report));
    let words = ["{\"tiny\":", "{\"alpha\": 1,", "\"switch\": 100000000000"];
    let fuzz = Fuzz::new("reports").corpus(corpus).words(&words).memory(2 << 20, 100);
    fuzz.run(|bytes| match JoinReport::from_bytes(1, bytes) {
        Err(why) => why,
        Ok(report) => {
            let loads =
                MachineLoad::of_all(&Hosts::new(&[0, 0]), &[report.clone(), report.clone()]);
            assert!(loads[0].cores > 0, "a host has a core");
            let costs = report.costs.map(|costs| costs.parse::<CostTable>());
            costs.map_or("a report".to_owned(), |costs| format!("{:?}", costs.map(drop)))
        }
    });
}
