//! Slots in the memory of GPUs, for groups on several hosts whose adapters reach it (GPUDirect).
//!
//! Words stay in memory of each host. A rank's arena has its own slots, which ranks of its host read in place, and a
//! twin of the slots of each rank on another host. An adapter writes a publication from its slot to the twin in the
//! arena of each reader on another host, and the reader's kernel reads it in the memory of its own GPU.

use super::Result;
use super::arena::{Offer, Reached, mailbox_memory};
use super::layout::{ALIGNMENT, Room, Shapes, take};
use super::memory::DeviceMemory;
use super::order::{BesideCapture, stream_aside};
use crate::stream::direct::DmaBuf;
use cudarc::driver::sys::{
    CUdevice_attribute as Attribute, CUmemRangeHandleType, cuMemGetHandleForAddressRange,
};
use cudarc::driver::{CudaContext, CudaStream, DriverError};
use maypole_kernels::cuda::CudaError;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;

/// Where slots lie in the arenas of a group, equal on all ranks.
#[derive(Clone, Debug)]
pub(super) struct SlotLayout {
    /// By rank.
    hosts: Vec<usize>,
    /// The start of each shape among the slots of a rank.
    groups: Vec<usize>,
    /// The start of the slots of messages, and the bytes of those to one rank.
    messages: usize,
    message: usize,
}

impl SlotLayout {
    /// That of ranks on these hosts.
    pub(super) fn new(shapes: &Shapes, hosts: &[usize]) -> Self {
        let bytes = |slots: u32, slot: usize| (slots as usize * slot).next_multiple_of(ALIGNMENT);
        let mut messages = 0;
        let groups = shapes
            .groups
            .iter()
            .map(|it| take(&mut messages, bytes(it.slots, it.slot_bytes())))
            .collect();
        let message = bytes(shapes.messages.slots, shapes.messages.slot_bytes());
        Self { hosts: hosts.to_vec(), groups, messages, message }
    }

    fn are_near(&self, a: usize, b: usize) -> bool {
        self.hosts[a] == self.hosts[b]
    }

    /// The bytes of a rank's own slots.
    fn own(&self) -> usize {
        self.messages + self.hosts.len() * self.message
    }

    /// The bytes of the arena of rank `of`.
    pub(super) fn bytes(&self, of: usize) -> usize {
        let far = (0..self.hosts.len()).filter(|rank| !self.are_near(*rank, of)).count();
        self.own() + far * (self.messages + self.message)
    }

    /// Where the slots of room `room` of rank `writer` begin in its own arena.
    pub(super) fn own_start(&self, room: Room) -> usize {
        match room {
            Room::Group(shape) => self.groups[shape],
            Room::To(peer) | Room::From(peer) => self.messages + peer * self.message,
        }
    }

    /// Where their twin begins in the arena of rank `of`, to which the room leads and which is on another host.
    pub(super) fn twin_start(&self, of: usize, writer: usize, room: Room) -> usize {
        let earlier = (0..writer).filter(|rank| !self.are_near(*rank, of)).count();
        let within = match room {
            Room::Group(shape) => self.groups[shape],
            Room::To(_) | Room::From(_) => self.messages,
        };
        self.own() + earlier * (self.messages + self.message) + within
    }
}

/// The slots of a rank that the others do not reach yet.
#[derive(Debug)]
pub struct PendingSlots {
    pub(super) memory: Arc<DeviceMemory>,
    offer: Offer,
    layout: SlotLayout,
    buffer: Arc<DmaBuf>,
}

impl PendingSlots {
    /// Allocates the arena of rank `me` of the ranks on `hosts`, on the GPU of `stream`, and exports it.
    ///
    /// # Errors
    /// [`CudaError`] if there is no memory, or if the driver exports none.
    pub fn new(
        stream: &Arc<CudaStream>,
        shapes: &Shapes,
        (me, hosts): (usize, &[usize]),
    ) -> Result<Self> {
        let aside = stream_aside(stream)?;
        let layout = SlotLayout::new(shapes, hosts);
        let (memory, offer) = mailbox_memory(&aside, layout.bytes(me))?;
        let (address, len) = (memory.address(), memory.lend().bytes() as usize);
        let buffer = DmaBuf {
            file: export(stream.context(), address, len)?,
            address,
            len,
            lands_late: lands_late(stream.context()),
            memory: Arc::clone(&memory) as _,
        };
        Ok(Self { memory, offer, layout, buffer: Arc::new(buffer) })
    }

    /// True if the driver can export memory of the GPU.
    pub fn can_export(context: &CudaContext) -> bool {
        let supports = context.attribute(Attribute::CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED);
        supports.is_ok_and(|it| it != 0)
    }

    /// How the ranks of this host reach it.
    pub fn offer(&self) -> Offer {
        self.offer
    }

    /// True if all ranks of this host are threads of this process.
    pub(super) fn is_alone(&self, me: usize, offers: &[Offer]) -> bool {
        let near = offers.iter().enumerate().filter(|(rank, _)| self.layout.are_near(*rank, me));
        near.into_iter().all(|(_, offer)| offer.process == offers[me].process)
    }

    /// Reaches those of the ranks of this host, by the offers of all. If it fails for one, `opened` has the others,
    /// which are closed later.
    pub(super) fn connect(
        self,
        context: &Arc<CudaContext>,
        (me, offers): (usize, &[Offer]),
        opened: &mut Vec<Reached>,
    ) -> Result<SlotArena> {
        let Self { layout, buffer, .. } = self;
        let mut near = Vec::new();
        for (rank, offer) in offers.iter().enumerate() {
            let is_other = rank != me && layout.are_near(rank, me);
            match is_other.then(|| Reached::new(context, rank, offer)).transpose() {
                Ok(reached) => near.push(reached),
                Err(error) => {
                    opened.extend(near.into_iter().flatten());
                    return Err(error);
                }
            }
        }
        Ok(SlotArena { layout, me, near, buffer })
    }
}

/// The slots that a rank's kernels read and write.
#[derive(Debug)]
pub(super) struct SlotArena {
    pub(super) layout: SlotLayout,
    me: usize,
    /// By rank: the arenas of the others on this host.
    pub(super) near: Vec<Option<Reached>>,
    /// This rank's.
    pub(super) buffer: Arc<DmaBuf>,
}

impl SlotArena {
    /// Where this rank's kernels reach the slots of `owner` in a room of this rank.
    pub(super) fn address(&self, room: Room, owner: usize) -> u64 {
        let room_of_owner = match room {
            Room::Group(_) => room,
            _ if owner == self.me => room,
            _ => Room::To(self.me),
        };
        let own = self.layout.own_start(room_of_owner) as u64;
        match &self.near[owner] {
            Some(near) => near.address() + own,
            None if owner == self.me => self.buffer.address + own,
            None => {
                let twin = self.layout.twin_start(self.me, owner, room_of_owner);
                self.buffer.address + twin as u64
            }
        }
    }
}

/// The dma-buf of so many bytes of a GPU.
fn export(context: &CudaContext, address: u64, bytes: usize) -> Result<OwnedFd> {
    let failed = |error: DriverError| CudaError::new("exporting memory as a dma-buf", error);
    let _beside = BesideCapture::begin();
    context.bind_to_thread().map_err(failed)?;
    let mut file: RawFd = -1;
    let kind = CUmemRangeHandleType::CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD;
    // SAFETY: the range is an allocation of ours, of whole pages, and the driver writes one descriptor.
    unsafe { cuMemGetHandleForAddressRange((&raw mut file).cast(), address, bytes, kind, 0) }
        .result()
        .map_err(failed)?;
    // SAFETY: the descriptor is new, and ours.
    Ok(unsafe { OwnedFd::from_raw_fd(file) })
}

/// True unless the GPU itself sees writes of adapters in order. As NCCL (`ncclTopoNeedFlush`), before compute
/// capability 9.0, and where words of the host and bytes take different ways: where the GPU uses the page tables of
/// the host, they are joined by NVLink-C2C, and adapters by PCI.
fn lands_late(context: &CudaContext) -> bool {
    let is = |which, expected: fn(i32) -> bool| context.attribute(which).is_ok_and(expected);
    // `CU_GPU_DIRECT_RDMA_WRITES_ORDERING_OWNER`.
    let is_ordered =
        is(Attribute::CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING, |it| it >= 100);
    let is_new = is(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, |it| it >= 9);
    let page_tables = Attribute::CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES;
    !(is_ordered && is_new && is(page_tables, |it| it == 0))
}
