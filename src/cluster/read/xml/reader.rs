//! Reads the elements of a file into a [`System`].

use super::attributes::{XmlElement, XmlSource};
use crate::read::text::{ReadError, check_length};
use maypole::topology::system::{DirectLink, Gpu, Net, NumaNode, PciDevice, System};
use roxmltree::{Document, ParsingOptions};

/// The largest depth of the tree of PCI devices: no machine is deeper, and the recursion fits the
/// stack.
const DEPTH: usize = 64;

/// The most elements, texts and comments of a file, to bound the memory of the tree.
const NODES: u32 = 50_000;

/// Reads a file, with any lines before and after it.
///
/// # Errors
/// [`ReadError`] with the line and column: if the XML is not well-formed, or an attribute is
/// missing or has an invalid value.
pub fn read(text: &str) -> Result<System, ReadError> {
    check_length(text)?;
    let (start, end) = place(text).unwrap_or((0, text.len()));
    let source =
        XmlSource { text: &text[start..end], skipped: text[..start].matches('\n').count() };
    let options = ParsingOptions { nodes_limit: NODES, ..ParsingOptions::default() };
    let tree = Document::parse_with_options(source.text, options)
        .map_err(|error| source.malformed(&error))?;
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

/// The byte range of the file in a pasted text. The text may have prompts before and after it,
/// or blank lines, which XML forbids before a declaration. The file begins on its own line.
/// `None` if the text has no topology file.
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
