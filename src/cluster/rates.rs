//! The bandwidths of the parts of a host, and of networks.

use maypole::topology::model::bandwidth::{GpuGeneration, Processor};

/// Returns the bandwidth of a network card of this many Gbit/s: an eighth of that in GB/s.
///
/// ```
/// assert_eq!(maypole_cluster::rates::network(400.0), 50.0);
/// ```
pub const fn network(gigabits: f64) -> f64 {
    gigabits / 8.0
}

/// The bandwidths of the parts of a host, in GB/s in one direction. [`LinkRates::of`] has figures;
/// a measured one may replace each of them.
///
/// ```
/// use maypole::topology::model::bandwidth::{GpuGeneration, Processor};
/// use maypole_cluster::rates::LinkRates;
/// let rates = LinkRates { network: 11.2, ..LinkRates::of(GpuGeneration::Ampere, Processor::Amd) };
/// assert_eq!((rates.link, rates.pci), (20.0, 24.0));
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LinkRates {
    /// One NVLink or XGMI link.
    pub link: f64,
    /// The PCI link of a card, or between PCI switches.
    pub pci: f64,
    /// From a PCI root port through its host bridge.
    pub bridge: f64,
    /// Between two NUMA nodes.
    pub sockets: f64,
    /// One core that copies alone.
    pub core: f64,
    /// All cores of a NUMA node together.
    pub memory: f64,
    /// A network card.
    pub network: f64,
}

impl LinkRates {
    /// Returns the rates of GPUs of `generation` in a host of `processor`s, on a network of
    /// 100 Gbit/s.
    ///
    /// `core` and `memory` are the rates of copies through shared memory on a current server. One
    /// core copies 10 GB/s. All cores of a NUMA node copy 100 GB/s: eight channels of DDR4-3200
    /// carry 204.8 GB/s, and a copy uses half for reading and half for writing.
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
