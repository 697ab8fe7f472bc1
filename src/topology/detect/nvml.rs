//! Information of NVIDIA's driver, through its management library NVML.

use super::{DriverReport, GpuInfo, PeerAccess};
use crate::topology::system::DirectLink;
use nvml_wrapper::enum_wrappers::device::{P2pCapabilitiesIndex, P2pStatus};
use nvml_wrapper::{Device, Nvml};
use std::collections::BTreeMap;

/// The largest number of links of a GPU.
const MOST_LINKS: u32 = 36;

/// Opens `libnvidia-ml.so.1`, and reads its GPUs, by number, and whether each can access the memory of each.
///
/// # Errors
/// The reason as a sentence. Usually the library is missing, because no driver is installed.
pub(super) fn read() -> DriverReport {
    let nvml = Nvml::init().map_err(|error| error.to_string())?;
    let all = 0..nvml.device_count().unwrap_or(0);
    let devices = all.filter_map(|number| nvml.device_by_index(number).ok());
    let known: Vec<(Device, GpuInfo)> =
        devices.filter_map(|device| accelerator(&device).map(|info| (device, info))).collect();
    let peer = |a: usize, b: usize| match a == b {
        true => PeerAccess::Yes,
        false => peer(&known[a].0, &known[b].0),
    };
    let peers = (0..known.len()).map(|a| (0..known.len()).map(|b| peer(a, b)).collect()).collect();
    Ok((known.into_iter().map(|(_, info)| info).collect(), peers))
}

fn peer(a: &Device, b: &Device) -> PeerAccess {
    let status = |which| match a.p2p_status(b, which) {
        Ok(P2pStatus::Ok) => PeerAccess::Yes,
        Ok(P2pStatus::Unknown) | Err(_) => PeerAccess::Unknown,
        Ok(no) => PeerAccess::No(reason(no).to_owned()),
    };
    match (status(P2pCapabilitiesIndex::Read), status(P2pCapabilitiesIndex::Write)) {
        (PeerAccess::Yes | PeerAccess::Unknown, write) => write,
        (read, _) => read,
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
