//! What is built from a topology is right: every schedule is proved, on every cluster, whatever joins its rails.

use maypole::algorithms::Algorithm;
use maypole::algorithms::hierarchical::Levels;
use maypole::collective::Collective;
use maypole::schedule::{Placement, Schedule};
use maypole::topology::Topology;
use maypole::topology::build::{Shape, schedule};
use maypole::topology::cluster::{Fabric, named};
use maypole::topology::lanes::lanes;
use maypole::topology::rails::Routes;
use maypole::verify::verify;

fn shapes() -> Vec<Shape> {
    let across = [Algorithm::Ring, Algorithm::DoubleTree, Algorithm::HalvingDoubling, Algorithm::TwoShot];
    let levels = [Algorithm::Ring, Algorithm::Linear]
        .into_iter()
        .flat_map(|local| across.into_iter().map(move |across| Shape::Levels(Levels { local, across })));
    Algorithm::ALL.into_iter().map(Shape::Flat).chain(levels).collect()
}

/// How many schedules were proved.
fn prove(cluster: &Topology, name: &str) -> usize {
    let (lanes, hosts) = (lanes(cluster).unwrap(), Routes::new(cluster).hosts());
    let mut proved = 0;
    for shape in shapes() {
        for collective in Collective::all(hosts.len() - 1) {
            let all: Option<Vec<Schedule>> =
                (0..hosts.len()).map(|rank| schedule(collective, &lanes, &hosts, rank, shape)).collect();
            let Some(all) = all else { continue };
            let proof = verify(collective, &all, Placement::Apart);
            proof.unwrap_or_else(|flaw| panic!("{name}, {shape}, {collective:?}: {flaw}"));
            proved += 1;
        }
    }
    proved
}

#[test]
fn everything_that_is_built_is_proved() {
    for name in ["dgx-a100", "mi300x", "pcie-phb", "cpu:3x2", "2xdgx-a100", "3xpcie-phb", "4xcpu:2x1", "3xmi300x"] {
        for fabric in [Fabric::Flat, Fabric::IsolatedRails] {
            let cluster = named(name, fabric).unwrap();
            let proved = prove(&cluster, name);
            assert!(proved > 40, "{name}: {proved}");
        }
    }
}

/// Hosts need not be alike.
#[test]
fn unlike_hosts_are_joined_too() {
    let mut cluster = named("2xdgx-a100", Fabric::Flat).unwrap();
    let switch = cluster.of(maypole::topology::Kind::NetworkSwitch)[0];
    let grown = cluster.append(&named("pcie-phb", Fabric::Flat).unwrap());
    let card = cluster.of(maypole::topology::Kind::Nic).into_iter().find(|&card| card >= grown).unwrap();
    cluster.join(card, switch, maypole::topology::LinkKind::Network, 12.5);
    assert_eq!(cluster.devices().len(), 20);
    assert!(prove(&cluster, "two kinds of hosts") > 40);
}
