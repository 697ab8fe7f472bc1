//! Detection on machines made of files: `/sys` and `/proc` are in a folder, and the test provides
//! the GPU driver.

#![cfg(unix)]

use maypole::topology::detect::{DetectedMachine, GpuInfo, PeerAccess, machine, machine_at};
use maypole::topology::system::DirectLink;
use maypole::topology::{NodeKind, PathClass};
use maypole_cluster::Description;
use maypole_cluster::build::convert::detected;
use maypole_cluster::read::printed::PrintedClass;
use maypole_cluster::read::summary::NearestNics;
use maypole_cluster::read::xml::nic_names;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// A machine as files. The tree of devices is built of folders, as the kernel builds it.
struct Files(tempfile::TempDir);

impl Files {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn root(&self) -> &Path {
        self.0.path()
    }

    fn write(&self, path: &str, text: &str) -> &Self {
        let path = self.root().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, format!("{text}\n")).unwrap();
        self
    }

    fn link(&self, from: &str, to: &Path) {
        let from = self.root().join(from);
        fs::create_dir_all(from.parent().unwrap()).unwrap();
        symlink(to, from).unwrap();
    }

    fn node(&self, number: usize, mask: &str) -> &Self {
        self.write(&format!("sys/devices/system/node/node{number}/cpumap"), mask)
    }

    /// A device at the end of `path` below the host bridge, and its bridges, with a link of
    /// generation 4 and 16 lanes.
    fn pci(&self, path: &str, class: &str, vendor: &str, numa: i64) -> PathBuf {
        let mut folder = PathBuf::from("sys/devices");
        for part in path.split('/') {
            folder.push(part);
            if part.starts_with("pci") {
                continue;
            }
            let file = |name: &str| folder.join(name).to_str().unwrap().to_owned();
            let leaf = path.ends_with(part);
            self.write(&file("class"), if leaf { class } else { "0x060400" });
            self.write(&file("vendor"), if leaf { vendor } else { "0x1000" })
                .write(&file("device"), "0x1234");
            self.write(&file("max_link_speed"), "16.0 GT/s PCIe")
                .write(&file("max_link_width"), "16");
            self.write(&file("numa_node"), &numa.to_string());
            let entry = format!("sys/bus/pci/devices/{part}");
            if !self.root().join(&entry).exists() {
                self.link(&entry, &self.root().join(&folder));
            }
        }
        self.root().join(folder)
    }

    fn port(&self, name: &str, device: &Path, rate: &str, state: &str) {
        self.link(&format!("sys/class/infiniband/{name}/device"), device);
        self.write(&format!("sys/class/infiniband/{name}/ports/1/rate"), rate);
        self.write(&format!("sys/class/infiniband/{name}/ports/1/state"), state);
    }

    fn interface(&self, name: &str, device: Option<&Path>, speed: &str) {
        device.iter().for_each(|device| self.link(&format!("sys/class/net/{name}/device"), device));
        self.write(&format!("sys/class/net/{name}/speed"), speed);
    }
}

const SWITCH_A: &str = "pci0000:10/0000:10:01.0/0000:11:00.0";
const SWITCH_B: &str = "pci0000:80/0000:80:01.0/0000:81:00.0";

/// Two sockets with a switch each: three GPUs, two InfiniBand cards, a display device that is no
/// GPU, and a network interface of virtio.
fn server() -> Files {
    let files = Files::new();
    files.node(0, "00000000,0000ffff").node(1, "00000000,ffff0000");
    files.write(
        "proc/cpuinfo",
        "processor\t: 0\nvendor_id\t: AuthenticAMD\ncpu family\t: 25\nmodel\t\t: 17\n\
         model name\t: AMD EPYC 9654",
    );
    let gpu = |path: &str, numa| files.pci(path, "0x030200", "0x10de", numa);
    gpu(&format!("{SWITCH_A}/0000:12:01.0/0000:13:00.0"), 0);
    gpu(&format!("{SWITCH_A}/0000:12:02.0/0000:14:00.0"), 0);
    gpu(&format!("{SWITCH_B}/0000:82:01.0/0000:83:00.0"), 1);
    let card = files.pci(&format!("{SWITCH_A}/0000:12:03.0/0000:15:00.0"), "0x020700", "0x15b3", 0);
    files.port("mlx5_0", &card, "200 Gb/sec (4X HDR)", "4: ACTIVE");
    files.interface("ib0", Some(&card), "200000");
    let other = files.pci("pci0000:a0/0000:a0:01.0/0000:a1:00.0", "0x020000", "0x15b3", 1);
    files.port("mlx5_1", &other, "100 Gb/sec (4X EDR)", "1: DOWN");
    files.pci("pci0000:00/0000:00:1f.0", "0x030000", "0x1a03", 0);
    let virtio = files.pci("pci0000:00/0000:00:03.0", "0x020000", "0x1af4", -1).join("virtio1");
    fs::create_dir_all(&virtio).unwrap();
    files.interface("eth0", Some(&virtio), "-1");
    files.interface("lo", None, "");
    files
}

/// A driver's three GPUs, in an order of its own, and a pair of links between two of them.
fn driver() -> (Vec<GpuInfo>, Vec<Vec<PeerAccess>>) {
    let gpu = |bus: &str, peers: &[(&str, u32)]| GpuInfo {
        bus: format!("0000{bus}"),
        sm: Some(90),
        links: peers.iter().map(|(target, count)| link(target, *count)).collect(),
        ..GpuInfo::default()
    };
    let pair = ["00000000:13:00.0", "00000000:83:00.0"];
    let gpus = vec![
        gpu("0000:83:00.0", &[(pair[0], 4)]),
        gpu("0000:13:00.0", &[(pair[1], 4)]),
        gpu("0000:14:00.0", &[]),
    ];
    let peer = |a: usize, b: usize| match a == b || a + b == 1 {
        true => PeerAccess::Yes,
        false => PeerAccess::No("the chipset does not support it".to_owned()),
    };
    (gpus, (0..3).map(|a| (0..3).map(|b| peer(a, b)).collect()).collect())
}

/// The server's files, with these GPUs of a driver.
fn server_with((gpus, peers): (Vec<GpuInfo>, Vec<Vec<PeerAccess>>)) -> DetectedMachine {
    machine_at(server().root(), gpus, peers)
}

fn link(target: &str, count: u32) -> DirectLink {
    DirectLink { xgmi: false, target: target.to_owned(), count, class: None }
}

fn described(machine: &DetectedMachine) -> Description {
    Description::System(machine.system.clone())
}

#[test]
fn a_server_is_found_in_its_files() {
    let machine = server_with((Vec::new(), Vec::new()));
    let answers = described(&machine).summary();
    assert_eq!(
        (answers.gpus, nic_names(&machine.system)),
        (3, ["mlx5_0", "mlx5_1", "eth0"].map(str::to_owned).to_vec())
    );
    assert_eq!(answers.links[0], [PrintedClass::Same, PrintedClass::Pix, PrintedClass::Sys]);
    let nearest = answers.nearest_nics.unwrap();
    assert_eq!(nearest[1], NearestNics { class: PrintedClass::Pix, nics: vec![0] });
    // Another host bridge of the same node.
    assert_eq!(nearest[2], NearestNics { class: PrintedClass::Node, nics: vec![1] });
    assert_eq!(machine.processor.as_deref(), Some("AMD EPYC 9654"));
    assert_eq!(machine.notes, ["mlx5_1: port 1 is not active: its state is \"1: DOWN\""]);
    let graph = detected(&machine);
    let card = 3;
    assert_eq!(graph.nodes_of(NodeKind::Nic)[0], card);
    assert_eq!(
        (graph.path(0, card).unwrap().class, graph.path(0, card).unwrap().bandwidth),
        (PathClass::Pix, 24.0)
    );
    assert_eq!(graph.path(0, 2).unwrap().bandwidth, 16.0, "between two of AMD's sockets");
}

#[test]
fn a_driver_numbers_the_gpus_and_knows_their_links() {
    let machine = server_with(driver());
    let answers = described(&machine).summary();
    assert_eq!(answers.nvlinks.unwrap(), [[0, 4, 0], [4, 0, 0], [0, 0, 0]]);
    assert_eq!(answers.links[1][2], PrintedClass::Pix);
    assert_eq!((&machine.peers[0][0], &machine.peers[0][1]), (&PeerAccess::Yes, &PeerAccess::Yes));
    assert!(matches!(&machine.peers[1][2], PeerAccess::No(why) if why.contains("chipset")));
    let graph = detected(&machine);
    assert_eq!(
        graph.path(0, 1).unwrap().bandwidth,
        4.0 * 20.6,
        "Hopper, by its compute capability"
    );
}

/// Ranks name their GPUs by address. The result is in the order of the ranks.
#[test]
fn links_of_ranks_follow_the_addresses_of_their_gpus() {
    let machine = server_with(driver());
    let buses = |of: [&str; 4]| of.map(|bus| format!("0000:{bus}:00.0"));
    let links = machine.links(&buses(["13", "14", "83", "13"])).unwrap();
    let class = |from, to| links.between(from, to).unwrap().class;
    assert_eq!(class(0, 2), PathClass::NvLink(4), "GPU 1 and GPU 0 of the driver");
    assert_eq!((class(0, 1), class(0, 3)), (PathClass::Pix, PathClass::Same));
    assert_eq!(links.sharing(3), 2);
    assert_eq!(machine.links(&buses(["13", "14", "83", "99"])), None, "no driver has told of it");
    let files_alone = server_with((Vec::new(), Vec::new()));
    assert_eq!(files_alone.links(&buses(["13", "14", "83", "13"])), None, "NVLinks are not known");
}

#[test]
fn links_to_hidden_devices_lead_to_a_switch() {
    let bus = |number| format!("00000000:0{number}:00.0");
    let links = || vec![link("0000FFFF:FF:FF.0", 18)];
    let gpu = |number| GpuInfo { bus: bus(number), links: links(), ..GpuInfo::default() };
    let machine = machine_at(Files::new().root(), (0..4).map(gpu).collect(), Vec::new());
    assert_eq!(described(&machine).summary().links[0][3], PrintedClass::NvLink(18));
    assert_eq!(detected(&machine).nodes_of(NodeKind::GpuSwitch).len(), 1);
}

#[test]
fn a_machine_without_devices_is_no_error() {
    let machine = machine_at(Files::new().root(), Vec::new(), Vec::new());
    let answers = described(&machine).summary();
    assert_eq!((answers.gpus, answers.nics, answers.nearest_nics), (0, Some(0), None));
    assert_eq!((machine.system.cpus.len(), machine.notes.len()), (1, 0));
    let missing = machine_at(Path::new("/nowhere/at/all"), Vec::new(), Vec::new());
    assert_eq!(missing.system, machine.system);
}

#[test]
fn this_machine_has_cores_and_a_graph_over_them() {
    let machine = machine();
    assert!(!machine.cores.is_empty() && !machine.system.cpus.is_empty());
    assert_eq!(machine.peers.len(), machine.gpus.len());
    let graph = detected(&machine);
    assert!(!graph.devices().is_empty());
    assert!(graph.nodes_of(NodeKind::Gpu).len() == described(&machine).summary().gpus);
}
