//! A description of a machine in any of the formats that this crate reads.

use crate::read::matrix::Matrix;
use crate::read::rocm::RocmTables;
use crate::read::summary::DeviceSummary;
use crate::read::text::{self, ReadError, check_length};
use crate::read::xml;
use maypole::topology::system::System;

/// The most GPUs and network cards of one description, to bound the work on paths and rings. The
/// largest machines have 72 of each.
const DEVICES: usize = 512;

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
    /// The most bytes of a description: 2 MiB. A program that reads a file of the user's needs to
    /// read no more than one byte beyond.
    pub const LONGEST: usize = text::LONGEST;

    /// Reads `text`. The content determines the format.
    ///
    /// # Errors
    /// [`ReadError`] with the line and column of the unparsed text, with the end of the text if it
    /// has none of the formats, and for a text of more than [`LONGEST`](Self::LONGEST) bytes,
    /// without a GPU, or with too many devices.
    pub fn read(text: &str) -> Result<Description, ReadError> {
        let description = Self::of_any_size(text)?;
        let devices = description.devices();
        if devices <= DEVICES {
            return Ok(description);
        }
        let found = format!("{devices} devices");
        let expected = format!("at most {DEVICES} GPUs and network cards");
        Err(ReadError { line: 1, column: 1, found, expected })
    }

    /// The number of GPUs and network cards.
    fn devices(&self) -> usize {
        match self {
            Description::Matrix(matrix) => matrix.gpus.len() + matrix.nics.len(),
            Description::System(system) => {
                let devices = system.devices();
                devices.gpus.len() + devices.cards.len()
            }
            Description::Rocm(tables) => tables.gpus.len(),
        }
    }

    fn of_any_size(text: &str) -> Result<Description, ReadError> {
        check_length(text)?;
        let is_xml = text.trim_start().starts_with('<') || xml::place(text).is_some();
        if is_xml {
            xml::read(text).map(Description::System)
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
            Description::System(system) => xml::summary(system),
            Description::Rocm(tables) => tables.summary(),
        }
    }

    /// Returns the gaps, elisions and contradictions of the text, and how the parser has resolved
    /// them. Empty for a complete description.
    pub fn notes(&self) -> &[String] {
        match self {
            Description::Matrix(matrix) => &matrix.notes,
            Description::System(system) => &system.notes,
            Description::Rocm(_) => &[],
        }
    }
}
