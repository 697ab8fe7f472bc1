//! The RDMA devices of this machine, their ports and the ports' GIDs.

use super::abi::{
    IbvContext, IbvDevice, IbvDeviceAttr, IbvGidEntry, IbvPortAttr, LINK_LAYER_ETHERNET,
    PORT_ACTIVE, TRANSPORT_IB, TRANSPORT_IWARP, TRANSPORTS_USNIC,
};
use super::error::VerbsError;
use super::gid::{Gid, choose};
use super::library::VerbsLibrary;
use crate::fork::OwnerProcess;
use std::ffi::{CStr, c_int};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;

/// A port of a device.
#[derive(Clone, Debug)]
pub struct VerbsPort {
    /// The number, from 1 on.
    pub number: u8,
    /// The state in words: `active`, `down`, ...
    pub state: &'static str,
    /// True if it carries packets of RoCE over Ethernet, false for InfiniBand.
    pub is_ethernet: bool,
    /// Bytes of the longest packet that the port sends now.
    pub mtu: usize,
    /// Mbit/s: the rate of a lane times the number of lanes. 0 if the port reports none.
    pub rate: u32,
    /// The GIDs, by index. Tables have holes.
    pub gids: Vec<Gid>,
    pub(super) lid: u16,
    pub(super) mtu_code: u32,
}

impl VerbsPort {
    /// True if the port is up.
    pub fn is_active(&self) -> bool {
        self.state == STATES[PORT_ACTIVE as usize]
    }

    /// The GID that connections use by default.
    pub fn usual_gid(&self) -> Option<Gid> {
        choose(&self.gids)
    }
}

/// The states of `enum ibv_port_state`.
const STATES: [&str; 6] =
    ["in no known state", "down", "initialising", "armed", "active", "active, but deferred"];

/// Mbit/s of a lane by the code of a speed, and lanes by the code of a width.
const LANE_RATES: [(u8, u32); 8] = [
    (1, 2_500),
    (2, 5_000),
    (4, 10_000),
    (8, 10_000),
    (16, 14_000),
    (32, 25_000),
    (64, 50_000),
    (128, 100_000),
];
const LANES: [(u8, u32); 5] = [(1, 1), (2, 4), (4, 8), (8, 12), (16, 2)];

fn rate(speed: u8, width: u8) -> u32 {
    let meaning = |table: &[(u8, u32)], code: u8| {
        table.iter().find(|(other, _)| *other == code).map_or(0, |(_, number)| *number)
    };
    meaning(&LANE_RATES, speed) * meaning(&LANES, width)
}

/// Most entries of a GID query. The kernel takes at most 65,535 bytes; a port has at most 1,024
/// entries, most of them empty and not reported.
const MOST_GIDS: usize = 65_535 / size_of::<IbvGidEntry>();

/// An RDMA device of this machine.
#[derive(Clone, Debug)]
pub struct VerbsDevice {
    /// The kernel's name for it: `mlx5_0`.
    pub name: String,
    /// Its ports, by number.
    pub ports: Vec<VerbsPort>,
    /// The kind of the device, if neither InfiniBand nor RoCE, with an article: `an iWARP device`.
    /// Verbs are not used on it.
    pub other_protocol: Option<&'static str>,
    /// Its folder in sysfs.
    pub(super) folder: String,
}

/// True if the kernel has made files by which programs reach RDMA devices. Without them the machine
/// has no device, and no library needs to be loaded.
pub fn has_device_files() -> bool {
    std::path::Path::new("/dev/infiniband").exists()
}

/// Returns the RDMA devices of this machine, with ports and GIDs, in the kernel's order.
///
/// ```no_run
/// for device in maypole_transports::ib::devices()? {
///     println!("{}: {} ports", device.name, device.ports.len());
/// }
/// # Ok::<(), maypole_transports::ib::VerbsError>(())
/// ```
///
/// # Errors
/// [`VerbsError`] names the missing part, or the query of a device that fails.
pub fn devices() -> Result<Vec<VerbsDevice>, VerbsError> {
    let list = DeviceList::new()?;
    let devices: Result<Vec<_>, _> =
        list.devices().iter().map(|device| OpenDevice::open(*device)?.describe()).collect();
    match devices {
        Ok(devices) if devices.is_empty() => Err(VerbsError::no_device()),
        devices => devices,
    }
}

/// The library's list of devices. A device may be opened while the list lives.
struct DeviceList {
    library: &'static VerbsLibrary,
    first: NonNull<*mut IbvDevice>,
    count: usize,
}

impl DeviceList {
    fn new() -> Result<Self, VerbsError> {
        let library = VerbsLibrary::get()?;
        let mut count: c_int = 0;
        // SAFETY: the library writes one `int`.
        let first = unsafe { (library.get_device_list)(&mut count) };
        let first = NonNull::new(first);
        let first = first.ok_or_else(|| no_kernel(&io::Error::last_os_error()))?;
        Ok(Self { library, first, count: usize::try_from(count).unwrap_or(0) })
    }

    fn devices(&self) -> &[*mut IbvDevice] {
        // SAFETY: the list has `count` entries and lives as long as `self`.
        unsafe { std::slice::from_raw_parts(self.first.as_ptr(), self.count) }
    }
}

impl Drop for DeviceList {
    fn drop(&mut self) {
        // SAFETY: the list was made by the library and is freed once.
        unsafe { (self.library.free_device_list)(self.first.as_ptr()) };
    }
}

/// An open device. Closed when dropped.
pub(super) struct OpenDevice {
    pub(super) library: &'static VerbsLibrary,
    pub(super) context: NonNull<IbvContext>,
    pub(super) name: String,
    /// The process that opened it. A forked child has the descriptors of its parent, so it must
    /// not close or destroy anything through them.
    pub(super) owner: OwnerProcess,
}

// SAFETY: calls of the library on one context may be made from any thread, and concurrently.
unsafe impl Send for OpenDevice {}
// SAFETY: as above.
unsafe impl Sync for OpenDevice {}

impl OpenDevice {
    /// Opens the device that is called `name`.
    pub(super) fn named(name: &str) -> Result<Self, VerbsError> {
        let list = DeviceList::new()?;
        let names: Vec<_> = list.devices().iter().map(|of| name_of(list.library, *of)).collect();
        match names.iter().position(|found| found == name) {
            Some(at) => Self::open(list.devices()[at]),
            None => {
                let found = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
                Err(VerbsError::Unusable(format!(
                    "there is no RDMA device called {name}; there are {found}"
                )))
            }
        }
    }

    fn open(device: *mut IbvDevice) -> Result<Self, VerbsError> {
        let library = VerbsLibrary::get()?;
        let name = name_of(library, device);
        // SAFETY: the device is of a list that the caller keeps meanwhile.
        let context = NonNull::new(unsafe { (library.open_device)(device) });
        match context {
            Some(context) => Ok(Self { library, context, name, owner: OwnerProcess::current() }),
            None => Err(VerbsError::call("ibv_open_device", &name, &io::Error::last_os_error())),
        }
    }

    /// The error of a call that failed just now, and sets `errno`.
    pub(super) fn last_error(&self, call: &'static str) -> VerbsError {
        VerbsError::call(call, &self.name, &io::Error::last_os_error())
    }

    /// Makes calls on a descriptor of the device not wait.
    pub(super) fn unblock(&self, descriptor: BorrowedFd<'_>) -> Result<(), VerbsError> {
        let unblocked = rustix::io::ioctl_fionbio(descriptor, true);
        unblocked.map_err(|error| VerbsError::call("ioctl", &self.name, &error.into()))
    }

    /// The result of a call that returns 0 or an `errno`.
    pub(super) fn check(&self, call: &'static str, code: c_int) -> Result<(), VerbsError> {
        if code == 0 {
            return Ok(());
        }
        Err(VerbsError::call(call, &self.name, &io::Error::from_raw_os_error(code.abs())))
    }

    fn attributes(&self) -> Result<IbvDeviceAttr, VerbsError> {
        let mut attributes = MaybeUninit::<IbvDeviceAttr>::zeroed();
        // SAFETY: the library writes one such structure.
        let code =
            unsafe { (self.library.query_device)(self.context.as_ptr(), attributes.as_mut_ptr()) };
        self.check("ibv_query_device", code)?;
        // SAFETY: it was written, and zeros are a value, too.
        Ok(unsafe { attributes.assume_init() })
    }

    pub(super) fn describe(&self) -> Result<VerbsDevice, VerbsError> {
        // SAFETY: an open device keeps its entry of the list.
        let listed = unsafe { &*self.context.as_ref().device };
        let folder = listed.ibdev_path.map(|byte| byte as u8);
        let folder = CStr::from_bytes_until_nul(&folder).unwrap_or_default();
        let attributes = self.attributes()?;
        let gids = self.gids()?;
        let ports = (1..=attributes.phys_port_cnt).map(|port| self.port(port, &gids));
        Ok(VerbsDevice {
            name: self.name.clone(),
            ports: ports.collect::<Result<_, _>>()?,
            other_protocol: other_protocol(listed.transport_type),
            folder: folder.to_string_lossy().into_owned(),
        })
    }

    /// True if the port is not active now. False if the query fails.
    pub(super) fn is_port_down(&self, number: u8) -> bool {
        self.port(number, &[]).is_ok_and(|port| !port.is_active())
    }

    /// The GIDs of all ports, each with its port's number.
    pub(super) fn gids(&self) -> Result<Vec<(u8, Gid)>, VerbsError> {
        let mut entries = vec![IbvGidEntry::default(); MOST_GIDS];
        // SAFETY: the library writes at most as many entries of this size.
        let count = unsafe {
            (self.library.query_gid_table)(
                self.context.as_ptr(),
                entries.as_mut_ptr(),
                entries.len(),
                0,
                size_of::<IbvGidEntry>(),
            )
        };
        let count = usize::try_from(count).map_err(|_| {
            let code = i32::try_from(count).unwrap_or(libc::EIO).abs();
            VerbsError::call("ibv_query_gid_table", &self.name, &io::Error::from_raw_os_error(code))
        })?;
        entries.truncate(count);
        Ok(entries.iter().map(|entry| (entry.port_num as u8, Gid::new(entry))).collect())
    }

    pub(super) fn port(&self, number: u8, gids: &[(u8, Gid)]) -> Result<VerbsPort, VerbsError> {
        let mut attributes = MaybeUninit::<IbvPortAttr>::zeroed();
        // SAFETY: the library writes one such structure, or an older and shorter version of it.
        let code = unsafe {
            (self.library.query_port)(self.context.as_ptr(), number, attributes.as_mut_ptr())
        };
        self.check("ibv_query_port", code)?;
        // SAFETY: unwritten bytes are zero, which is a value, too.
        let attributes = unsafe { attributes.assume_init() };
        let gids = gids.iter().filter(|(port, _)| *port == number);
        Ok(VerbsPort {
            number,
            state: STATES.get(attributes.state as usize).copied().unwrap_or(STATES[0]),
            is_ethernet: attributes.link_layer == LINK_LAYER_ETHERNET,
            // 1 stands for 256 bytes, and each next code for twice as many.
            mtu: 128 << attributes.active_mtu.min(8),
            rate: rate(attributes.active_speed, attributes.active_width),
            gids: gids.map(|(_, gid)| *gid).collect(),
            lid: attributes.lid,
            mtu_code: attributes.active_mtu,
        })
    }
}

impl Drop for OpenDevice {
    fn drop(&mut self) {
        if !self.owner.is_current() {
            return;
        }
        // SAFETY: everything that was made in this context keeps the context alive, so it is gone.
        unsafe { (self.library.close_device)(self.context.as_ptr()) };
    }
}

fn name_of(library: &VerbsLibrary, device: *mut IbvDevice) -> String {
    // SAFETY: the device is of a list that the caller keeps meanwhile, and has a name.
    let name = unsafe { CStr::from_ptr((library.get_device_name)(device)) };
    name.to_string_lossy().into_owned()
}

/// The kind of a device with this `enum ibv_transport_type`, if verbs are not used on it.
fn other_protocol(transport: c_int) -> Option<&'static str> {
    match transport {
        TRANSPORT_IB => None,
        TRANSPORT_IWARP => Some("an iWARP device"),
        usnic if TRANSPORTS_USNIC.contains(&usnic) => Some("a usNIC device"),
        _ => Some("a device of another protocol, as EFA is"),
    }
}

fn no_kernel(error: &io::Error) -> VerbsError {
    VerbsError::Unusable(format!(
        "the kernel offers no RDMA devices ({error}); load ib_uverbs and the adapter's module, such \
         as mlx5_ib, or rdma_rxe for an Ethernet interface"
    ))
}

#[cfg(test)]
mod tests {
    use super::rate;

    #[test]
    fn a_rate_is_that_of_all_lanes() {
        assert_eq!(rate(32, 2), 100_000, "EDR");
        assert_eq!(rate(128, 2), 400_000, "NDR");
        assert_eq!(rate(1, 1), 2_500, "as soft-RoCE tells");
        assert_eq!(rate(0, 2), 0);
    }
}
