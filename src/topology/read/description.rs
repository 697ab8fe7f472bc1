//! A description of a machine in any of the formats that this library reads.

use crate::topology::read::matrix::Matrix;
use crate::topology::read::rocm::RocmTables;
use crate::topology::read::summary::DeviceSummary;
use crate::topology::read::text::ReadError;
use crate::topology::read::xml::System;

/// A description of a machine, by the format that it was read from.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Description {
    /// `nvidia-smi topo -m`.
    Matrix(Matrix),
    /// A topology file of NCCL or RCCL.
    System(System),
    /// `rocm-smi --showtopo`, `amd-smi topology`.
    Rocm(RocmTables),
}

impl Description {
    /// Reads `text`. The content tells the format.
    ///
    /// # Errors
    /// [`ReadError`] with the line and column that the parser does not understand, or with the end
    /// of the text if it has none of the formats.
    pub fn read(text: &str) -> Result<Description, ReadError> {
        let is_xml = text.trim_start().starts_with('<') || System::place(text).is_some();
        if is_xml {
            System::read(text).map(Description::System)
        } else if RocmTables::is_in(text) && !Matrix::is_in(text) {
            RocmTables::read(text).map(Description::Rocm)
        } else {
            Matrix::read(text).map(Description::Matrix)
        }
    }

    /// Summarises the GPUs, their links and their nearest network cards.
    pub fn summary(&self) -> DeviceSummary {
        match self {
            Description::Matrix(matrix) => matrix.summary(),
            Description::System(system) => system.summary(),
            Description::Rocm(tables) => tables.summary(),
        }
    }

    /// Returns what the text lacks, elides or contradicts, and how the parser has resolved it.
    /// Empty for a complete description.
    pub fn notes(&self) -> &[String] {
        match self {
            Description::Matrix(matrix) => &matrix.notes,
            Description::System(system) => &system.notes,
            Description::Rocm(_) => &[],
        }
    }
}
