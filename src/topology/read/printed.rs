//! The words that tools print for how near two devices are.

use crate::topology::model::class::Class;
use std::fmt;

/// A cell as `nvidia-smi topo -m`, `rocm-smi --showtopo` and the like print it: a [`Class`], in the
/// word of the tool.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Printed {
    /// `X`: the device itself.
    Same,
    /// `NV#`: so many bonded NVLinks, at least one.
    NvLink(u32),
    /// `XGMI`: AMD's links between GPUs; how many, where the source counts them.
    Xgmi(Option<u32>),
    /// `PSB`: one PCIe switch, on the board that both share. Drivers before 384 print it for cards
    /// with two GPUs.
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
    /// `SOC`: what drivers before 384 print for `SYS`.
    Soc,
    /// `PCIE`: over PCIe, and the tool does not say over how much of it.
    Pcie,
}

impl Printed {
    /// The cells of `nvidia-smi topo -m` that are one word each.
    pub(crate) const WORDS: [(&'static str, Printed); 8] = [
        ("X", Printed::Same),
        ("PSB", Printed::Psb),
        ("PIX", Printed::Pix),
        ("PXB", Printed::Pxb),
        ("PHB", Printed::Phb),
        ("NODE", Printed::Node),
        ("SYS", Printed::Sys),
        ("SOC", Printed::Soc),
    ];

    /// What it means. Where the tool does not say, the worst that it can be: who plans with it must
    /// not hope.
    ///
    /// ```
    /// use maypole::topology::read::printed::Printed;
    /// use maypole::topology::Class;
    /// assert_eq!(Printed::Soc.class(), Printed::Sys.class());
    /// assert!(Printed::NvLink(4).class() > Printed::NvLink(2).class());
    /// assert_eq!(Printed::Pcie.class(), Class::Sys);
    /// ```
    pub const fn class(self) -> Class {
        match self {
            Printed::Same => Class::Same,
            Printed::NvLink(links) => Class::NvLink(links),
            Printed::Xgmi(Some(links)) => Class::Xgmi(links),
            Printed::Xgmi(None) => Class::Xgmi(1),
            Printed::Psb | Printed::Pix => Class::Pix,
            Printed::Pxb => Class::Pxb,
            Printed::Phb => Class::Phb,
            Printed::Node => Class::Node,
            Printed::Sys | Printed::Soc | Printed::Pcie => Class::Sys,
        }
    }

    /// Links between the two that no other device shares, where they are counted: NVLinks or XGMI
    /// links.
    pub const fn direct_links(self) -> u32 {
        match self {
            Printed::NvLink(links) | Printed::Xgmi(Some(links)) => links,
            _ => 0,
        }
    }
}

/// As the tools print it: `X`, `NV4`, `XGMI`, `XGMI2`, `PIX` ...
impl fmt::Display for Printed {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Printed::NvLink(links) => out.pad(&format!("NV{links}")),
            Printed::Xgmi(Some(links)) => out.pad(&format!("XGMI{links}")),
            Printed::Xgmi(None) => out.pad("XGMI"),
            Printed::Pcie => out.pad("PCIE"),
            Printed::Same => out.pad("X"),
            Printed::Psb => out.pad("PSB"),
            Printed::Pix => out.pad("PIX"),
            Printed::Pxb => out.pad("PXB"),
            Printed::Phb => out.pad("PHB"),
            Printed::Node => out.pad("NODE"),
            Printed::Sys => out.pad("SYS"),
            Printed::Soc => out.pad("SOC"),
        }
    }
}
