//! The bandwidth of links by technology and generation, in GB/s in one direction.
//!
//! The figures are the bandwidths that a transfer reaches, not the rates of the data sheets. A
//! figure without a source of its own is from NCCL's `src/graph/topo.h` and `topo.cc`.

/// A generation of GPUs.
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

/// The part of an NVLink's signalling rate that a transfer reaches: 20 of 25 GB/s (SM80), 20.6 of
/// 25 (SM90), 40.1 of 50 (SM100).
///
/// It estimates links from their signalling rate alone.
pub const EFFICIENCY: f64 = 0.8;

impl GpuGeneration {
    /// Returns the bandwidth of one NVLink or XGMI link.
    ///
    /// NVLink: NCCL's `topo.h`. XGMI of Vega and MI200: RCCL's `topo.h`. XGMI of MI300X:
    /// [`EFFICIENCY`] times the 64 GB/s of its data sheet (RCCL has 48).
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

    /// Returns the bandwidth of the PCI slot of its cards.
    pub const fn pci(self) -> f64 {
        match self {
            Self::Pascal | Self::Volta => pci(3, 16),
            Self::Ampere | Self::AmpereCard | Self::Vega | Self::Mi200 => pci(4, 16),
            Self::Hopper | Self::Blackwell | Self::Mi300 => pci(5, 16),
        }
    }
}

/// Returns the bandwidth of a PCI link of `lanes` lanes: 12 GB/s for sixteen lanes of generation 3,
/// twice that with each further generation. Zero for an unknown generation.
///
/// NCCL: width x rate / 80, with the rates 15, 30, 60, 120, 240 and 480.
pub const fn pci(generation: u32, lanes: u32) -> f64 {
    let rate = match generation {
        1..=6 => 15_u32 << (generation - 1),
        _ => 0,
    };
    lanes as f64 * rate as f64 / 80.0
}

/// A kind of processor. It sets the bandwidth between sockets and through host bridges.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Processor {
    /// Intel Broadwell and before.
    IntelOld,
    /// Intel Skylake to Ice Lake.
    #[default]
    Intel,
    /// Intel Sapphire Rapids.
    IntelSapphireRapids,
    /// Intel Emerald Rapids and after.
    IntelEmeraldRapids,
    /// AMD Epyc.
    Amd,
    /// Arm, with NCCL's figures.
    Arm,
    /// IBM POWER9.
    Power9,
    /// Zhaoxin.
    Zhaoxin,
}

impl Processor {
    /// Returns the bandwidth between two NUMA nodes. Source: NCCL's `topo.h`.
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

    /// Returns the bandwidth through a host bridge of a PCI link of `pci` GB/s. Intel's host
    /// bridges cut transfers between cards into packets of 64 bytes, which costs a sixth of the
    /// bandwidth (NCCL's `INTEL_P2P_OVERHEAD`).
    pub const fn bridge(self, pci: f64) -> f64 {
        match self {
            Self::IntelOld | Self::Intel | Self::IntelSapphireRapids | Self::IntelEmeraldRapids => {
                pci * 5.0 / 6.0
            }
            Self::Amd | Self::Arm | Self::Power9 | Self::Zhaoxin => pci,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pci_bandwidth_doubles_with_each_generation() {
        assert_eq!([3, 4, 5, 6].map(|generation| pci(generation, 16)), [12.0, 24.0, 48.0, 96.0]);
        assert_eq!((pci(7, 16), pci(3, 4)), (0.0, 3.0));
    }

    #[test]
    fn nvlink_rates_have_the_efficiency_within_4_percent() {
        for (generation, wire) in [
            (GpuGeneration::Ampere, 25.0),
            (GpuGeneration::Hopper, 25.0),
            (GpuGeneration::Blackwell, 50.0),
        ] {
            assert!((generation.link() / wire / EFFICIENCY - 1.0).abs() < 0.04, "{generation:?}");
        }
    }
}
