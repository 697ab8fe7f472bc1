//! Descriptions of other tools, of failed tools, of no machine, and of several hosts in one file.

use maypole::topology::{LinkKind, NodeKind, PathClass};
use maypole_cluster::Description;
use maypole_cluster::read::printed::PrintedClass;

fn read(text: &str) -> Description {
    Description::read(text).unwrap_or_else(|error| panic!("{error} in\n{text}"))
}

#[track_caller]
fn refused(text: &str, parts: &[&str]) {
    let error = Description::read(text).expect_err(text).to_string();
    for part in parts {
        assert!(error.contains(part), "{error:?} does not say {part:?} of\n{text}");
    }
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

#[test]
fn a_file_without_a_gpu_is_refused_and_says_what_makes_one() {
    let bare = "<pci busid=\"0000:10:00.0\"/>\n";
    let bridge = format!("<pci busid=\"0000:0f:00.0\" class=\"0x060400\">{bare}</pci>\n");
    let card = "<pci busid=\"0000:10:00.0\" class=\"0x020000\"/>\n";
    for elements in
        ["", "<cpu numaid=\"0\"/>\n", &cpu("a", bare), &cpu("a", &bridge), &cpu("a", card)]
    {
        refused(&system(elements), &["line 1", "class=\"0x030200\"", "<gpu>"]);
    }
    let whole = gpu(16, 0, 0, "");
    refused(&system(&whole), &["line 2", "<pci>", "<cpu>"]);
    refused(&system("<gpu dev=\"0\" sm=\"90\"/>\n"), &["<gpu>", "<cpu>"]);
    refused(&system("<nic><net name=\"a\"/></nic>\n"), &["<nic>", "<cpu>"]);
    refused(&system(&cpu("a", "<gpu dev=\"0\"/>\n")), &["line 3", "<gpu>", "<pci>"]);
    refused(&system(&format!("<host>{}</host>", cpu("a", &whole))), &["class=\"0x030200\""]);
    // One of several devices lacks its class.
    let some = read(&system(&cpu("a", &format!("{whole}{bare}"))));
    assert_eq!(some.summary().gpus, 1);
    assert!(some.notes()[0].contains("has neither a class nor devices"), "{:?}", some.notes());
    for empty in ["", "\n\n", " ", "\u{feff}"] {
        refused(empty, &["GPU0"]);
    }
}

#[test]
fn the_files_of_other_tools_are_named() {
    let hwloc = "<?xml version=\"1.0\"?>\n<!DOCTYPE topology SYSTEM \"hwloc2.dtd\">\n\
                 <topology version=\"2.0\">\n</topology>\n";
    refused(hwloc, &["line 3", "hwloc", "<system>"]);
    let smi = "<?xml version=\"1.0\" ?>\n<!DOCTYPE nvidia_smi_log SYSTEM \"nvsmi_device_v12.dtd\">\n\
               <nvidia_smi_log>\n<gpu id=\"0\"/>\n</nvidia_smi_log>\n";
    refused(smi, &["nvidia-smi -q -x", "<system>"]);
    refused(&smi.repeat(2), &["nvidia-smi -q -x"]);
    refused("<graphs version=\"1\"></graphs>", &["<graphs>", "<system>"]);
}

const FAILED: &str = "\tGPU0\tGPU1\tCPU Affinity\nFailed to run topology matrix\n";
const PEERS: &str =
    " \tGPU0\tGPU1\t\n GPU0\tX\tGNS\t\n GPU1\tOK\tX\t\n\nLegend:\n\n  X    = Self\n";
const MATRIX: &str = "\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tPHB\t0-15\nGPU1\tPHB\t X \t0-15\n";

#[test]
fn a_failed_nvidia_smi_and_its_other_tables_are_named() {
    refused(FAILED, &["Failed to run topology matrix", "nvidia-smi itself has failed"]);
    let driver = "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n";
    refused(driver, &["nvidia-smi itself has failed"]);
    refused("bash: nvidia-smi: command not found\n", &["nvidia-smi itself has failed"]);
    refused(PEERS, &["nvidia-smi topo -p2p", "nvidia-smi topo -m"]);
    for both in
        [format!("{PEERS}{MATRIX}"), format!("{MATRIX}{PEERS}"), format!("{FAILED}{MATRIX}")]
    {
        let links = read(&both).summary().links;
        assert_eq!(links[0], [PrintedClass::Same, PrintedClass::Phb], "{both}");
    }
}

#[test]
fn of_several_files_in_one_text_the_first_is_read_and_that_is_said() {
    let file = |gpus: usize| {
        let all: String = (0..gpus).map(|nth| gpu(16 + nth, nth, nth, "")).collect();
        system(&cpu("a", &all))
    };
    let script = |files: &[String]| {
        files.iter().map(|file| format!("cat <<EOF > t.xml\n{file}EOF\n")).collect::<String>()
    };
    let one = read(&script(&[file(2)]));
    assert_eq!((one.summary().gpus, one.notes().len()), (2, 0));
    let two = read(&script(&[file(2), file(3)]));
    assert_eq!(two.summary().gpus, 2);
    assert!(two.notes()[0].contains("several topology files"), "{:?}", two.notes());
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

#[test]
fn a_gpu_without_the_links_of_the_others_is_said() {
    let gpus = gpu(16, 0, 0, &link(0xff, 18, "0x068000"))
        + &gpu(17, 1, 1, &link(0xff, 18, "0x068000"))
        + &gpu(18, 2, 2, "");
    let described = read(&system(&cpu("a", &gpus)));
    let note = "no NVLink or XGMI link at GPU2; other GPUs have 18";
    assert_eq!(described.notes(), [note]);
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
