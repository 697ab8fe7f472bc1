//! A simulated link keeps the contract of every stream.

#[path = "../../../transports/tests/contract/drive.rs"]
#[expect(dead_code, reason = "other streams use the rest")]
mod drive;

#[path = "../../../transports/tests"]
mod simulated {
    use crate::drive::StreamEnd;
    use maypole_testing::network::{NetworkConditions, SimulatedNetwork};
    use std::time::Duration;

    const LARGEST: usize = 64 << 10;
    const NARROW: bool = false;

    /// The two ends of a link, without turns: the clock advances with each use.
    fn pair() -> (impl StreamEnd, impl StreamEnd) {
        SimulatedNetwork::new(NetworkConditions {
            seed: 1,
            hosts: vec![0, 1],
            capacity: 1000,
            longest_delay: Duration::from_micros(30),
            faults: Vec::new(),
            most_turns: u64::MAX,
        })
        .link(0, 1)
    }

    #[path = "contract/stream.rs"]
    mod contract;
}
