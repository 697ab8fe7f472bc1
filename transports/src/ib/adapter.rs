//! An adapter: one port of a device, ready for connections.

use super::abi::{ACCESS_ALL, ACCESS_WRITES, IbvMr, IbvPd};
use super::candidates::VerbsCandidate;
use super::device::{OpenDevice, VerbsPort};
use super::error::VerbsError;
use super::events::PortWatch;
use super::gid::Gid;
use super::library::too_old;
use crate::shm::Segment;
use crate::stream::direct::DmaBuf;
use rustix::process::{Resource, getrlimit};
use std::fmt;
use std::io;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// The port of connections, and their treatment of lost packets.
#[derive(Clone, Debug)]
pub struct VerbsSettings {
    /// The device's name; any one if `None`. Of the active ports that are left, the fastest is used.
    pub device: Option<String>,
    /// The port's number, from 1 on; any one if `None`.
    pub port: Option<u8>,
    /// The index of the port's GID; a RoCE v2 entry with an IPv4 address first if `None`.
    pub gid_index: Option<u32>,
    /// The service level of InfiniBand, 0 to 15.
    pub service_level: u8,
    /// The traffic class of the packets, by which switches of RoCE choose queues.
    pub traffic_class: u8,
    /// The index of the partition key.
    pub partition_key_index: u16,
    /// The sender repeats a packet after 4.096 us times 2 to this power, 0 to 31.
    pub timeout: u8,
    /// How often it repeats a packet before the connection is lost, 0 to 7.
    pub retries: u8,
}

impl Default for VerbsSettings {
    /// A packet is repeated 7 times, after 1.07 s each: a switch that fails over, or a subnet
    /// manager that sweeps all ports, is silent for seconds. The service detects processes that
    /// die.
    fn default() -> Self {
        Self {
            device: None,
            port: None,
            gid_index: None,
            service_level: 0,
            traffic_class: 0,
            partition_key_index: 0,
            timeout: 18,
            retries: 7,
        }
    }
}

/// One port of a device with one of its GIDs and a protection domain.
pub struct VerbsAdapter {
    pub(super) device: OpenDevice,
    pub(super) domain: NonNull<IbvPd>,
    pub(super) port: VerbsPort,
    pub(super) gid: Gid,
    pub(super) settings: VerbsSettings,
    pub(super) watch: PortWatch,
    /// Registered segments that connections share.
    shared: Mutex<Vec<Weak<VerbsMemory>>>,
}

// SAFETY: calls of the library on one protection domain may be made from any thread, and
// concurrently.
unsafe impl Send for VerbsAdapter {}
// SAFETY: as above.
unsafe impl Sync for VerbsAdapter {}

impl fmt::Debug for VerbsAdapter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VerbsAdapter")
            .field("device", &self.device.name)
            .field("port", &self.port.number)
            .field("gid", &self.gid)
            .finish_non_exhaustive()
    }
}

impl VerbsAdapter {
    /// Opens the best port that `settings` allow.
    ///
    /// # Errors
    /// [`VerbsError`] if no port can be used.
    pub fn open(settings: VerbsSettings) -> Result<Arc<Self>, VerbsError> {
        let best = VerbsCandidate::all(&settings)?.swap_remove(0);
        Self::open_port(best, settings)
    }

    /// Opens a port of those that the same `settings` allow.
    ///
    /// # Errors
    /// [`VerbsError`] names the call that failed.
    pub fn open_port(
        candidate: VerbsCandidate,
        settings: VerbsSettings,
    ) -> Result<Arc<Self>, VerbsError> {
        let VerbsCandidate { device, port, gid, .. } = candidate;
        let device = OpenDevice::named(&device)?;
        let watch = PortWatch::new(&device)?;
        // SAFETY: the context is open.
        let domain = unsafe { (device.library.alloc_pd)(device.context.as_ptr()) };
        let domain = NonNull::new(domain).ok_or_else(|| device.last_error("ibv_alloc_pd"))?;
        let shared = Mutex::default();
        Ok(Arc::new(Self { device, domain, port, gid, settings, watch, shared }))
    }

    /// The kind of network that the port is of, in words: `RoCE v2 over IPv4`. Ports of different
    /// kinds cannot reach each other.
    pub fn network(&self) -> &'static str {
        self.gid.network()
    }

    /// Checks that so many bytes can be registered at the same time. If the limit of locked memory
    /// is lower, tries whether it applies to this process: the superuser has none.
    ///
    /// # Errors
    /// [`VerbsError`] names the limit.
    pub fn check_memory(self: &Arc<Self>, bytes: usize) -> Result<(), VerbsError> {
        match getrlimit(Resource::Memlock).current {
            Some(limit) if limit < bytes as u64 => {
                let more = usize::try_from(limit).map_or(bytes, |limit| limit + 1);
                let segment = Segment::create(more).map(Arc::new);
                let tried = segment.and_then(|segment| VerbsMemory::of_host(self, segment));
                tried.map(drop).map_err(|error| unregistered(bytes, &error))
            }
            _ => Ok(()),
        }
    }

    /// The registration of `memory` for peers that write to it: one for all connections of this port.
    pub(super) fn register(
        self: &Arc<Self>,
        memory: RegisteredKind,
    ) -> Result<Arc<VerbsMemory>, VerbsError> {
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        shared.retain(|memory| memory.strong_count() > 0);
        let is_same = |of: &Arc<VerbsMemory>| of.kind.address() == memory.address();
        if let Some(memory) = shared.iter().filter_map(Weak::upgrade).find(is_same) {
            return Ok(memory);
        }
        let memory = Arc::new(VerbsMemory::of(self, memory)?);
        shared.push(Arc::downgrade(&memory));
        Ok(memory)
    }

    /// True if the port still has the addresses that connections use. Also true if the query fails.
    pub(super) fn has_address(&self) -> bool {
        let Ok(gids) = self.device.gids() else { return true };
        let Ok(port) = self.device.port(self.port.number, &gids) else { return true };
        port.gids.contains(&self.gid) && port.lid == self.port.lid
    }

    /// Opens the other ports of this rank (rails), for more connections to the same peers. `sharing` ranks of its
    /// host share the ports that are as good as this one, and this rank takes each `sharing`th from this one on,
    /// in the order of [`VerbsCandidate::all`]. Ranks that took ports in turn share none, if there are enough.
    ///
    /// ```no_run
    /// use maypole_transports::ib::{VerbsAdapter, VerbsSettings};
    /// let first = VerbsAdapter::open(VerbsSettings::default())?;
    /// println!("a rank alone may use {} ports", 1 + first.rails(1)?.len());
    /// # Ok::<(), maypole_transports::ib::VerbsError>(())
    /// ```
    ///
    /// # Errors
    /// [`VerbsError`] if a port cannot be opened.
    ///
    /// # Panics
    /// If `sharing` is 0.
    pub fn rails(&self, sharing: usize) -> Result<Vec<Arc<Self>>, VerbsError> {
        let all = VerbsCandidate::all(&self.settings)?;
        let best = all.iter().take_while(|port| port.is_as_good_as(&all[0])).count();
        let is_this = |it: &VerbsCandidate| {
            (&it.device, it.port.number) == (&self.device.name, self.port.number)
        };
        let Some(at) = all[..best].iter().position(is_this) else { return Ok(Vec::new()) };
        let others = (1..best / sharing).map(|rail| all[(at + rail * sharing) % best].clone());
        others.map(|port| Self::open_port(port, self.settings.clone())).collect()
    }
}

impl Drop for VerbsAdapter {
    fn drop(&mut self) {
        if !self.device.owner.is_current() {
            return;
        }
        // SAFETY: every object of this domain keeps the adapter alive, so all have been dropped.
        unsafe { (self.device.library.dealloc_pd)(self.domain.as_ptr()) };
    }
}

/// Memory that can be registered.
pub(super) enum RegisteredKind {
    Host(Arc<Segment>),
    Device(Arc<DmaBuf>),
}

impl RegisteredKind {
    /// The address that this process and its adapter use.
    pub(super) fn address(&self) -> u64 {
        match self {
            Self::Host(segment) => segment.start().as_ptr() as u64,
            Self::Device(buffer) => buffer.address,
        }
    }

    pub(super) fn len(&self) -> usize {
        match self {
            Self::Host(segment) => segment.len(),
            Self::Device(buffer) => buffer.len,
        }
    }
}

/// Memory that a peer may write to, until it is dropped.
pub(super) struct VerbsMemory {
    region: NonNull<IbvMr>,
    // After `region`, which is dropped by hand: the memory outlives its registration.
    pub(super) kind: RegisteredKind,
    adapter: Arc<VerbsAdapter>,
}

// SAFETY: the registration is only read after it was made, and its bytes are a segment's.
unsafe impl Send for VerbsMemory {}
// SAFETY: as above.
unsafe impl Sync for VerbsMemory {}

impl VerbsMemory {
    /// Registers `bytes` zeroed bytes. A forked child does not inherit them.
    pub(super) fn new(adapter: &Arc<VerbsAdapter>, bytes: usize) -> Result<Self, VerbsError> {
        let registered =
            Segment::create(bytes).map(Arc::new).and_then(|it| Self::of_host(adapter, it));
        registered.map_err(|error| unregistered(bytes, &error))
    }

    fn of_host(adapter: &Arc<VerbsAdapter>, segment: Arc<Segment>) -> io::Result<Self> {
        let (library, domain) = (adapter.device.library, adapter.domain.as_ptr());
        let (start, bytes) = (segment.start().as_ptr().cast(), segment.len());
        // SAFETY: the range is mapped, and stays so until after it is deregistered.
        let region = unsafe { (library.reg_mr)(domain, start, bytes, ACCESS_WRITES) };
        let region = NonNull::new(region).ok_or_else(io::Error::last_os_error)?;
        let kind = RegisteredKind::Host(segment);
        Ok(Self { region, kind, adapter: Arc::clone(adapter) })
    }

    fn of(adapter: &Arc<VerbsAdapter>, kind: RegisteredKind) -> Result<Self, VerbsError> {
        let bytes = kind.len();
        let buffer = match &kind {
            RegisteredKind::Host(segment) => {
                let registered = Self::of_host(adapter, Arc::clone(segment));
                return registered.map_err(|error| unregistered(bytes, &error));
            }
            RegisteredKind::Device(buffer) => buffer,
        };
        let (library, domain) = (adapter.device.library, adapter.domain.as_ptr());
        let call = "ibv_reg_dmabuf_mr";
        let register = library.reg_dmabuf_mr.ok_or_else(|| too_old(call))?;
        let (address, file) = (buffer.address, buffer.file.as_raw_fd());
        // SAFETY: the buffer keeps its memory, and stays until after it is deregistered.
        let region = unsafe { register(domain, 0, bytes, address, file, ACCESS_ALL) };
        let region = NonNull::new(region).ok_or_else(|| adapter.device.last_error(call))?;
        Ok(Self { region, kind, adapter: Arc::clone(adapter) })
    }

    /// # Panics
    /// If it is memory of a device.
    pub(super) fn segment(&self) -> &Segment {
        match &self.kind {
            RegisteredKind::Host(segment) => segment,
            RegisteredKind::Device(_) => panic!("no processor reads memory of a device"),
        }
    }

    /// The key by which this process's own requests name the memory.
    pub(super) fn local_key(&self) -> u32 {
        // SAFETY: the registration lives as long as `self`.
        unsafe { (*self.region.as_ptr()).lkey }
    }

    /// The key by which a peer's requests name the memory.
    pub(super) fn remote_key(&self) -> u32 {
        // SAFETY: as above.
        unsafe { (*self.region.as_ptr()).rkey }
    }
}

impl Drop for VerbsMemory {
    fn drop(&mut self) {
        if !self.adapter.device.owner.is_current() {
            return;
        }
        // SAFETY: the queue pair that used the memory is gone, so nothing writes to it any more.
        unsafe { (self.adapter.device.library.dereg_mr)(self.region.as_ptr()) };
    }
}

/// The error of memory that cannot be registered, with the limit that most often forbids it.
fn unregistered(bytes: usize, error: &io::Error) -> VerbsError {
    let limit = match getrlimit(Resource::Memlock).current {
        Some(bytes) => format!("{} KiB", bytes >> 10),
        None => "unlimited".to_owned(),
    };
    VerbsError::Unusable(format!(
        "{bytes} bytes of memory cannot be registered ({error}); the limit of locked memory is \
         {limit}, which 'ulimit -l' or the service's LimitMEMLOCK raises"
    ))
}
