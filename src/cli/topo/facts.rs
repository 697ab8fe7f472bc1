//! The facts about a machine that are printed: of this machine, of a description, or of a named
//! cluster.

use super::transports;
use maypole::topology::detect::DetectedMachine;
use maypole::topology::model::bandwidth::GpuGeneration;
use maypole::topology::rings;
use maypole::topology::{NodeKind, PathClass, Topology};
use maypole_cluster::Description;
use maypole_cluster::build::convert;
use maypole_cluster::build::offers::TransportOffer;
use maypole_cluster::read::printed::PrintedClass;
use maypole_cluster::read::summary::DeviceSummary;
use maypole_cluster::search::lanes;
use maypole_cluster::search::lanes::Lane;
use maypole_cluster::search::rails::RoutingTable;
use maypole_cluster::search::rings::ring;

/// A machine or a cluster.
pub(super) struct MachineFacts {
    pub(super) title: String,
    pub(super) topology: Topology,
    /// Notes: damaged or hidden parts of the source, and assumptions.
    pub(super) notes: Vec<String>,
    /// The names of the ranks, and then of the network cards.
    pub(super) labels: Vec<String>,
    pub(super) ranks: usize,
    /// A word for each pair of `labels`.
    pub(super) cells: Vec<Vec<String>>,
    /// The class of each pair of ranks.
    pub(super) classes: Vec<Vec<PathClass>>,
    pub(super) lanes: Vec<Lane>,
    pub(super) offers: Vec<TransportOffer>,
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

    /// Derives all facts from the topology.
    pub(super) fn of(topology: Topology, title: String) -> Self {
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
        let labels = all.iter().map(|node| topology.label(*node)).collect();
        let offers = transports::offers(&topology, &hosts);
        Self {
            title,
            notes,
            labels,
            ranks: ranks.len(),
            cells,
            classes,
            lanes: found,
            offers,
            topology,
        }
    }

    /// Uses the words of a description for pairs of GPUs, which an older driver may have printed.
    fn take_words(&mut self, answers: &DeviceSummary) {
        for (a, row) in answers.links.iter().enumerate() {
            for (b, printed) in row.iter().enumerate() {
                self.cells[a][b] = printed.to_string();
                self.classes[a][b] = printed.class();
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
