//! `nvidia-smi topo -m`: the matrix of classes that everybody pastes.
//!
//! ```
//! use maypole::topology::read::printed::PrintedClass;
//! use maypole::topology::read::matrix::Matrix;
//!
//! let matrix = Matrix::read("
//!         GPU0    GPU1    NIC0    CPU Affinity    NUMA Affinity
//! GPU0     X      NV4     PIX     0-15            0
//! GPU1    NV4      X      SYS     16-31           1
//! NIC0    PIX     SYS      X
//!
//! NIC Legend:
//!   NIC0: mlx5_0
//! ").unwrap();
//! assert_eq!((matrix.gpus.as_slice(), matrix.nics.as_slice()), (&["GPU0".into(), "GPU1".into()][..], &["NIC0".into()][..]));
//! assert_eq!(matrix.links[1][2], Some(PrintedClass::Sys));
//! assert_eq!(matrix.nic_name(0), "mlx5_0");
//! assert_eq!(matrix.cpu_affinity[1].as_deref(), Some("16-31"));
//! ```
//!
//! What terminals, editors and issue trackers do to it is undone: codes for underlining, tabs
//! turned into blanks, labels and cells grown together, lines wrapped at the window's edge, a
//! prefix before every line. What is still not understood is an error with its place; what was
//! mended by the report's own symmetry is in [`notes`](Matrix::notes).

mod affinity;
mod cells;
mod header;
mod rows;

use crate::topology::read::printed::PrintedClass;
use crate::topology::read::summary::{DeviceSummary, NearestNics, direct_links};
use crate::topology::read::text::{ReadError, lines};

/// What the report says. Devices keep the order of its columns: GPUs first, network cards after
/// them.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct Matrix {
    /// The labels of the GPUs.
    pub gpus: Vec<String>,
    /// The labels of the network cards: `NIC0`, `mlx5_0` ...
    pub nics: Vec<String>,
    /// `links[i][j]`, over GPUs and then network cards. `None` only between two cards whose rows
    /// are missing.
    pub links: Vec<Vec<Option<PrintedClass>>>,
    /// The CPUs near each GPU, as printed: `0-15,32-47`.
    pub cpu_affinity: Vec<Option<String>>,
    /// The NUMA nodes near each GPU, as printed: `0`, or `0,5-11`.
    pub numa_affinity: Vec<Option<String>>,
    /// What `NIC0` and so on are really called, where the report has a legend for it.
    pub nic_names: Vec<Option<String>>,
    /// What was damaged or contradicts itself, and how it was taken.
    pub notes: Vec<String>,
}

impl Matrix {
    /// Reads a report, with whatever text stands before and after it.
    ///
    /// # Errors
    /// Where the report is, if at all, not understood.
    pub fn read(text: &str) -> Result<Matrix, ReadError> {
        let lines = lines(text);
        let block = header::find(&lines)?;
        let mut matrix = rows::read(&block)?;
        matrix.nic_names = header::nic_names(&block.lines[block.first_row..], &matrix.nics);
        Ok(matrix)
    }

    /// Whether the text has a row of such a matrix anywhere.
    pub(crate) fn is_in(text: &str) -> bool {
        header::first_row(&lines(text)).is_some()
    }

    /// The name of a network card: that of the legend, else its label.
    ///
    /// # Panics
    /// If there is no such card.
    pub fn nic_name(&self, nic: usize) -> &str {
        self.nic_names.get(nic).and_then(|name| name.as_deref()).unwrap_or(&self.nics[nic])
    }

    /// The classes between GPUs, and from each GPU to the network cards.
    fn of_gpus(&self) -> impl Iterator<Item = (Vec<PrintedClass>, Vec<PrintedClass>)> {
        let known = |cells: &[Option<PrintedClass>]| {
            cells.iter().map(|class| class.unwrap_or(PrintedClass::Sys)).collect()
        };
        let gpus = self.gpus.len();
        self.links[..gpus].iter().map(move |row| (known(&row[..gpus]), known(&row[gpus..])))
    }

    /// What every description is asked.
    pub fn summary(&self) -> DeviceSummary {
        let (links, to_nics): (Vec<_>, Vec<_>) = self.of_gpus().unzip();
        let nearest_nics = to_nics.iter().map(|classes| NearestNics::of(classes)).collect();
        DeviceSummary {
            gpus: self.gpus.len(),
            nics: Some(self.nics.len()),
            nvlinks: Some(direct_links(&links)),
            links,
            nearest_nics,
        }
    }
}
