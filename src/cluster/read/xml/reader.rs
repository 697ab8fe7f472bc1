//! Reads the elements of a file into a [`System`].

use super::attributes::{XmlElement, XmlSource};
use super::summary;
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
/// [`ReadError`] with the line and column: if the XML is not well-formed, an attribute is missing or
/// has an invalid value, a device is where none can be, or no element describes a GPU.
pub fn read(text: &str) -> Result<System, ReadError> {
    check_length(text)?;
    let (start, end) = place(text).unwrap_or((0, text.len()));
    let source =
        XmlSource { text: &text[start..end], skipped: text[..start].matches('\n').count() };
    check_root(source)?;
    let options = ParsingOptions { nodes_limit: NODES, ..ParsingOptions::default() };
    let tree = Document::parse_with_options(source.text, options)
        .map_err(|error| source.malformed(&error))?;
    let root = XmlElement { node: tree.root_element(), source };
    if root.name() != "system" {
        return Err(root.error(ROOT));
    }
    let mut system = System::default();
    for child in root.children() {
        match child.name() {
            "cpu" => system.cpus.push(cpu(&child, &mut system.notes)?),
            "pci" | "gpu" | "nic" => return Err(child.error("<cpu>, and devices inside it")),
            _ => system.notes.push(child.unknown()),
        }
    }
    if start_of_root(&text[end..]).is_some() {
        let note = "the text has several topology files, and the first one was read";
        system.notes.push(note.to_owned());
    }
    if system.devices().gpus.is_empty() {
        let expected = "a GPU: <pci> with class=\"0x030200\" (or 0x030000), or with <gpu> inside";
        return Err(root.error(expected));
    }
    system.notes.extend(summary::notes(&system));
    Ok(system)
}

/// The required beginning of a file.
const ROOT: &str = "<system>, the root of a topology file of NCCL or RCCL (NCCL_TOPO_DUMP_FILE \
                    names a file that NCCL writes)";

/// Refuses the XML of other tools, before the parser does so for another reason.
fn check_root(source: XmlSource) -> Result<(), ReadError> {
    let tag = source.text.match_indices('<').find(|(at, _)| {
        source.text[at + 1..].starts_with(|first: char| first.is_ascii_alphabetic())
    });
    let Some((at, _)) = tag else { return Ok(()) };
    let rest = &source.text[at + 1..];
    let name: String =
        rest.chars().take_while(|char| char.is_alphanumeric() || "_-:".contains(*char)).collect();
    let tool = match name.as_str() {
        "topology" => "hwloc writes files with this root (`lstopo`)",
        "nvidia_smi_log" => "`nvidia-smi -q -x` prints this root",
        _ => "",
    };
    // A tag within a comment is none.
    if name == "system" || tool.is_empty() {
        return Ok(());
    }
    let before = &source.text[..at];
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    Err(ReadError {
        line: 1 + before.matches('\n').count() + source.skipped,
        column: 1 + before[line_start..].chars().count(),
        found: format!("<{name}>"),
        expected: format!("{ROOT}; {tool}"),
    })
}

/// The byte range of the file in a pasted text. The text may have prompts before and after it,
/// or blank lines, which XML forbids before a declaration. The file begins on its own line.
/// Of several files, the first one. `None` if the text has no topology file.
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
    let after = |at: usize| at + END.len();
    let mut rest = text[start..].match_indices(END).map(|(at, _)| after(start + at)).peekable();
    let mut end = text.len();
    while let Some(found) = rest.next() {
        end = found;
        let until = rest.peek().copied().unwrap_or(text.len());
        if start_of_root(&text[found..until]).is_some() {
            break;
        }
    }
    Some((start, end))
}

/// Where the root of a file begins in `text`.
fn start_of_root(text: &str) -> Option<usize> {
    const ROOT: &str = "<system";
    let ends = |at: usize| text[at + ROOT.len()..].starts_with([' ', '\t', '\n', '\r', '>', '/']);
    text.match_indices(ROOT).map(|(at, _)| at).find(|at| ends(*at))
}

fn cpu(element: &XmlElement, notes: &mut Vec<String>) -> Result<NumaNode, ReadError> {
    let mut cpu = NumaNode {
        numa: element.number("numaid")?,
        host: element.word("host_hash"),
        architecture: element.word("arch"),
        vendor: element.word("vendor"),
        model: element.number("modelid")?,
        ..NumaNode::default()
    };
    for child in element.children() {
        match child.name() {
            "pci" => cpu.devices.push(pci(&child, DEPTH, notes)?),
            "nic" => cpu.nets.extend(nets(&child, notes)?),
            "gpu" => return Err(child.error("<pci>, and <gpu> inside it")),
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
        ..PciDevice::default()
    };
    for child in element.children() {
        match child.name() {
            "pci" => pci.devices.push(self::pci(&child, deeper, notes)?),
            "gpu" => pci.gpus.push(gpu(&child, notes)?),
            "nic" => pci.nets.extend(nets(&child, notes)?),
            "pcilink" => {}
            _ => notes.push(child.unknown()),
        }
    }
    if pci.class.is_none() && element.children().next().is_none() {
        notes.push(element.left_out("has neither a class nor devices, and is left out"));
    }
    Ok(pci)
}

fn gpu(element: &XmlElement, notes: &mut Vec<String>) -> Result<Gpu, ReadError> {
    let mut gpu = Gpu {
        device: element.number("dev")?,
        sm: element.number("sm")?,
        gcn: element.word("gcn"),
        rank: element.number("rank")?,
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
            "c2c" => {
                gpu.c2c = child.number("bw")?.zip(child.number("count")?);
                if gpu.c2c.is_none_or(|(bandwidth, links)| bandwidth <= 0 || links <= 0) {
                    notes.push(child.left_out("lacks bw or count, and is left out"));
                }
            }
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
            }),
            _ => notes.push(child.unknown()),
        }
    }
    Ok(nets)
}
