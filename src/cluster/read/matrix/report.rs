//! The content of a report.

use crate::read::printed::PrintedClass;
use crate::read::summary::{DeviceSummary, NearestNics, direct_links};

/// The content of a report. Devices keep the order of its columns: GPUs first, then network cards.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct Matrix {
    /// The labels of the GPUs.
    pub gpus: Vec<String>,
    /// The labels of the network cards: `NIC0`, `mlx5_0` ...
    pub nics: Vec<String>,
    /// `links[i][j]`: the class of the path from device `i` to device `j`, GPUs first, then network
    /// cards. `None` only between two cards whose rows are missing.
    pub links: Vec<Vec<Option<PrintedClass>>>,
    /// The CPUs near each GPU, as printed: `0-15,32-47`.
    pub cpu_affinity: Vec<Option<String>>,
    /// The NUMA nodes near each GPU, as printed: `0`, or `0,5-11`.
    pub numa_affinity: Vec<Option<String>>,
    /// The device names of the labels `NIC0` and so on, where the report has a legend for them.
    pub nic_names: Vec<Option<String>>,
    /// The gaps, elisions and contradictions of the report, and how the reader has resolved them.
    pub notes: Vec<String>,
}

impl Matrix {
    /// Gives the name of a network card: the name in the legend, or else its label.
    ///
    /// # Panics
    /// If the report has no card `nic`.
    pub fn nic_name(&self, nic: usize) -> &str {
        self.nic_names.get(nic).and_then(|name| name.as_deref()).unwrap_or(&self.nics[nic])
    }

    /// Summarises the GPUs, their links and their nearest network cards.
    pub fn summary(&self) -> DeviceSummary {
        let gpus = self.gpus.len();
        let known = |cells: &[Option<PrintedClass>]| -> Vec<PrintedClass> {
            cells.iter().map(|class| class.unwrap_or(PrintedClass::Sys)).collect()
        };
        let rows = &self.links[..gpus];
        let links: Vec<Vec<PrintedClass>> = rows.iter().map(|row| known(&row[..gpus])).collect();
        let nearest_nics = rows.iter().map(|row| NearestNics::of(&known(&row[gpus..]))).collect();
        DeviceSummary {
            gpus,
            nics: Some(self.nics.len()),
            nvlinks: Some(direct_links(&links)),
            links,
            nearest_nics,
        }
    }
}
