//! What links carry, by kind and generation, in GB/s one way: figures to begin with, until somebody
//! measures.
//!
//! They are not what is printed on the box but what arrives: NCCL's, from its `src/graph/topo.h`
//! and `topo.cc`, which its own search divides among its rings. Nothing here belongs to one
//! machine; a machine is a number of links.

/// A generation of GPUs, by what its links carry.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum GpuGeneration {
    /// P100 (SM60).
    Pascal,
    /// V100 (SM70).
    Volta,
    /// A100 (SM80).
    Ampere,
    /// A40, RTX 3090 and other cards with bridges (SM86).
    AmpereCard,
    /// H100, H200 (SM90).
    Hopper,
    /// B200 (SM100).
    Blackwell,
    /// MI50, MI60 and MI100.
    Vega,
    /// MI210, MI250.
    Mi200,
    /// MI300X, MI325X.
    Mi300,
}

/// What arrives of what an NVLink's wire carries: 20 of 25 GB/s (SM80), 20.6 of 25 (SM90), 40.1 of
/// 50 (SM100).
///
/// The rule for links of which only the wire is known.
pub const EFFICIENCY: f64 = 0.8;

impl GpuGeneration {
    /// Of one NVLink or XGMI link.
    ///
    /// NVLink: NCCL's `topo.h`. XGMI: Vega and MI200 from RCCL's `topo.h`; MI300X by [`EFFICIENCY`]
    /// from the 64 GB/s of its data sheet (RCCL says 48).
    pub const fn link(self) -> f64 {
        match self {
            Self::Pascal => 18.0,
            Self::Volta | Self::Ampere => 20.0,
            Self::AmpereCard => 12.0,
            Self::Hopper => 20.6,
            Self::Blackwell => 40.1,
            Self::Vega => 24.0,
            Self::Mi200 => 36.0,
            Self::Mi300 => 64.0 * EFFICIENCY,
        }
    }

    /// The PCI slot that its cards come with: generation and lanes.
    pub const fn pci(self) -> f64 {
        match self {
            Self::Pascal | Self::Volta => pci(3, 16),
            Self::Ampere | Self::AmpereCard | Self::Vega | Self::Mi200 => pci(4, 16),
            Self::Hopper | Self::Blackwell | Self::Mi300 => pci(5, 16),
        }
    }
}

/// A PCI link of `lanes` lanes: 12 GB/s for sixteen of generation 3, twice that with each
/// generation. Zero for no such generation.
///
/// NCCL: width x rate / 80, the rates being 15, 30, 60, 120, 240 and 480.
pub const fn pci(generation: u32, lanes: u32) -> f64 {
    let rate = match generation {
        1..=6 => 15_u32 << (generation - 1),
        _ => 0,
    };
    lanes as f64 * rate as f64 / 80.0
}

/// A network card of this many Gbit/s: an eighth.
pub const fn network(gigabits: f64) -> f64 {
    gigabits / 8.0
}

/// A kind of processor, by what joins two of them.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Processor {
    /// Broadwell and before.
    IntelOld,
    /// Skylake to Ice Lake.
    #[default]
    Intel,
    /// Sapphire Rapids.
    IntelSapphireRapids,
    /// Emerald Rapids and after.
    IntelEmeraldRapids,
    /// Epyc.
    Amd,
    /// Arm, as NCCL takes it.
    Arm,
    /// IBM.
    Power9,
    /// Zhaoxin.
    Zhaoxin,
}

impl Processor {
    /// Between two NUMA nodes. NCCL's `topo.h`.
    pub const fn link(self) -> f64 {
        match self {
            Self::IntelOld | Self::Arm | Self::Zhaoxin => 6.0,
            Self::Intel => 10.0,
            Self::IntelSapphireRapids => 22.0,
            Self::IntelEmeraldRapids => 40.0,
            Self::Amd => 16.0,
            Self::Power9 => 32.0,
        }
    }

    /// Through a host bridge, of a PCI link that carries `pci`: Intel's cut what passes between
    /// cards into packets of 64 bytes, which costs a sixth (NCCL's `INTEL_P2P_OVERHEAD`).
    pub const fn bridge(self, pci: f64) -> f64 {
        match self {
            Self::IntelOld | Self::Intel | Self::IntelSapphireRapids | Self::IntelEmeraldRapids => {
                pci * 5.0 / 6.0
            }
            Self::Amd | Self::Arm | Self::Power9 | Self::Zhaoxin => pci,
        }
    }
}

/// What the parts of a host carry, in GB/s one way. Built in by [`LinkRates::of`]; any field may be
/// measured instead.
///
/// ```
/// use maypole::topology::model::bandwidth::{GpuGeneration, Processor, LinkRates};
/// let rates = LinkRates { network: 11.2, ..LinkRates::of(GpuGeneration::Ampere, Processor::Amd) };
/// assert_eq!((rates.link, rates.pci), (20.0, 24.0));
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LinkRates {
    /// One NVLink or XGMI link.
    pub link: f64,
    /// A card's PCI link, and links between PCI switches.
    pub pci: f64,
    /// From a PCI root port through its host bridge.
    pub bridge: f64,
    /// Between two NUMA nodes.
    pub sockets: f64,
    /// What a core moves by itself.
    pub core: f64,
    /// What all cores of a NUMA node move.
    pub memory: f64,
    /// A network card.
    pub network: f64,
}

impl LinkRates {
    /// Cards of `generation` in a host of `processor`s, on a network of 100 Gbit/s.
    ///
    /// Core and memory are what a copy through shared memory takes of a server of these days: 10
    /// GB/s by one core, 100 GB/s by all that share eight channels of DDR4-3200 (204.8 GB/s, of
    /// which a copy reads and writes half each).
    pub const fn of(generation: GpuGeneration, processor: Processor) -> Self {
        let pci = generation.pci();
        Self {
            link: generation.link(),
            pci,
            bridge: processor.bridge(pci),
            sockets: processor.link(),
            core: 10.0,
            memory: 100.0,
            network: network(100.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_as_wide_as_the_table_says() {
        assert_eq!([3, 4, 5, 6].map(|generation| pci(generation, 16)), [12.0, 24.0, 48.0, 96.0]);
        assert_eq!((pci(7, 16), pci(3, 4)), (0.0, 3.0));
        assert_eq!(network(400.0), 50.0);
    }

    #[test]
    fn what_is_known_of_nvlink_is_the_efficiency_within_four_parts_of_a_hundred() {
        for (generation, wire) in [
            (GpuGeneration::Ampere, 25.0),
            (GpuGeneration::Hopper, 25.0),
            (GpuGeneration::Blackwell, 50.0),
        ] {
            assert!((generation.link() / wire / EFFICIENCY - 1.0).abs() < 0.04, "{generation:?}");
        }
    }
}
