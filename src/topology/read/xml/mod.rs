//! The topology files of NCCL and RCCL: `NCCL_TOPO_FILE`, and what `NCCL_TOPO_DUMP_FILE` writes.
//!
//! ```
//! use maypole::topology::read::printed::PrintedClass;
//! use maypole::topology::read::xml::System;
//!
//! let system = System::read(r#"
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
//! let answers = system.summary();
//! assert_eq!(answers.links[0][1], PrintedClass::Sys);
//! assert_eq!(answers.nearest_nics.unwrap()[0].class, PrintedClass::Pix);
//!
//! let error = System::read("<system version=\"1\">\n<cpu numaid=\"zero\"/>\n</system>").unwrap_err();
//! assert_eq!(error.to_string(), r#"line 2, column 6: found "numaid=\"zero\"", expected a number"#);
//! ```

mod attributes;
pub(crate) mod paths;

use crate::topology::read::text::ReadError;
use attributes::{XmlElement, XmlSource};

/// A machine as such a file describes it.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct System {
    /// The CPUs, each with what is plugged into it.
    pub cpus: Vec<NumaNode>,
    /// Elements that mean nothing to this reader, with their lines; they and all in them are left
    /// out.
    pub notes: Vec<String>,
}

/// One NUMA node.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct NumaNode {
    /// Its number.
    pub numa: Option<i64>,
    /// Which host it belongs to, in files about several.
    pub host: Option<String>,
    /// The mask of its cores, as in the file: `0000ffff,0000ffff`.
    pub affinity: Option<String>,
    /// `x86_64`, `arm64` or `ppc64`.
    pub architecture: Option<String>,
    /// `GenuineIntel`, `AuthenticAMD` ...
    pub vendor: Option<String>,
    /// Which generation, by the vendor's numbers: family and model.
    pub family: Option<i64>,
    /// See `family`.
    pub model: Option<i64>,
    /// What is plugged in.
    pub devices: Vec<PciDevice>,
    /// Network interfaces without a PCI device: virtual ones.
    pub nets: Vec<Net>,
}

/// A PCI device: a bridge with others behind it, a GPU, a network card.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct PciDevice {
    /// Its address, lower case: `0000:0f:00.0`.
    pub bus: String,
    /// The host bridge it is on, of those directly below a CPU; topology files do not say it, a
    /// machine does.
    pub root: Option<String>,
    /// PathClass, subclass and programming interface in 24 bits: `0x030200`.
    pub class: Option<u32>,
    /// Transfers a second on each lane of its link, in units of 10^9.
    pub gigatransfers: Option<f64>,
    /// Lanes of its link.
    pub lanes: Option<i64>,
    /// Vendor and device.
    pub vendor: Option<String>,
    /// See `vendor`.
    pub device: Option<String>,
    /// What is behind it.
    pub devices: Vec<PciDevice>,
    /// The GPU that it is; several if one is divided.
    pub gpus: Vec<Gpu>,
    /// The interfaces of the network card that it is.
    pub nets: Vec<Net>,
    /// Other switches that it is directly connected with, by address.
    pub switch_links: Vec<String>,
}

/// What only a GPU has.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Gpu {
    /// Its number on the machine.
    pub device: Option<i64>,
    /// Its compute capability times ten; on AMD the number of compute units.
    pub sm: Option<i64>,
    /// On AMD: its architecture, `908` or `gfx942`.
    pub gcn: Option<String>,
    /// The rank that used it when the file was written.
    pub rank: Option<i64>,
    /// Whether network cards may reach its memory.
    pub gdr: Option<i64>,
    /// NVLinks and XGMI links.
    pub links: Vec<DirectLink>,
    /// Bandwidth in MB/s of its coherent link to the CPU, and how many there are.
    pub c2c: Option<(i64, i64)>,
}

/// Bonded links from a GPU to another, or to a switch.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct DirectLink {
    /// Whether it is XGMI, not NVLink.
    pub xgmi: bool,
    /// The address at the other end, lower case.
    pub target: String,
    /// How many.
    pub count: u32,
    /// The class of the other end, as in [`PciDevice::class`]: a GPU, `0x068000` a switch, `0x068001` a
    /// CPU.
    pub class: Option<u32>,
}

/// A network interface.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Net {
    /// `mlx5_0`, `eth0` ...
    pub name: String,
    /// Its number on the machine.
    pub device: Option<i64>,
    /// Mb/s.
    pub speed: Option<i64>,
    /// The port of its card.
    pub port: Option<i64>,
    /// Microseconds.
    pub latency: Option<f64>,
    /// Whether it may reach the memory of GPUs.
    pub gdr: Option<i64>,
}

/// Deeper than any machine, and shallow enough for any stack.
const DEPTH: usize = 64;

impl System {
    /// Reads a file, with whatever lines stand before and after it.
    ///
    /// # Errors
    /// Where it is not well-formed, lacks what it must have, or has a value that is none.
    pub fn read(text: &str) -> Result<System, ReadError> {
        let (start, end) = Self::place(text).unwrap_or((0, text.len()));
        let source =
            XmlSource { text: &text[start..end], skipped: text[..start].matches('\n').count() };
        let tree =
            roxmltree::Document::parse(source.text).map_err(|error| source.malformed(&error))?;
        let root = XmlElement { node: tree.root_element(), source };
        if root.name() != "system" {
            return Err(root.error("<system>, the root of a topology file"));
        }
        let mut system = System::default();
        for child in root.children() {
            match child.name() {
                "cpu" => system.cpus.push(cpu(&child, &mut system.notes)?),
                _ => system.notes.push(child.unknown()),
            }
        }
        Ok(system)
    }

    /// Where the file is among what was pasted with it: blank lines, which XML forbids before a
    /// declaration, or prompts. It begins on a line of its own. Nothing if there is none.
    pub(crate) fn place(text: &str) -> Option<(usize, usize)> {
        let begins =
            |line: &str| ["<?xml", "<!--", "<system"].iter().any(|word| line.starts_with(word));
        let mut lines = text.split_inclusive('\n').scan(0, |at, line| {
            *at += line.len();
            Some((*at - line.len(), line))
        });
        let blank = |char: char| char.is_whitespace() || char == '\u{feff}';
        let first = lines.find(|(_, line)| begins(line.trim_start_matches(blank)))?;
        let start = first.0 + first.1.len() - first.1.trim_start_matches(blank).len();
        const END: &str = "</system>";
        let end = text[start..].rfind(END).map_or(text.len(), |end| start + end + END.len());
        Some((start, end))
    }
}

fn cpu(element: &XmlElement, notes: &mut Vec<String>) -> Result<NumaNode, ReadError> {
    let mut cpu = NumaNode {
        numa: element.number("numaid")?,
        host: element.word("host_hash"),
        affinity: element.word("affinity"),
        architecture: element.word("arch"),
        vendor: element.word("vendor"),
        family: element.number("familyid")?,
        model: element.number("modelid")?,
        ..NumaNode::default()
    };
    for child in element.children() {
        match child.name() {
            "pci" => cpu.devices.push(pci(&child, DEPTH, notes)?),
            "nic" => cpu.nets.extend(nets(&child, notes)?),
            _ => notes.push(child.unknown()),
        }
    }
    Ok(cpu)
}

fn pci(
    element: &XmlElement,
    depth: usize,
    notes: &mut Vec<String>,
) -> Result<PciDevice, ReadError> {
    let deeper = depth
        .checked_sub(1)
        .ok_or_else(|| element.error(format!("at most {DEPTH} devices behind each other")))?;
    let mut pci = PciDevice {
        bus: element.required("busid")?.to_lowercase(),
        class: element.class("class")?,
        gigatransfers: element.gigatransfers("link_speed")?,
        lanes: element.number("link_width")?,
        vendor: element.word("vendor"),
        device: element.word("device"),
        ..PciDevice::default()
    };
    for child in element.children() {
        match child.name() {
            "pci" => pci.devices.push(self::pci(&child, deeper, notes)?),
            "gpu" => pci.gpus.push(gpu(&child, notes)?),
            "nic" => pci.nets.extend(nets(&child, notes)?),
            "pcilink" => pci.switch_links.push(child.required("target")?.to_lowercase()),
            _ => notes.push(child.unknown()),
        }
    }
    Ok(pci)
}

fn gpu(element: &XmlElement, notes: &mut Vec<String>) -> Result<Gpu, ReadError> {
    let mut gpu = Gpu {
        device: element.number("dev")?,
        sm: element.number("sm")?,
        gcn: element.word("gcn"),
        rank: element.number("rank")?,
        gdr: element.number("gdr")?,
        ..Gpu::default()
    };
    for child in element.children() {
        match child.name() {
            "nvlink" | "xgmi" => gpu.links.push(DirectLink {
                xgmi: child.name() == "xgmi",
                target: child.required("target")?.to_lowercase(),
                count: child.count("count")?,
                class: child.class("tclass")?,
            }),
            "c2c" => gpu.c2c = child.number("bw")?.zip(child.number("count")?),
            _ => notes.push(child.unknown()),
        }
    }
    Ok(gpu)
}

fn nets(element: &XmlElement, notes: &mut Vec<String>) -> Result<Vec<Net>, ReadError> {
    let mut nets = Vec::new();
    for child in element.children() {
        match child.name() {
            "net" => nets.push(Net {
                name: child.required("name")?,
                device: child.number("dev")?,
                speed: child.number("speed")?,
                port: child.number("port")?,
                latency: child.decimal("latency")?,
                gdr: child.number("gdr")?,
            }),
            _ => notes.push(child.unknown()),
        }
    }
    Ok(nets)
}
