//! Proves every schedule that is made for a topology, on every cluster and fabric.

use crate::samples::samples;
use maypole::algorithms::Algorithm;
use maypole::algorithms::hierarchical::Levels;
use maypole::schedule::collective::Collective;
use maypole::schedule::verify::verify;
use maypole::schedule::{Placement, Schedule};
use maypole::topology::model::bandwidth::{GpuGeneration, Processor};
use maypole::topology::rings;
use maypole::topology::{LinkKind, NodeKind, PathClass, Topology};
use maypole_cluster::build::cluster::{Fabric, named};
use maypole_cluster::build::pairs::{HostDevice, host};
use maypole_cluster::predict::lane_algorithm::{LaneAlgorithm, schedule};
use maypole_cluster::rates::LinkRates;
use maypole_cluster::search::lanes::lanes;
use maypole_cluster::search::rails::RoutingTable;
use maypole_cluster::search::rings::ring;

fn algorithms() -> Vec<LaneAlgorithm> {
    let across =
        [Algorithm::Ring, Algorithm::DoubleTree, Algorithm::HalvingDoubling, Algorithm::TwoShot];
    let levels = [Algorithm::Ring, Algorithm::Linear].into_iter().flat_map(|local| {
        across.into_iter().map(move |across| LaneAlgorithm::Levels(Levels { local, across }))
    });
    Algorithm::ALL.into_iter().map(LaneAlgorithm::Flat).chain(levels).collect()
}

/// Proves every schedule on `cluster` and counts them.
fn prove(cluster: &Topology, name: &str) -> usize {
    let lanes = lanes(cluster).unwrap();
    let hosts = RoutingTable::new(cluster).hosts();
    let mut proved = 0;
    for algorithm in algorithms() {
        for collective in Collective::all(hosts.len() - 1) {
            let all: Option<Vec<Schedule>> = (0..hosts.len())
                .map(|rank| schedule(collective, &lanes, &hosts, rank, algorithm))
                .collect();
            let Some(all) = all else { continue };
            let proof = verify(collective, &all, Placement::Apart);
            proof.unwrap_or_else(|flaw| panic!("{name}, {algorithm}, {collective:?}: {flaw}"));
            proved += 1;
        }
    }
    proved
}

#[test]
fn every_schedule_on_every_cluster_is_proved() {
    for name in [
        "dgx-a100",
        "mi300x",
        "pcie-phb",
        "cpu:3x2",
        "2xdgx-a100",
        "3xpcie-phb",
        "4xcpu:2x1",
        "3xmi300x",
    ] {
        for fabric in [Fabric::Flat, Fabric::IsolatedRails] {
            let cluster = named(name, fabric).unwrap();
            let proved = prove(&cluster, name);
            assert!(proved > 40, "{name}: {proved}");
        }
    }
}

/// Hosts of a cluster need not be alike.
#[test]
fn different_hosts_are_joined_too() {
    let mut cluster = named("2xdgx-a100", Fabric::Flat).unwrap();
    let switch = cluster.nodes_of(NodeKind::NetworkSwitch)[0];
    let grown = cluster.append(&named("pcie-phb", Fabric::Flat).unwrap());
    let card = cluster.nodes_of(NodeKind::Nic).into_iter().find(|&card| card >= grown).unwrap();
    cluster.join(card, switch, LinkKind::Network, 12.5);
    assert_eq!(cluster.devices().len(), 20);
    assert!(prove(&cluster, "two kinds of hosts") > 40);
}

/// Builds a host from the classes of each matrix, and proves the schedules on its rings.
#[test]
fn hosts_from_matrices_have_rings_as_good_as_the_matrix() {
    let mut pairs = 0;
    let mut same = 0;
    for sample in samples().into_iter().filter(|sample| !sample.links().is_empty()) {
        let name = &sample.name;
        let classes = sample.links();
        let device =
            |nth| HostDevice { kind: NodeKind::Gpu, name: format!("GPU{nth}"), numa: None };
        let devices: Vec<_> = (0..classes.len()).map(device).collect();
        let host =
            host(&devices, &classes, &LinkRates::of(GpuGeneration::Hopper, Processor::Intel));
        for (a, b) in (0..classes.len()).flat_map(|a| (0..classes.len()).map(move |b| (a, b))) {
            let class = host.path(a, b).unwrap().class;
            assert!(
                class >= classes[a][b],
                "{name}: {a} and {b} are {class}, not {}",
                classes[a][b]
            );
            pairs += 1;
            same += usize::from(class == classes[a][b]);
        }
        let lanes = lanes(&host).unwrap();
        for lane in &lanes {
            let worst = rings::bottleneck(&classes, &lane.order);
            // Several rings share bonded links. Each of them has at least one link of a bond.
            let direct = worst.is_some_and(|worst| worst > PathClass::Pix);
            assert!(
                worst >= ring(&classes).bottleneck || direct,
                "{name}: {:?} has {worst:?}",
                lane.order
            );
        }
        let hosts = vec![0; classes.len()];
        let build = |rank| {
            schedule(
                Collective::AllReduce,
                &lanes,
                &hosts,
                rank,
                LaneAlgorithm::Flat(Algorithm::Ring),
            )
        };
        let all: Vec<Schedule> = (0..classes.len()).map(|rank| build(rank).unwrap()).collect();
        verify(Collective::AllReduce, &all, Placement::InPlace)
            .unwrap_or_else(|flaw| panic!("{name}: {flaw}"));
    }
    println!("{same} of {pairs} pairs have the class of the matrix, the others a nearer one");
    assert!(pairs > 500, "only {pairs} pairs");
    assert!(same * 100 >= pairs * 95);
}
