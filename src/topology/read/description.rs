//! A description of a machine in any of the formats that are read here.

use crate::topology::read::matrix::Matrix;
use crate::topology::read::rocm::RocmTables;
use crate::topology::read::summary::DeviceSummary;
use crate::topology::read::text::ReadError;
use crate::topology::read::xml::System;

/// A description of a machine, in whichever of the formats it came.
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
    /// Reads `text` in the format that its content shows.
    ///
    /// # Errors
    /// Where it is not understood; at its end if it is in none of the formats.
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

    /// What every description is asked.
    pub fn summary(&self) -> DeviceSummary {
        match self {
            Description::Matrix(matrix) => matrix.summary(),
            Description::System(system) => system.summary(),
            Description::Rocm(tables) => tables.summary(),
        }
    }

    /// What was damaged or not known, and how it was taken; nothing to worry about if empty.
    pub fn notes(&self) -> &[String] {
        match self {
            Description::Matrix(matrix) => &matrix.notes,
            Description::System(system) => &system.notes,
            Description::Rocm(_) => &[],
        }
    }
}
