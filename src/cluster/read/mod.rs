//! Parsers of the output of tools that describe a machine.
//!
//! | module | input |
//! |---|---|
//! | [`description`] | any of the formats below, recognised by its content |
//! | [`matrix`] | the output of `nvidia-smi topo -m`, in any pasted form |
//! | [`xml`] | the topology files of NCCL and RCCL |
//! | [`rocm`] | the output of `rocm-smi --showtopo` and `amd-smi topology` |
//! | [`printed`] | one cell of these tables |
//! | [`summary`] | the devices of every description |
//! | [`text`] | characters with their line and column, and the error that names them |

pub mod description;
pub mod matrix;
pub mod printed;
pub mod rocm;
pub mod summary;
pub mod text;
pub mod xml;
