//! The words that tools print for the class of a path.

use maypole::topology::model::class::PathClass;
use std::fmt;

/// A cell of `nvidia-smi topo -m`, `rocm-smi --showtopo` and similar tools: a [`PathClass`] in the
/// word of the tool.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum PrintedClass {
    /// `X`: the device itself.
    Same,
    /// `NV#`: the number of bonded NVLinks, at least one.
    NvLink(u32),
    /// `XGMI`: AMD's links between GPUs, and their number where the tool counts them.
    Xgmi(Option<u32>),
    /// `PSB`: one PCIe switch, on the board that both devices share. Drivers before 384 print it
    /// for cards with two GPUs.
    Psb,
    /// `PIX`: at most one PCIe bridge.
    Pix,
    /// `PXB`: several PCIe bridges, but no host bridge.
    Pxb,
    /// `PHB`: a PCIe host bridge, typically the CPU.
    Phb,
    /// `NODE`: two host bridges of one NUMA node.
    Node,
    /// `SYS`: the link between NUMA nodes or sockets.
    Sys,
    /// `SOC`: the word of drivers before 384 for `SYS`.
    Soc,
    /// `NET`: on another host.
    Net,
    /// `PCIE`: over PCIe; the tool does not print over which bridges.
    Pcie,
}

impl PrintedClass {
    /// The cells of `nvidia-smi topo -m` that are one word each.
    pub(crate) const WORDS: [(&'static str, PrintedClass); 8] = [
        ("X", PrintedClass::Same),
        ("PSB", PrintedClass::Psb),
        ("PIX", PrintedClass::Pix),
        ("PXB", PrintedClass::Pxb),
        ("PHB", PrintedClass::Phb),
        ("NODE", PrintedClass::Node),
        ("SYS", PrintedClass::Sys),
        ("SOC", PrintedClass::Soc),
    ];

    /// Returns the class that the word means. Of several possible classes, it is the worst, so that
    /// no prediction is too good.
    ///
    /// ```
    /// use maypole_cluster::read::printed::PrintedClass;
    /// use maypole::topology::PathClass;
    /// assert_eq!(PrintedClass::Soc.class(), PrintedClass::Sys.class());
    /// assert!(PrintedClass::NvLink(4).class() > PrintedClass::NvLink(2).class());
    /// assert_eq!(PrintedClass::Pcie.class(), PathClass::Sys);
    /// ```
    pub const fn class(self) -> PathClass {
        match self {
            PrintedClass::Same => PathClass::Same,
            PrintedClass::NvLink(links) => PathClass::NvLink(links),
            PrintedClass::Xgmi(Some(links)) => PathClass::Xgmi(links),
            PrintedClass::Xgmi(None) => PathClass::Xgmi(1),
            PrintedClass::Psb | PrintedClass::Pix => PathClass::Pix,
            PrintedClass::Pxb => PathClass::Pxb,
            PrintedClass::Phb => PathClass::Phb,
            PrintedClass::Node => PathClass::Node,
            PrintedClass::Sys | PrintedClass::Soc | PrintedClass::Pcie => PathClass::Sys,
            PrintedClass::Net => PathClass::Net,
        }
    }

    /// Returns the number of NVLinks or XGMI links between the two devices; 0 if the word does not
    /// count them.
    pub const fn direct_links(self) -> u32 {
        match self {
            PrintedClass::NvLink(links) | PrintedClass::Xgmi(Some(links)) => links,
            _ => 0,
        }
    }
}

/// As the tools print it: `X`, `NV4`, `XGMI`, `XGMI2`, `PIX` ...
impl fmt::Display for PrintedClass {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        match self {
            PrintedClass::NvLink(links) => out.pad(&format!("NV{links}")),
            PrintedClass::Xgmi(Some(links)) => out.pad(&format!("XGMI{links}")),
            PrintedClass::Xgmi(None) => out.pad("XGMI"),
            PrintedClass::Pcie => out.pad("PCIE"),
            PrintedClass::Net => out.pad("NET"),
            plain => {
                let known = Self::WORDS.iter().find(|(_, class)| class == plain);
                out.pad(known.map_or("", |(word, _)| word))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every word of every tool, with its meaning. This table was made independently of the
    /// library's readers.
    #[test]
    fn every_word_means_the_class_of_its_name() {
        let meanings = [
            ("X", PathClass::Same),
            ("PSB", PathClass::Pix),
            ("PIX", PathClass::Pix),
            ("PXB", PathClass::Pxb),
            ("PHB", PathClass::Phb),
            ("NODE", PathClass::Node),
            ("SYS", PathClass::Sys),
            ("SOC", PathClass::Sys),
        ];
        assert_eq!(PrintedClass::WORDS.len(), meanings.len());
        for (word, meaning) in meanings {
            let known = PrintedClass::WORDS.iter().find(|(known, _)| *known == word);
            let (_, class) = known.unwrap_or_else(|| panic!("{word} is not known"));
            assert_eq!(class.class(), meaning, "{word}");
            assert_eq!(class.to_string(), word);
        }
        assert_eq!(PrintedClass::NvLink(12).class(), PathClass::NvLink(12));
        assert_eq!(PrintedClass::Xgmi(None).class(), PathClass::Xgmi(1));
        assert_eq!(PrintedClass::Xgmi(Some(3)).class(), PathClass::Xgmi(3));
    }
}
