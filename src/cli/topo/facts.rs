//! The facts about a machine that are printed: of this machine, of a description, or of a named
//! cluster.

use super::transports;
use crate::simulate::cluster::by_couriers;
use maypole::schedule::collective::Collective;
use maypole::topology::detect::DetectedMachine;
use maypole::topology::model::bandwidth::GpuGeneration;
use maypole::topology::rings;
use maypole::topology::{NodeKind, PathClass, Topology};
use maypole_cluster::Description;
use maypole_cluster::build::convert;
use maypole_cluster::build::offers::TransportOffer;
use maypole_cluster::read::printed::PrintedClass;
use maypole_cluster::read::summary::{DeviceSummary, NearestNics};
use maypole_cluster::search::lanes;
use maypole_cluster::search::lanes::Lane;
use maypole_cluster::search::rails::RoutingTable;
use maypole_cluster::search::rings::ring;
use maypole_cluster::search::trees::{Tree, trees};

/// A machine or a cluster.
pub(super) struct MachineFacts {
    pub(super) title: String,
    pub(super) topology: Topology,
    /// Notes: damaged or hidden parts of the source, and assumptions.
    pub(super) notes: Vec<String>,
    /// The links between GPUs, in the words of the source.
    pub(super) reported: ReportedLinks,
    /// The names of the ranks, and then of the network cards.
    pub(super) labels: Vec<String>,
    pub(super) ranks: usize,
    /// A word for each pair of `labels`.
    pub(super) cells: Vec<Vec<String>>,
    /// The class of each pair of ranks.
    pub(super) classes: Vec<Vec<PathClass>>,
    pub(super) lanes: Vec<Lane>,
    pub(super) trees: Vec<Tree>,
    pub(super) offers: Vec<TransportOffer>,
    /// The bus bandwidth in GB/s of an all-reduce of 64 MiB between GPUs of several hosts.
    pub(super) couriers: Option<f64>,
}

/// GPUs, network cards and the links between them. `None` without a figure of the source.
pub(super) struct ReportedLinks {
    pub(super) gpus: usize,
    pub(super) nics: Option<usize>,
    pub(super) links: Vec<Vec<String>>,
    pub(super) nvlinks: Option<Vec<Vec<u32>>>,
    pub(super) nearest: Option<Vec<(String, Vec<usize>)>>,
}

/// The ring whose slowest link is fastest, and the word for that link.
pub(super) struct BestRing {
    pub(super) order: Vec<usize>,
    pub(super) bottleneck: Option<String>,
}

impl MachineFacts {
    /// A machine from the output of a tool.
    pub(super) fn described(description: &Description, title: String) -> Self {
        let (generation, processor) = description.assumed();
        let mut facts = Self::of(description.topology(), title);
        facts.notes.splice(0..0, description.notes().iter().cloned());
        facts.notes.push(format!(
            "bandwidths are assumed to be those of {generation:?} GPUs and {processor:?} CPUs"
        ));
        if matches!(generation, GpuGeneration::Vega | GpuGeneration::Mi200 | GpuGeneration::Mi300) {
            transports::refuse_gpus(&mut facts.offers, transports::OF_AMD);
        }
        facts.take_words(&description.summary());
        if let Description::Matrix(matrix) = description {
            let word = |cell: &Option<PrintedClass>| {
                cell.map_or("?".to_owned(), |printed| printed.to_string())
            };
            facts.cells = matrix.links.iter().map(|row| row.iter().map(word).collect()).collect();
        }
        facts
    }

    pub(super) fn detected(machine: &DetectedMachine) -> Self {
        let processor = machine.processor.as_deref().unwrap_or("unknown CPUs");
        let names: Vec<&str> = machine.gpus.iter().map(|gpu| gpu.name.as_str()).collect();
        let gpus = if names.is_empty() {
            "no GPU that NVIDIA's driver reports".to_owned()
        } else {
            names.join(", ")
        };
        let title = format!("this machine: {processor}, {} cores, {gpus}", machine.cores.len());
        let described = Description::System(machine.system.clone());
        let mut facts = Self::of(convert::detected(machine), title);
        facts.notes.extend(machine.notes.clone());
        facts.take_words(&described.summary());
        transports::refuse_peers(&mut facts.offers, machine);
        facts
    }

    /// A cluster by name.
    pub(super) fn named(topology: Topology, name: &str) -> Self {
        Self::of(topology, name.to_owned())
    }

    /// Derives all facts from the topology.
    fn of(topology: Topology, title: String) -> Self {
        let ranks = topology.devices();
        let cards = topology.nodes_of(NodeKind::Nic);
        let all = [ranks.as_slice(), &cards].concat();
        let row = |from: &usize| {
            let paths = topology.paths(*from);
            let class = |to: &usize| paths.to(*to).map(|path| path.class);
            all.iter().map(class).collect::<Vec<Option<PathClass>>>()
        };
        let table: Vec<_> = all.iter().map(row).collect();
        let word =
            |class: &Option<PathClass>| class.map_or("-".to_owned(), |class| class.to_string());
        let cells = table.iter().map(|row| row.iter().map(word).collect()).collect();
        let known = |row: &Vec<Option<PathClass>>| {
            row[..ranks.len()].iter().map(|it| it.unwrap_or(PathClass::Net)).collect()
        };
        let classes: Vec<Vec<PathClass>> = table[..ranks.len()].iter().map(known).collect();
        let mut notes = Vec::new();
        let mut found = Vec::new();
        if ranks.len() > 1 {
            match lanes::lanes(&topology) {
                Ok(lanes) => found = lanes,
                Err(unreachable) => notes.push(unreachable.to_string()),
            }
        }
        let hosts = RoutingTable::new(&topology).hosts();
        let trees = found.first().map_or(Vec::new(), |lane| trees(lane, &hosts).to_vec());
        let labels = all.iter().map(|node| topology.label(*node)).collect();
        let reported = ReportedLinks::graph(&topology, &table);
        let offers = transports::offers(&topology, &hosts);
        let couriers = by_couriers(&topology, Collective::AllReduce, 64 << 20);
        let couriers = couriers.unwrap_or_else(|why| {
            notes.push(format!("{why:#}"));
            None
        });
        Self {
            couriers,
            title,
            notes,
            reported,
            labels,
            ranks: ranks.len(),
            cells,
            classes,
            lanes: found,
            trees,
            offers,
            topology,
        }
    }

    /// Uses the words of a description for pairs of GPUs, which an older driver may have printed.
    fn take_words(&mut self, answers: &DeviceSummary) {
        self.reported = ReportedLinks::read(answers);
        for (a, row) in self.reported.links.iter().enumerate() {
            for (b, word) in row.iter().enumerate() {
                self.cells[a][b].clone_from(word);
                self.classes[a][b] = answers.links[a][b].class();
            }
        }
    }

    pub(super) fn ring(&self) -> BestRing {
        let order = ring(&self.classes).order;
        let hops = rings::hops(&order).filter(|_| order.len() > 1);
        let worst = hops.min_by_key(|(a, b)| self.classes[*a][*b]);
        BestRing { bottleneck: worst.map(|(a, b)| self.cells[a][b].clone()), order }
    }
}

impl ReportedLinks {
    fn read(answers: &DeviceSummary) -> Self {
        let words = |row: &Vec<PrintedClass>| row.iter().map(PrintedClass::to_string).collect();
        let near = |near: &NearestNics| (near.class.to_string(), near.nics.clone());
        Self {
            gpus: answers.gpus,
            nics: answers.nics,
            links: answers.links.iter().map(words).collect(),
            nvlinks: answers.nvlinks.clone(),
            nearest: answers.nearest_nics.as_ref().map(|all| all.iter().map(near).collect()),
        }
    }

    /// From the classes of devices and then cards.
    fn graph(topology: &Topology, table: &[Vec<Option<PathClass>>]) -> Self {
        let gpus = topology.nodes_of(NodeKind::Gpu).len();
        let cards = topology.nodes_of(NodeKind::Nic).len();
        let word =
            |class: &Option<PathClass>| class.map_or("-".to_owned(), |class| class.to_string());
        let direct = |class: &Option<PathClass>| match class {
            Some(PathClass::NvLink(links) | PathClass::Xgmi(links)) => *links,
            _ => 0,
        };
        let near = |row: &Vec<Option<PathClass>>| {
            let best = row[gpus..].iter().max().copied().flatten();
            let nics = (0..cards).filter(|card| row[gpus + card] == best).collect();
            (word(&best), nics)
        };
        let of_gpus = || table[..gpus].iter();
        Self {
            gpus,
            nics: Some(cards),
            links: of_gpus().map(|row| row[..gpus].iter().map(word).collect()).collect(),
            nvlinks: Some(of_gpus().map(|row| row[..gpus].iter().map(direct).collect()).collect()),
            nearest: (cards > 0).then(|| of_gpus().map(near).collect()),
        }
    }
}
