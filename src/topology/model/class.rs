//! The class of a path between two devices, in the words of `nvidia-smi topo -m`. NCCL calls it the
//! path type.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// The farthest kind of hop on a path between two devices. The better class is the greater value:
/// `NV4 > NV2 > PIX > PXB > PHB > NODE > SYS > NET`.
///
/// ```
/// use maypole::topology::PathClass;
/// assert!(PathClass::NvLink(4) > PathClass::NvLink(2));
/// assert!(PathClass::NvLink(1) > PathClass::Pix && PathClass::Pix > PathClass::Sys);
/// assert_eq!("SOC".parse(), Ok(PathClass::Sys));
/// assert_eq!(PathClass::NvLink(12).to_string(), "NV12");
/// ```
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
pub enum PathClass {
    /// A network.
    Net,
    /// The link between NUMA nodes.
    Sys,
    /// Several host bridges of one NUMA node.
    Node,
    /// A host bridge.
    Phb,
    /// Several PCI bridges, and no host bridge.
    Pxb,
    /// At most one PCI bridge.
    Pix,
    /// This many bonded XGMI links.
    Xgmi(u32),
    /// This many bonded NVLinks to the other device, or to a switch that both devices are linked
    /// to.
    NvLink(u32),
    /// No hop: both ends are one device.
    Same,
}

impl PathClass {
    /// Returns a number that is greater for a better class. N NVLinks and N XGMI links have the
    /// same number, because no machine has both.
    pub const fn rank(self) -> u32 {
        match self {
            Self::Same => u32::MAX,
            Self::NvLink(links) | Self::Xgmi(links) => 16 + links,
            Self::Pix => 6,
            Self::Pxb => 5,
            Self::Phb => 4,
            Self::Node => 3,
            Self::Sys => 2,
            Self::Net => 1,
        }
    }
}

impl fmt::Display for PathClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NvLink(links) => f.pad(&format!("NV{links}")),
            Self::Xgmi(links) => f.pad(&format!("XGMI{links}")),
            Self::Same => f.pad("X"),
            Self::Pix => f.pad("PIX"),
            Self::Pxb => f.pad("PXB"),
            Self::Phb => f.pad("PHB"),
            Self::Node => f.pad("NODE"),
            Self::Sys => f.pad("SYS"),
            Self::Net => f.pad("NET"),
        }
    }
}

/// The error of a name that is not a path class.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{name:?} is not a path class: use X, NV#, XGMI#, PIX, PXB, PHB, NODE, SYS (SOC) or NET")]
pub struct UnknownPathClass {
    /// The unknown name.
    pub name: String,
}

impl FromStr for PathClass {
    type Err = UnknownPathClass;

    /// Reads the words that [`Display`](fmt::Display) writes. Also reads `SOC`, the word of old
    /// drivers for `SYS`, and `XGMI`, which is one XGMI link.
    fn from_str(name: &str) -> Result<Self, UnknownPathClass> {
        let links = |prefix: &str| {
            name.strip_prefix(prefix)?.parse().ok().filter(|&links| (1..1024).contains(&links))
        };
        let plain = [Self::Same, Self::Pix, Self::Pxb, Self::Phb, Self::Node, Self::Sys, Self::Net];
        let class = match name {
            "SOC" => Some(Self::Sys),
            "XGMI" => Some(Self::Xgmi(1)),
            _ => plain.into_iter().find(|class| class.to_string() == name),
        };
        class
            .or_else(|| links("NV").map(Self::NvLink))
            .or_else(|| links("XGMI").map(Self::Xgmi))
            .ok_or_else(|| UnknownPathClass { name: name.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back_and_order_is_by_nearness() {
        use PathClass::*;
        let all = [Net, Sys, Node, Phb, Pxb, Pix, Xgmi(1), Xgmi(4), NvLink(1), NvLink(18), Same];
        assert!(all.is_sorted());
        for class in all {
            assert_eq!(class.to_string().parse(), Ok(class));
        }
        for no in ["", "NV", "NV0", "NVx", "XGMI-1", "pix", "NV99999999999"] {
            assert!(no.parse::<PathClass>().is_err(), "{no}");
        }
    }
}
