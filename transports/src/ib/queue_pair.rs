//! Queue pairs: reliable connections between two adapters.

use super::abi::{
    ACCESS_ALL, IbvAhAttr, IbvCompChannel, IbvCq, IbvGlobalRoute, IbvQp, IbvQpAttr, IbvQpCap,
    IbvQpInitAttr, IbvRecvWr, IbvSendWr, IbvSge, IbvWc, QPS_INIT, QPS_RTR, QPS_RTS, QPT_RC,
    SEND_INLINE, SEND_SIGNALED, mask,
};
use super::adapter::VerbsAdapter;
use super::error::VerbsError;
use bytemuck::{Pod, Zeroable};
use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;

/// The completions that one poll takes at most.
pub(super) const BATCH: usize = 16;
/// Bytes that a request may hold itself, so that the adapter need not fetch them. The first size
/// that the adapter accepts is used.
const INLINE: [u32; 4] = [128, 64, 32, 0];

/// The address of a queue pair and its memory, for the peer.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Pod, Zeroable)]
#[repr(C)]
pub(super) struct QueuePairAddress {
    pub(super) gid: [u8; 16],
    pub(super) number: u32,
    pub(super) first_packet: u32,
    pub(super) lid: u16,
    pub(super) mtu_code: u16,
}

/// A write to the peer's memory, or a read from there.
pub(super) struct RemoteWrite {
    /// The identifier of its completion.
    pub(super) id: u64,
    /// This process's bytes.
    pub(super) from: u64,
    pub(super) len: u32,
    /// The processor may read them, so that a request can hold some.
    pub(super) may_inline: bool,
    pub(super) local_key: u32,
    /// Where they go in the peer's memory.
    pub(super) to: u64,
    pub(super) remote_key: u32,
    /// Data for a completion of the peer. `None`: the peer's adapter reports nothing.
    pub(super) immediate: Option<u32>,
}

/// The queue of completions of one queue pair, and the channel that wakes the waiting thread.
pub(super) struct CompletionQueue {
    queue: NonNull<IbvCq>,
    channel: NonNull<IbvCompChannel>,
    adapter: Arc<VerbsAdapter>,
    /// The next completion makes an event.
    armed: bool,
    /// Events that were taken and not acknowledged.
    unacknowledged: u32,
}

impl CompletionQueue {
    fn new(adapter: &Arc<VerbsAdapter>, entries: usize) -> Result<Self, VerbsError> {
        let device = &adapter.device;
        let context = device.context.as_ptr();
        // SAFETY: the context is open.
        let channel = NonNull::new(unsafe { (device.library.create_comp_channel)(context) });
        let channel = channel.ok_or_else(|| device.last_error("ibv_create_comp_channel"))?;
        let entries = i32::try_from(entries).unwrap_or(i32::MAX);
        // SAFETY: the channel is of this context, and is destroyed after the queue.
        let queue = unsafe {
            (device.library.create_cq)(context, entries, null_mut(), channel.as_ptr(), 0)
        };
        let Some(queue) = NonNull::new(queue) else {
            let error = device.last_error("ibv_create_cq");
            // SAFETY: nothing uses the channel.
            unsafe { (device.library.destroy_comp_channel)(channel.as_ptr()) };
            return Err(error);
        };
        let made =
            Self { queue, channel, adapter: Arc::clone(adapter), armed: false, unacknowledged: 0 };
        device.unblock(made.descriptor())?;
        Ok(made)
    }

    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        // SAFETY: the descriptor is open as long as the channel lives.
        unsafe { BorrowedFd::borrow_raw((*self.channel.as_ptr()).fd) }
    }

    /// Takes completions without waiting; returns their number. Makes no system call.
    pub(super) fn poll(&mut self, into: &mut [IbvWc; BATCH]) -> io::Result<usize> {
        let queue = self.queue.as_ptr();
        // SAFETY: the context lives, and `into` has room for so many completions.
        let count = unsafe {
            let poll_cq = self.adapter.device.context.as_ref().ops.poll_cq;
            poll_cq(queue, BATCH as i32, into.as_mut_ptr())
        };
        self.armed &= count == 0;
        usize::try_from(count).map_err(|_| io::Error::other("the completion queue has failed"))
    }

    /// Makes the next completion an event of the descriptor. One that came before makes none, so the
    /// caller polls once more.
    pub(super) fn arm(&mut self) -> io::Result<()> {
        if self.armed {
            return Ok(());
        }
        self.take_events();
        let queue = self.queue.as_ptr();
        // SAFETY: the context and its queue live.
        let code = unsafe {
            let req_notify_cq = self.adapter.device.context.as_ref().ops.req_notify_cq;
            req_notify_cq(queue, 0)
        };
        if code != 0 {
            return Err(io::Error::from_raw_os_error(code.abs()));
        }
        self.armed = true;
        Ok(())
    }

    /// Takes all pending events, so that the descriptor is no longer readable.
    fn take_events(&mut self) {
        let library = self.adapter.device.library;
        let mut queue = null_mut();
        let mut own = null_mut();
        // SAFETY: the channel lives, its descriptor does not block, and both places are writable.
        while unsafe { (library.get_cq_event)(self.channel.as_ptr(), &mut queue, &mut own) } == 0 {
            self.unacknowledged += 1;
        }
    }
}

impl Drop for CompletionQueue {
    fn drop(&mut self) {
        if !self.adapter.device.owner.is_current() {
            return;
        }
        self.take_events();
        let library = self.adapter.device.library;
        // SAFETY: the queue pair is gone. A queue is destroyed once all its events are
        // acknowledged, and its channel after it.
        unsafe {
            (library.ack_cq_events)(self.queue.as_ptr(), self.unacknowledged);
            (library.destroy_cq)(self.queue.as_ptr());
            (library.destroy_comp_channel)(self.channel.as_ptr());
        }
        self.adapter.watch.forget(self.queue.as_ptr() as u64);
    }
}

/// One end of a reliable connection.
pub(super) struct QueuePair {
    pair: NonNull<IbvQp>,
    inline: u32,
    first_packet: u32,
    pub(super) completions: CompletionQueue,
}

// SAFETY: one thread at a time uses a queue pair and its completion queue, by `&mut self`.
unsafe impl Send for QueuePair {}

impl QueuePair {
    /// Makes a queue pair with room for `sends` and `receives` requests that are not complete.
    pub(super) fn new(
        adapter: &Arc<VerbsAdapter>,
        sends: usize,
        receives: usize,
        first_packet: u32,
    ) -> Result<Self, VerbsError> {
        let completions = CompletionQueue::new(adapter, sends + receives)?;
        let queue = completions.queue.as_ptr();
        let wanted = |inline| IbvQpInitAttr {
            qp_context: null_mut(),
            send_cq: queue,
            recv_cq: queue,
            srq: null_mut(),
            cap: IbvQpCap {
                max_send_wr: sends as u32,
                max_recv_wr: receives as u32,
                max_send_sge: 1,
                max_recv_sge: 1,
                max_inline_data: inline,
            },
            qp_type: QPT_RC,
            sq_sig_all: 0,
        };
        let device = &adapter.device;
        let made = INLINE.into_iter().find_map(|inline| {
            let mut wanted = wanted(inline);
            // SAFETY: domain and queue live as long as the pair, and the structure is whole.
            let pair = unsafe { (device.library.create_qp)(adapter.domain.as_ptr(), &mut wanted) };
            Some((NonNull::new(pair)?, wanted.cap.max_inline_data))
        });
        let (pair, inline) = made.ok_or_else(|| device.last_error("ibv_create_qp"))?;
        let mut made = Self { pair, inline, first_packet: first_packet & 0xFF_FFFF, completions };
        made.initialise()?;
        Ok(made)
    }

    fn adapter(&self) -> &VerbsAdapter {
        &self.completions.adapter
    }

    pub(super) fn address(&self) -> QueuePairAddress {
        let adapter = self.adapter();
        QueuePairAddress {
            // SAFETY: the pair lives.
            number: unsafe { self.pair.as_ref().qp_num },
            first_packet: self.first_packet,
            lid: adapter.port.lid,
            mtu_code: adapter.port.mtu_code as u16,
            gid: adapter.gid.bytes,
        }
    }

    /// The pair and its completion queue, as asynchronous events name them.
    pub(super) fn elements(&self) -> [u64; 2] {
        [self.pair.as_ptr() as u64, self.completions.queue.as_ptr() as u64]
    }

    fn modify(&mut self, mut to: IbvQpAttr, mask: i32) -> Result<(), VerbsError> {
        let device = &self.completions.adapter.device;
        // SAFETY: the pair lives, and the structure is whole.
        let code = unsafe { (device.library.modify_qp)(self.pair.as_ptr(), &mut to, mask) };
        device.check("ibv_modify_qp", code)
    }

    fn initialise(&mut self) -> Result<(), VerbsError> {
        let adapter = self.adapter();
        let to = IbvQpAttr {
            qp_state: QPS_INIT,
            pkey_index: adapter.settings.partition_key_index,
            port_num: adapter.port.number,
            // Each memory allows what it was registered for.
            qp_access_flags: ACCESS_ALL as u32,
            ..IbvQpAttr::default()
        };
        self.modify(to, mask::TO_INIT)
    }

    /// Connects to the pair at `peer`, which connects to this one.
    pub(super) fn connect(&mut self, peer: &QueuePairAddress) -> Result<(), VerbsError> {
        let adapter = self.adapter();
        let settings = adapter.settings.clone();
        let route = IbvGlobalRoute {
            dgid: peer.gid,
            sgid_index: adapter.gid.index as u8,
            hop_limit: 64,
            traffic_class: settings.traffic_class,
            ..IbvGlobalRoute::default()
        };
        let way = IbvAhAttr {
            grh: route,
            dlid: peer.lid,
            sl: settings.service_level,
            is_global: u8::from(self.needs_global_header(peer)),
            port_num: adapter.port.number,
            ..IbvAhAttr::default()
        };
        let ready_to_receive = IbvQpAttr {
            qp_state: QPS_RTR,
            path_mtu: u32::from(peer.mtu_code).min(adapter.port.mtu_code),
            dest_qp_num: peer.number,
            rq_psn: peer.first_packet,
            ah_attr: way,
            max_dest_rd_atomic: 1,
            // 0.64 ms.
            min_rnr_timer: 12,
            ..IbvQpAttr::default()
        };
        let ready_to_send = IbvQpAttr {
            qp_state: QPS_RTS,
            sq_psn: self.first_packet,
            timeout: settings.timeout,
            retry_cnt: settings.retries,
            // Unlimited: a peer that has not posted a receive is late, but not dead.
            rnr_retry: 7,
            max_rd_atomic: 1,
            ..IbvQpAttr::default()
        };
        self.modify(ready_to_receive, mask::TO_RTR)?;
        self.modify(ready_to_send, mask::TO_RTS)
    }

    /// True if packets to `peer` are addressed by GIDs. RoCE has no other addresses, and InfiniBand
    /// needs them between subnets. Within a subnet they would be 40 bytes of every packet.
    fn needs_global_header(&self, peer: &QueuePairAddress) -> bool {
        let adapter = self.adapter();
        adapter.port.is_ethernet || peer.lid == 0 || adapter.gid.bytes[..8] != peer.gid[..8]
    }

    /// Posts a receive without memory: it takes the immediate data of a write.
    pub(super) fn post_receive(&mut self) -> io::Result<()> {
        let mut request = IbvRecvWr { wr_id: 0, next: null_mut(), sg_list: null_mut(), num_sge: 0 };
        let mut bad = null_mut();
        // SAFETY: the pair lives, and the driver copies the request.
        let code = unsafe {
            let post_recv = self.adapter().device.context.as_ref().ops.post_recv;
            post_recv(self.pair.as_ptr(), &mut request, &mut bad)
        };
        posted(code)
    }

    /// Posts a write to the peer's memory. Its bytes must not change before it is complete. With the opcode
    /// [`READ`](super::abi::READ) it is a read of the peer's memory at `write.to` into that at `write.from`.
    ///
    /// # Safety
    /// `write.from` names `write.len` bytes of registered memory of `write.local_key`. Nothing uses those of a
    /// read before it is complete.
    pub(super) unsafe fn post(&mut self, write: &RemoteWrite, opcode: u32) -> io::Result<()> {
        let mut range = IbvSge { addr: write.from, length: write.len, lkey: write.local_key };
        let is_inline = write.may_inline && write.len <= self.inline;
        let inline = if is_inline { SEND_INLINE } else { 0 };
        let mut request = IbvSendWr {
            wr_id: write.id,
            next: null_mut(),
            sg_list: &mut range,
            num_sge: i32::from(write.len > 0),
            opcode,
            send_flags: SEND_SIGNALED | inline,
            imm_data: write.immediate.unwrap_or_default().to_be(),
            remote_addr: write.to,
            rkey: write.remote_key,
            rest: [0; 9],
        };
        let mut bad = null_mut();
        // SAFETY: the pair lives, and the driver copies request and range. The caller vouches for
        // the bytes.
        let code = unsafe {
            let post_send = self.adapter().device.context.as_ref().ops.post_send;
            post_send(self.pair.as_ptr(), &mut request, &mut bad)
        };
        posted(code)
    }
}

impl Drop for QueuePair {
    fn drop(&mut self) {
        if !self.adapter().device.owner.is_current() {
            return;
        }
        // SAFETY: the pair was made by the library and is destroyed once, before its queue.
        unsafe { (self.adapter().device.library.destroy_qp)(self.pair.as_ptr()) };
        self.adapter().watch.forget(self.pair.as_ptr() as u64);
    }
}

fn posted(code: i32) -> io::Result<()> {
    if code == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(code.abs())) }
}
