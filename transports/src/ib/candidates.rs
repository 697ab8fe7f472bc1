//! The ports that connections may use, in order of preference.
//!
//! A host may have a port for its storage in addition to those that reach other hosts, adapters of
//! different rates, and adapters of protocols that connections do not use. Ports are ordered by
//! local properties: their rate, and whether they are attached to the cores that this thread may
//! use. Only a trial shows whether a port reaches the other hosts.

use super::adapter::VerbsSettings;
use super::device::{OpenDevice, VerbsDevice, VerbsPort, devices};
use super::error::VerbsError;
use super::gid::Gid;
use crate::cores::UsableCores;
use std::fmt;
use std::path::Path;

/// An active port that connections may use, and its GID.
#[derive(Clone, Debug)]
pub struct VerbsCandidate {
    pub(super) device: String,
    pub(super) port: VerbsPort,
    pub(super) gid: Gid,
    /// The device is attached to none of the cores that this thread may use.
    is_far: bool,
}

impl fmt::Display for VerbsCandidate {
    /// `port 1 of mlx5_0`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "port {} of {}", self.port.number, self.device)
    }
}

impl VerbsCandidate {
    /// The ports that `settings` allow, at least one. Ordered by rate; then those that are attached
    /// to cores which the calling thread may use; then in the kernel's order.
    ///
    /// # Errors
    /// [`VerbsError`] names the missing part. If the machine has devices, it describes the first
    /// allowed port that cannot be used.
    pub fn all(settings: &VerbsSettings) -> Result<Vec<Self>, VerbsError> {
        let devices = match &settings.device {
            Some(name) => vec![OpenDevice::named(name)?.describe()?],
            None => devices()?,
        };
        let cores = UsableCores::of_this_thread();
        let mut found = Vec::new();
        // An error of a device of InfiniBand or RoCE says more than one of another protocol.
        let (mut error, mut foreign) = (None, None);
        for device in &devices {
            if let Some(protocol) = device.other_protocol {
                foreign.get_or_insert_with(|| other_protocol(&device.name, protocol));
                continue;
            }
            match ports(device, settings) {
                Ok(ports) => {
                    let is_far = !is_near(&device.folder, &cores);
                    let name = &device.name;
                    found.extend(ports.into_iter().map(|(port, gid)| Self {
                        device: name.clone(),
                        port,
                        gid,
                        is_far,
                    }));
                }
                Err(why) => drop(error.get_or_insert(why)),
            }
        }
        if found.is_empty() {
            return Err(error.or(foreign).unwrap_or_else(VerbsError::no_device));
        }
        found.sort_by_key(Self::order);
        Ok(found)
    }

    /// True if the two differ only by name, so that each may serve some ranks.
    pub fn is_as_good_as(&self, other: &Self) -> bool {
        let kind = |of: &Self| (of.order(), of.gid.network());
        kind(self) == kind(other)
    }

    fn order(&self) -> (std::cmp::Reverse<u32>, bool) {
        (std::cmp::Reverse(self.port.rate), self.is_far)
    }
}

/// The active ports of `device` that `settings` allow, each with the GID that it uses.
fn ports(
    device: &VerbsDevice,
    settings: &VerbsSettings,
) -> Result<Vec<(VerbsPort, Gid)>, VerbsError> {
    let name = &device.name;
    let is_allowed = |port: &&VerbsPort| settings.port.is_none_or(|number| number == port.number);
    let allowed: Vec<_> = device.ports.iter().filter(is_allowed).collect();
    let active: Vec<_> = allowed.iter().filter(|port| port.is_active()).collect();
    if active.is_empty() {
        return Err(match (allowed.first(), settings.port) {
            (Some(VerbsPort { number, state, .. }), _) => VerbsError::Unusable(format!(
                "port {number} of {name} is {state}, not active; see to its cable and to its link"
            )),
            (None, Some(port)) => VerbsError::Unusable(format!(
                "{name} has no port {port}; its ports are 1 to {}",
                device.ports.len()
            )),
            (None, None) => VerbsError::no_device(),
        });
    }
    let with_gid = |port: &VerbsPort| Ok((port.clone(), gid(&device.name, port, settings)?));
    let tried: Vec<Result<_, VerbsError>> = active.into_iter().map(|port| with_gid(port)).collect();
    if tried.iter().any(Result::is_ok) {
        return Ok(tried.into_iter().flatten().collect());
    }
    tried.into_iter().collect()
}

fn other_protocol(device: &str, protocol: &str) -> VerbsError {
    VerbsError::Unusable(format!(
        "{device} is {protocol}, and verbs are used over InfiniBand and RoCE alone; \
         MAYPOLE_IB_DEVICE chooses another device"
    ))
}

/// The GID of `port` that connections use.
fn gid(device: &str, port: &VerbsPort, settings: &VerbsSettings) -> Result<Gid, VerbsError> {
    let number = port.number;
    let Some(index) = settings.gid_index else {
        return port.usual_gid().ok_or_else(|| {
            VerbsError::Unusable(format!(
                "port {number} of {device} has no GID that can be used; give its network interface \
                 an address"
            ))
        });
    };
    let gid = port.gids.iter().find(|gid| gid.index == index && index <= 255).copied();
    gid.ok_or_else(|| {
        let found: Vec<_> = port.gids.iter().map(|gid| gid.index.to_string()).collect();
        let found = if found.is_empty() { "none".to_owned() } else { found.join(", ") };
        VerbsError::Unusable(format!(
            "port {number} of {device} has no GID with index {index}; it has {found}"
        ))
    })
}

/// True if the device with this folder in sysfs is attached to one of `cores`, or if the kernel does
/// not report it.
fn is_near(folder: &str, cores: &UsableCores) -> bool {
    let list = std::fs::read_to_string(Path::new(folder).join("device/local_cpulist"));
    let attached = list.map(|list| core_numbers(&list)).unwrap_or_default();
    attached.is_empty() || attached.iter().any(|(first, last)| cores.has_one_of(*first..=*last))
}

/// The ranges of a list of cores as the kernel writes it: `0-3,8,10-11`.
fn core_numbers(list: &str) -> Vec<(u32, u32)> {
    let range = |text: &str| {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        Some((first.parse().ok()?, last.parse().ok()?))
    };
    list.trim().split(',').filter_map(range).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_cores_are_read() {
        assert_eq!(core_numbers("0-3,8,10-11\n"), [(0, 3), (8, 8), (10, 11)]);
        assert_eq!(core_numbers("\n"), []);
        assert_eq!(core_numbers("x,3-"), []);
    }

    #[test]
    fn a_device_is_near_unless_the_kernel_says_otherwise() {
        let folder = std::env::temp_dir().join(format!("maypole-near-{}", std::process::id()));
        let cores = UsableCores::of_this_thread();
        let path = folder.to_str().unwrap();
        assert!(is_near(path, &cores), "there is no file");
        std::fs::create_dir_all(folder.join("device")).unwrap();
        let near = |list: &str| {
            std::fs::write(folder.join("device/local_cpulist"), list).unwrap();
            is_near(path, &cores)
        };
        assert!(near("\n") && near("0-4000000\n") && !near("4000000\n"));
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
