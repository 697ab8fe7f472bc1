//! Arbitrary reports of ranks that have just joined.

use super::report::{JoinReport, MachineLoad};
use crate::control::transport::Transport;
use crate::fuzz::Fuzz;
use crate::schedule::hosts::Hosts;
use crate::tuner::CostTable;
use maypole_transports::cores::UsableCores;

#[test]
fn reports_of_joining() {
    let report = |costs| JoinReport {
        cores: UsableCores::of_this_thread(),
        costs,
        transport: Some(Transport::Auto),
        trace: None,
        unshared: None,
    };
    let corpus = [report(None).to_bytes(), report(Some(CostTable::BUILT_IN)).to_bytes()];
    let words = ["maypole costs 2\n", "tiny 1 2 3\n", "switch 100000000000\n"];
    let fuzz = Fuzz::new("reports").corpus(corpus).words(&words).memory(2 << 20, 100);
    fuzz.run(|bytes| match JoinReport::from_bytes(1, bytes) {
        Err(why) => why,
        Ok(report) => {
            let loads = MachineLoad::of_all(&Hosts::new(&[0, 0]), &[report.clone(), report]);
            assert!(loads[0].cores > 0, "a host has a core");
            "a report".to_owned()
        }
    });
}
