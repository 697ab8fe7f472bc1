//! One host tells what all hosts tell.

use super::*;
use crate::build::cluster::{Fabric, named};
use crate::build::link::with_bandwidth;
use maypole::topology::{LinkKind, NodeKind};

/// The costs of all collectives and algorithms: by one host where that is possible, and by all ranks.
fn compare(topology: &Topology, name: &str) -> usize {
    let model = CostModel::new(topology).unwrap();
    let mut by_one_host = 0;
    for collective in Collective::all(model.world() - 1) {
        for algorithm in model.algorithms(collective) {
            let symmetry = model.symmetry(collective, algorithm);
            by_one_host += usize::from(symmetry.is_some());
            let by = |hosts| model.cost_by(collective, algorithm, hosts).unwrap();
            let [one, all] = [symmetry, None].map(|hosts| format!("{:?}", by(hosts)));
            assert!(one == all, "{name}, {algorithm} {collective:?}:\n{one}\n{all}");
        }
    }
    by_one_host
}

#[test]
fn one_host_tells_what_all_hosts_tell() {
    let fabrics = [Fabric::Flat, Fabric::Rails, Fabric::IsolatedRails];
    let names = ["2xdgx-a100", "3xpcie-phb", "4xcpu:2x2", "3xmi300x", "5xcpu:1x1", "4xdgx-h100"];
    for (name, fabric) in names.into_iter().zip(fabrics.into_iter().cycle()) {
        let topology = named(name, fabric).unwrap();
        let by_one_host = compare(&topology, &format!("{name} {fabric:?}"));
        assert!(by_one_host > 30, "{name}: {by_one_host}");
    }
    assert!(compare(&named("8xpcie-phb", Fabric::Flat).unwrap(), "8xpcie-phb") > 50);
}

/// A link, a rank or a cable that one host alone has is a difference, also where its schedules are alike.
#[test]
fn unequal_hosts_are_all_followed() {
    let equal = named("4xdgx-a100", Fabric::Flat).unwrap();
    let of_second = |link: usize, cluster: &Topology| {
        cluster.nodes()[cluster.links()[link].from].host == Some(1)
    };
    let link = (0..equal.links().len()).find(|link| of_second(*link, &equal)).unwrap();
    let slower = with_bandwidth(&equal, link, equal.links()[link].bandwidth / 2.0);

    let mut larger = named("3xpcie-phb", Fabric::Flat).unwrap();
    let bridge = larger.nodes_of(NodeKind::HostBridge)[1];
    let gpu = larger.add(NodeKind::Gpu, Some(1), "GPU4");
    larger.join(gpu, bridge, LinkKind::Pci, 20.0);

    let mut wired = named("3xpcie-phb", Fabric::Flat).unwrap();
    let cards = wired.nodes_of(NodeKind::Nic);
    wired.join(cards[0], cards[1], LinkKind::Network, 12.5);

    for (topology, name) in [(slower, "slower"), (larger, "larger"), (wired, "wired")] {
        assert_eq!(compare(&topology, name), 0, "{name}");
    }
}

#[test]
fn what_is_too_long_is_left_out() {
    // 1,152 ranks, of which halving makes no symmetric pairs.
    let topology = named("48xcpu:24x1", Fabric::Flat).unwrap();
    let model = CostModel::new(&topology).unwrap();
    let of = |algorithm| model.cost(Collective::AllReduce, LaneAlgorithm::Flat(algorithm));
    let error = of(Algorithm::HalvingDoubling).unwrap_err();
    assert!(error.to_string().contains("halving-doubling on 1152 ranks has more"), "{error}");
    assert!(of(Algorithm::Ring).unwrap().is_some());
}
