//! The topology files of NCCL and RCCL. `NCCL_TOPO_FILE` names the file that NCCL reads, and
//! `NCCL_TOPO_DUMP_FILE` the file that it writes.
//!
//! ```
//! use maypole_cluster::read::printed::PrintedClass;
//! use maypole_cluster::read::xml;
//!
//! let system = xml::read(r#"
//! <system version="1">
//!   <cpu numaid="0">
//!     <pci busid="0000:10:00.0" class="0x060400">
//!       <pci busid="0000:11:00.0" class="0x030200"/>
//!       <pci busid="0000:12:00.0" class="0x020000"/>
//!     </pci>
//!   </cpu>
//!   <cpu numaid="1">
//!     <pci busid="0000:91:00.0" class="0x030200"/>
//!   </cpu>
//! </system>"#).unwrap();
//! let answers = xml::summary(&system);
//! assert_eq!(answers.links[0][1], PrintedClass::Sys);
//! assert_eq!(answers.nearest_nics.unwrap()[0].class, PrintedClass::Pix);
//!
//! let error = xml::read("<system>\n<cpu numaid=\"zero\"/>\n</system>").unwrap_err();
//! assert_eq!((error.line, error.column), (2, 6));
//! assert!(error.to_string().ends_with(r#"found "numaid=\"zero\"", expected a number"#));
//! ```

mod attributes;
mod reader;
mod summary;

pub(crate) use reader::place;
pub use reader::read;
pub use summary::{nic_names, summary};
