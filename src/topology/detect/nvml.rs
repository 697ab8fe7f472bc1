//! Information of NVIDIA's driver, through its management library NVML.

use super::{GpuDriver, GpuInfo, PeerAccess};
use crate::topology::system::DirectLink;
use nvml_wrapper::Device;
use nvml_wrapper::enum_wrappers::device::{P2pCapabilitiesIndex, P2pStatus};
use std::collections::BTreeMap;

/// The library, opened.
#[derive(Debug)]
pub struct Nvml(nvml_wrapper::Nvml);

/// The largest number of links of a GPU.
const MOST_LINKS: u32 = 36;

impl Nvml {
    /// Opens `libnvidia-ml.so.1`.
    ///
    /// # Errors
    /// The reason as a sentence. Usually the library is missing, because no driver is installed.
    pub fn open() -> Result<Nvml, String> {
        nvml_wrapper::Nvml::init().map(Nvml).map_err(|error| error.to_string())
    }
}

impl GpuDriver for Nvml {
    fn gpus(&self) -> Vec<GpuInfo> {
        let devices = (0..self.0.device_count().unwrap_or(0))
            .filter_map(|number| self.0.device_by_index(number).ok());
        devices.filter_map(|device| accelerator(&device)).collect()
    }

    fn peer(&self, a: usize, b: usize) -> PeerAccess {
        let device =
            |number: usize| self.0.device_by_index(u32::try_from(number).unwrap_or(u32::MAX));
        let status = |which| match device(a).and_then(|a| a.p2p_status(&device(b)?, which)) {
            Ok(P2pStatus::Ok) => PeerAccess::Yes,
            Ok(P2pStatus::Unknown) => PeerAccess::Unknown,
            Ok(no) => PeerAccess::No(reason(no).to_owned()),
            Err(_) => PeerAccess::Unknown,
        };
        match (status(P2pCapabilitiesIndex::Read), status(P2pCapabilitiesIndex::Write)) {
            (PeerAccess::Yes, write) => write,
            (read, PeerAccess::Yes) => read,
            (PeerAccess::Unknown, write) => write,
            (read, _) => read,
        }
    }
}

fn reason(status: P2pStatus) -> &'static str {
    match status {
        P2pStatus::ChipsetNotSupported => "the chipset does not support it",
        P2pStatus::GpuNotSupported => "the GPU does not support it",
        P2pStatus::DisabledByRegkey => "the driver's settings forbid it",
        _ => "it is not supported between these two GPUs",
    }
}

/// The information on a GPU; `None` if its address is unknown.
fn accelerator(device: &Device) -> Option<GpuInfo> {
    let capability = device.cuda_compute_capability().ok();
    Some(GpuInfo {
        bus: device.pci_info().ok()?.bus_id,
        name: device.name().unwrap_or_default(),
        uuid: device.uuid().unwrap_or_default(),
        sm: capability.map(|capability| i64::from(capability.major * 10 + capability.minor)),
        links: links(device),
    })
}

/// The links that are up, counted by their other end.
fn links(device: &Device) -> Vec<DirectLink> {
    let mut counts: BTreeMap<String, u32> = BTreeMap::new();
    for number in 0..MOST_LINKS {
        let link = device.link_wrapper_for(number);
        if link.is_active().unwrap_or(false)
            && let Ok(remote) = link.remote_pci_info()
        {
            *counts.entry(remote.bus_id.to_lowercase()).or_default() += 1;
        }
    }
    counts
        .into_iter()
        .map(|(target, count)| DirectLink { xgmi: false, target, count, class: None })
        .collect()
}
