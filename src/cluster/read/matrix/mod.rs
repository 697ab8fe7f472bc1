//! `nvidia-smi topo -m`: the matrix of path classes that people paste into issues.
//!
//! ```
//! use maypole_cluster::read::matrix::Matrix;
//! use maypole_cluster::read::printed::PrintedClass;
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
//! assert_eq!(matrix.gpus, ["GPU0", "GPU1"]);
//! assert_eq!(matrix.nics, ["NIC0"]);
//! assert_eq!(matrix.links[1][2], Some(PrintedClass::Sys));
//! assert_eq!(matrix.nic_name(0), "mlx5_0");
//! assert_eq!(matrix.cpu_affinity[1].as_deref(), Some("16-31"));
//! ```
//!
//! Terminals, editors and issue trackers damage such a report. The reader undoes the damage: codes
//! for underlining, tabs that became blanks, labels and cells that ran together, lines wrapped at
//! the window's edge, a prefix before every line. The result leaves out columns and rows that were
//! elided as `...`. [`notes`](Matrix::notes) lists them, and every cell that was taken from across
//! the diagonal. Any other damage is an error with its line and column.

mod affinity;
mod cells;
mod elision;
mod header;
mod others;
mod report;
mod rows;

pub use report::Matrix;

use crate::read::text::{ReadError, check_length, lines};

impl Matrix {
    /// Reads a report, with any text before and after it.
    ///
    /// # Errors
    /// [`ReadError`] with the line and column of the unparsed text, or with the end of the text if
    /// it has no report.
    pub fn read(text: &str) -> Result<Matrix, ReadError> {
        check_length(text)?;
        let lines = others::without_peer_tables(lines(text));
        let block = header::find(&lines).map_err(|error| others::explain(text, error))?;
        let mut matrix = rows::read(&block)?;
        matrix.nic_names = header::nic_names(&block.lines[block.first_row..], &matrix.nics);
        Ok(matrix)
    }

    /// Whether the text has a row of such a matrix anywhere.
    pub(crate) fn is_in(text: &str) -> bool {
        header::first_row(&others::without_peer_tables(lines(text))).is_some()
    }
}
