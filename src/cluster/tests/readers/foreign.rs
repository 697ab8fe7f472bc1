//! Topology files in XML: several hosts in one file, and links of all kinds. `tests/consoles/descriptions.md` of the
//! command has the answers to descriptions of other tools, and the errors.

use maypole::topology::model::bandwidth::{GpuGeneration, Processor};
use maypole::topology::{LinkKind, NodeKind, PathClass};
use maypole_cluster::Description;
use maypole_cluster::read::printed::PrintedClass;

fn read(text: &str) -> Description {
    Description::read(text).unwrap_or_else(|error| panic!("{error} in\n{text}"))
}

fn system(elements: &str) -> String {
    format!("<system version=\"1\">\n{elements}</system>\n")
}

fn cpu(host: &str, elements: &str) -> String {
    format!("<cpu host_hash=\"{host}\" numaid=\"0\" arch=\"x86_64\">\n{elements}</cpu>\n")
}

/// A GPU of a host, with its links.
fn gpu(bus: usize, device: usize, rank: usize, links: &str) -> String {
    format!(
        "<pci busid=\"0000:{bus:02x}:00.0\" class=\"0x030200\" link_speed=\"16.0 GT/s PCIe\" \
         link_width=\"16\"><gpu dev=\"{device}\" sm=\"90\" rank=\"{rank}\">{links}</gpu></pci>\n"
    )
}

fn link(bus: usize, count: usize, class: &str) -> String {
    format!("<nvlink target=\"0000:{bus:02x}:00.0\" count=\"{count}\" tclass=\"{class}\"/>")
}

/// Two hosts of two GPUs at the same addresses. GPU 0 of each has `links(0)`, GPU 1 `links(1)`.
fn two_hosts(links: impl Fn(usize) -> String, ranks: [usize; 4]) -> Description {
    let host = |nth: usize, name: &str| {
        let gpus: String =
            (0..2).map(|at| gpu(16 + at, at, ranks[2 * nth + at], &links(at))).collect();
        cpu(name, &gpus)
    };
    read(&system(&(host(0, "0xa") + &host(1, "0xb"))))
}

#[test]
fn links_of_one_host_are_none_of_another_one() {
    let straight = |at: usize| link(17 - at, 12, "0x030200");
    let described = two_hosts(straight, [0, 1, 2, 3]);
    let summary = described.summary();
    let count = |a: usize, b: usize| summary.nvlinks.as_ref().unwrap()[a][b];
    assert_eq!((count(0, 1), count(2, 3)), (12, 12));
    for (a, b) in [(0, 2), (0, 3), (1, 2), (1, 3)] {
        assert_eq!((count(a, b), summary.links[a][b]), (0, PrintedClass::Net), "{a} {b}");
    }
    let graph = described.topology();
    let host = |gpu: usize| graph.nodes()[graph.devices()[gpu]].host;
    assert_eq!([0, 1, 2, 3].map(host), [Some(0), Some(0), Some(1), Some(1)]);
    let between = |kind: LinkKind| matches!(kind, LinkKind::NvLink(_));
    let across = graph
        .links()
        .iter()
        .filter(|link| between(link.kind))
        .any(|link| graph.nodes()[link.from].host != graph.nodes()[link.to].host);
    assert!(!across, "an NVLink leads from one host to another");
    assert_eq!(graph.path(0, 1).unwrap().class, PathClass::NvLink(12));
    assert!(graph.path(0, 2).is_none_or(|path| path.class == PathClass::Net));
}

#[test]
fn gpus_of_several_hosts_are_in_the_order_of_their_ranks_or_of_the_hosts() {
    let hosts = |ranks| {
        let described = two_hosts(|_| link(0xff, 18, "0x068000"), ranks);
        let graph = described.topology();
        (0..4).map(|gpu| graph.nodes()[gpu].host.unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(hosts([0, 1, 2, 3]), [0, 0, 1, 1]);
    assert_eq!(hosts([2, 3, 0, 1]), [1, 1, 0, 0]);
    assert_eq!(hosts([0, 2, 1, 3]), [0, 1, 0, 1]);
    // Ranks of each host alone do not determine the order of hosts.
    assert_eq!(hosts([0, 1, 0, 1]), [0, 0, 1, 1]);
    let switched = two_hosts(|_| link(0xff, 18, "0x068000"), [0, 1, 2, 3]);
    assert!(switched.notes()[0].contains("one NVLink domain is assumed"), "{:?}", switched.notes());
}

/// A GPU on each of two NUMA nodes, over an idle PCI slot.
fn coherent(links: &str) -> Description {
    let node = |nth: usize| {
        format!(
            "<cpu host_hash=\"a\" numaid=\"{nth}\" arch=\"arm64\">\n\
             <pci busid=\"000{nth}:01:00.0\" class=\"0x030200\" link_speed=\"2.5 GT/s PCIe\" \
             link_width=\"16\"><gpu dev=\"{nth}\" sm=\"90\">{links}</gpu></pci>\n</cpu>\n"
        )
    };
    read(&system(&(node(0) + &node(1))))
}

#[test]
fn links_to_the_cpu_carry_what_its_gpu_sends() {
    let c2c = coherent("<c2c bw=\"45000\" count=\"10\"/>");
    let graph = c2c.topology();
    let path = graph.path(0, 1).unwrap();
    let kinds: Vec<LinkKind> = path.links.iter().map(|link| graph.links()[*link].kind).collect();
    assert_eq!(kinds, [LinkKind::C2c, LinkKind::Sockets, LinkKind::C2c]);
    assert_eq!((path.class, graph.links()[path.links[0]].bandwidth), (PathClass::Sys, 450.0));
    assert!(c2c.notes()[0].contains("C2C of 450.0 GB/s"), "{:?}", c2c.notes());
    // NVLinks to the CPU, as of POWER9.
    let nvlink = coherent("<nvlink target=\"ffff:ff:ff.0\" count=\"3\" tclass=\"0x068001\"/>");
    let graph = nvlink.topology();
    let numa = graph.nodes_of(NodeKind::Numa)[0];
    assert_eq!(graph.path(0, numa).unwrap().bandwidth, 3.0 * 20.6);
    // A pair without bandwidth is no link.
    for lacking in
        ["<c2c count=\"10\"/>", "<c2c bw=\"0\" count=\"10\"/>", "<c2c bw=\"-5\" count=\"2\"/>"]
    {
        let described = coherent(lacking);
        let links = described.topology().links().to_vec();
        assert!(links.iter().all(|link| link.kind != LinkKind::C2c), "{lacking}");
        assert!(described.notes()[0].contains("<c2c>"), "{lacking}: {:?}", described.notes());
    }
}

#[test]
fn a_file_s_speeds_become_bandwidths() {
    let description = Description::read(include_str!("switched.xml")).unwrap();
    assert_eq!(description.assumed(), (GpuGeneration::Hopper, Processor::Amd));
    let graph = description.topology();
    let answers = description.summary();
    assert_eq!(answers.links[0][2], PrintedClass::NvLink(18));
    let bandwidth = |a: usize, b: usize| graph.path(a, b).unwrap().bandwidth;
    assert_eq!((bandwidth(0, 2), bandwidth(0, 3)), (18.0 * 20.6, 48.0));
    // GPU 2 to the first card: over the sockets.
    assert_eq!((bandwidth(2, 3), graph.path(2, 3).unwrap().class), (16.0, PathClass::Sys));
}
