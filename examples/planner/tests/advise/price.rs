//! Prices of steps, made from the library's prices of collectives.

use maypole::algorithms::Algorithm;
use maypole::schedule::collective::Collective;
use maypole::topology::NodeKind;
use maypole_cluster::build::cluster::{Fabric, several_of};
use maypole_cluster::predict::CostModel;
use maypole_cluster::predict::lane_algorithm::LaneAlgorithm;
use maypole_planner::cluster::AcceleratorCluster;
use maypole_planner::groups::{GroupPrices, GroupShape, PricedCollective};
use maypole_planner::price::StepPricing;
use maypole_planner::sizes::ModelSizes;
use maypole_planner::step::StepPrice;
use maypole_planner::strategy::{ParallelStrategy, Recomputation, ZeroStage};
use maypole_trainer::pipeline_parallel::plan::PipelineSchedule;
use maypole_trainer::ranks::mesh::Mesh;

fn priced(model: &ModelSizes, cluster: &str, strategy: &ParallelStrategy) -> StepPrice {
    let cluster = AcceleratorCluster::named(cluster).unwrap();
    let prices = GroupPrices::new(&cluster);
    StepPricing::new(model, strategy, &cluster, &prices).step().unwrap()
}

fn way(mesh: &str) -> ParallelStrategy {
    ParallelStrategy { mesh: Mesh::parse(mesh).unwrap(), sequence: true, ..ParallelStrategy::ONE }
}

/// Bytes a second of a large vector in a group: bus bandwidth, in GB/s.
fn bus(cluster: &str, stride: usize, size: usize) -> f64 {
    bus_of(&AcceleratorCluster::named(cluster).unwrap(), stride, size)
}

fn bus_of(cluster: &AcceleratorCluster, stride: usize, size: usize) -> f64 {
    let prices = GroupPrices::new(cluster);
    let bytes = 64e9;
    let shape = prices.shape(stride, size);
    let seconds = prices.seconds(shape, PricedCollective::AllReduce, bytes).unwrap();
    2.0 * (size as f64 - 1.0) / size as f64 * bytes / seconds / 1e9
}

#[test]
fn groups_have_the_links_that_are_left_to_them() {
    let near = |found: f64, expected: f64| {
        assert!((found / expected - 1.0).abs() < 0.02, "{found} GB/s, not {expected}");
    };
    // A host: NVLink. One rank of each host: a card of its own, attached to its PCI link.
    near(bus("dgx-h100", 1, 8), 18.0 * 20.6);
    near(bus("4xdgx-h100", 8, 4), 48.0);
    near(bus("4xdgx-a100", 8, 4), 24.0);
    // Four GPUs share a card, and all four groups send concurrently.
    near(bus("4xpcie-phb", 4, 4), 12.5 / 4.0);
    // Two ranks of each host have two cards. They first add up within the host, so that 3/4 of the
    // vector crosses hosts instead of 7/8.
    near(bus("4xdgx-a100", 4, 8), 48.0 * 7.0 / 6.0);
}

/// Hosts from a file that `maypole topo` reads are priced like the named ones.
#[test]
fn hosts_from_a_file_have_the_links_of_the_named_ones() {
    for (file, name, gigabits) in [
        ("dgx-a100.nvidia-smi-525.txt", "dgx-a100", 200.0),
        ("dgx-a100.nccl.xml", "dgx-a100", 200.0),
        ("dgx-h100.nvidia-smi-550.txt", "dgx-h100", 400.0),
        ("mi300x.rccl.xml", "mi300x", 400.0),
    ] {
        let path = format!("{}/../../tests/topologies/{file}", env!("CARGO_MANIFEST_DIR"));
        let text = std::fs::read_to_string(path).unwrap();
        let named = AcceleratorCluster::named(&format!("4x{name}")).unwrap();
        let described =
            AcceleratorCluster::described(&text, 4, gigabits, named.accelerator).unwrap();
        assert_eq!(described.ranks(), named.ranks());
        for (stride, size) in [(1, 8), (8, 4), (1, 32), (2, 4)] {
            let [a, b] = [&described, &named].map(|cluster| bus_of(cluster, stride, size));
            assert!((a / b - 1.0).abs() < 0.1, "{file} {stride} {size}: {a} beside {b} GB/s");
        }
    }
}

#[test]
fn shapes_say_where_the_ranks_of_an_axis_are() {
    let cluster = AcceleratorCluster::named("16xdgx-h100").unwrap();
    let prices = GroupPrices::new(&cluster);
    let shape = |local, stride, hosts| GroupShape { local, stride, hosts };
    assert_eq!(prices.shape(1, 8), shape(8, 1, 1));
    assert_eq!(prices.shape(2, 8), shape(4, 2, 2));
    assert_eq!(prices.shape(8, 16), shape(1, 8, 16));
    assert_eq!(prices.shape(32, 4), shape(1, 8, 4));
    assert_eq!(prices.shape(1, 128), shape(8, 1, 16));
}

#[test]
fn extrapolated_prices_of_large_groups_are_close() {
    let cluster = AcceleratorCluster::named("96xdgx-h100").unwrap();
    let prices = GroupPrices::new(&cluster);
    let shape = prices.shape(8, 96);
    // One GPU and its card of each host, priced as they are.
    let mut host = maypole::topology::Topology::new();
    let gpu = host.add(NodeKind::Gpu, Some(0), "GPU0");
    let card = host.add(NodeKind::Nic, Some(0), "NIC0");
    host.join(gpu, card, maypole::topology::LinkKind::Pci, 48.0);
    let whole = several_of(&host, 96, &[50.0], Fabric::Flat);
    let model = CostModel::new(&whole).unwrap();
    let ring = LaneAlgorithm::Flat(Algorithm::Ring);
    let ring = model.cost(Collective::AllGather, ring).unwrap().unwrap();
    for bytes in [1e8, 1e9, 1e10] {
        let found = prices.seconds(shape, PricedCollective::AllGather, bytes).unwrap();
        let exact = ring.predict(bytes).seconds;
        assert!(found < 1.05 * exact && found > 0.6 * exact, "{bytes}: {found} beside {exact}");
    }
}

#[test]
fn one_rank_computes_and_updates_alone() {
    let model = ModelSizes::preset("7b").unwrap();
    let price = priced(&model, "dgx-h100", &way(""));
    let least = model.operations_per_token() * 4096.0 / 989e12;
    assert!(price.compute > least && price.compute < 2.5 * least, "{price:?} beside {least}");
    let alone = StepPrice {
        compute: price.compute,
        again: price.again,
        update: price.update,
        ..StepPrice::default()
    };
    assert_eq!(price, alone);
    let again = priced(
        &model,
        "dgx-h100",
        &ParallelStrategy { recompute: Recomputation::Blocks, ..way("") },
    );
    // A second forward pass: a third of both passes, but for the head.
    assert!((again.again / again.compute - 1.0 / 3.0).abs() < 0.02, "{again:?}");
}

#[test]
fn a_pipeline_waits_as_its_formula_says() {
    // A vocabulary so small that stages are equal.
    let text = "layers = 16\nwidth = 4096\nheads = 32\nvocabulary = 64\nsequence = 4096";
    let model = ModelSizes::parse(text).unwrap();
    for (schedule, chunks) in [
        (PipelineSchedule::OneForwardOneBackward, 1.0),
        (PipelineSchedule::Interleaved(2), 2.0),
        (PipelineSchedule::Interleaved(4), 4.0),
    ] {
        let planned = ParallelStrategy { schedule, micros: 8, ..way("pp=4") };
        let price = priced(&model, "dgx-h100", &planned);
        let pipeline = price.total() - price.update - price.copies;
        let idle = price.bubble / pipeline;
        let formula = 3.0 / (chunks * 8.0 + 3.0);
        assert!((idle - formula).abs() < 0.01, "{}: {idle}", schedule.name());
        assert!((schedule.idle(4, 8) - formula).abs() < 1e-9);
    }
}

#[test]
fn each_axis_pays_for_its_own_collectives() {
    let model = ModelSizes::preset("mixtral").unwrap();
    for (mesh, pays) in [
        ("tp=8", [true, false, false, false, false]),
        ("cp=8", [false, false, false, false, true]),
        ("ep=8", [false, false, true, false, true]),
        ("pp=8", [false, false, false, true, false]),
        ("dp=8", [false, false, false, false, true]),
    ] {
        let price = priced(&model, "dgx-h100", &ParallelStrategy { micros: 16, ..way(mesh) });
        let found = [price.tp, price.cp, price.ep, price.stages, price.copies].map(|x| x > 0.0);
        // A short ring overlaps with the scores.
        let found = [found[0], found[1] && !mesh.starts_with("cp"), found[2], found[3], found[4]];
        assert_eq!(found, pays, "{mesh}: {price:?}");
    }
}

#[test]
fn weights_that_are_gathered_each_micro_batch_cost_more_than_once() {
    // Sequences so short that nothing hides.
    let text = "layers = 32\nwidth = 4096\nheads = 32\nvocabulary = 32000\nsequence = 256";
    let model = ModelSizes::parse(text).unwrap();
    let seconds = |stage| {
        let planned = ParallelStrategy { stage, micros: 8, ..way("dp=32") };
        priced(&model, "32xpcie-phb", &planned).copies
    };
    let [plain, one, two, three] = ZeroStage::ALL.map(seconds);
    assert!(one < 1.1 * plain && one > 0.5 * plain, "{plain} {one}");
    assert!(two > 3.0 * one && three > two, "{one} {two} {three}");
}
