//! The parts of libibverbs' binary interface that this crate uses, as `infiniband/verbs.h` of
//! rdma-core declares them.
//!
//! Nothing is taken from the header when the crate is built, so no development package is needed. A
//! test compares sizes and offsets with those that a C compiler printed for rdma-core 44 on x86-64.
//! The interface has been stable since `IBVERBS_1.1`: rdma-core only adds symbols and appends
//! fields to structures that the library allocates itself.

use std::ffi::{c_char, c_int, c_uint, c_void};

/// `struct ibv_device`.
#[repr(C)]
pub(super) struct IbvDevice {
    ops: [*mut c_void; 2],
    node_type: c_int,
    pub(super) transport_type: c_int,
    names: [[c_char; 64]; 2],
    dev_path: [c_char; 256],
    pub(super) ibdev_path: [c_char; 256],
}

/// `IBV_TRANSPORT_IB`: InfiniBand, and RoCE, which has its packets.
pub(super) const TRANSPORT_IB: c_int = 0;
/// `IBV_TRANSPORT_IWARP`.
pub(super) const TRANSPORT_IWARP: c_int = 1;
/// `IBV_TRANSPORT_USNIC` and `IBV_TRANSPORT_USNIC_UDP`.
pub(super) const TRANSPORTS_USNIC: [c_int; 2] = [2, 3];

/// `struct ibv_pd`: a protection domain.
#[repr(C)]
pub(super) struct IbvPd {
    _private: [u8; 0],
}

/// `struct ibv_cq`: a completion queue.
#[repr(C)]
pub(super) struct IbvCq {
    _private: [u8; 0],
}

/// The first field of `struct ibv_context`. The functions of the data path are no symbols of the
/// library: `verbs.h` calls them through this table, which the device's driver fills.
#[repr(C)]
pub(super) struct IbvContextOps {
    before: [*mut c_void; 11],
    pub(super) poll_cq: unsafe extern "C" fn(*mut IbvCq, c_int, *mut IbvWc) -> c_int,
    pub(super) req_notify_cq: unsafe extern "C" fn(*mut IbvCq, c_int) -> c_int,
    between: [*mut c_void; 12],
    pub(super) post_send:
        unsafe extern "C" fn(*mut IbvQp, *mut IbvSendWr, *mut *mut IbvSendWr) -> c_int,
    pub(super) post_recv:
        unsafe extern "C" fn(*mut IbvQp, *mut IbvRecvWr, *mut *mut IbvRecvWr) -> c_int,
    after: [*mut c_void; 5],
}

/// `struct ibv_context`, up to the last field that is used.
#[repr(C)]
pub(super) struct IbvContext {
    pub(super) device: *mut IbvDevice,
    pub(super) ops: IbvContextOps,
    cmd_fd: c_int,
    pub(super) async_fd: c_int,
}

/// `struct ibv_device_attr`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct IbvDeviceAttr {
    pub(super) fw_ver: [c_char; 64],
    pub(super) guids: [u64; 2],
    pub(super) max_mr_size: u64,
    page_size_cap: u64,
    vendor: [u32; 3],
    pub(super) max_qp: c_int,
    pub(super) max_qp_wr: c_int,
    device_cap_flags: c_uint,
    max_sge: [c_int; 2],
    max_cq: c_int,
    pub(super) max_cqe: c_int,
    other_limits: [c_int; 22],
    max_pkeys: u16,
    local_ca_ack_delay: u8,
    pub(super) phys_port_cnt: u8,
}

/// `struct ibv_port_attr`. The library writes an older, shorter version of it.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct IbvPortAttr {
    pub(super) state: c_uint,
    max_mtu: c_uint,
    pub(super) active_mtu: c_uint,
    pub(super) gid_tbl_len: c_int,
    port_cap_flags: u32,
    pub(super) max_msg_sz: u32,
    counters: [u32; 2],
    pub(super) pkey_tbl_len: u16,
    pub(super) lid: u16,
    sm_lid: u16,
    lmc_and_manager: [u8; 5],
    pub(super) active_width: u8,
    pub(super) active_speed: u8,
    phys_state: u8,
    pub(super) link_layer: u8,
    flags: u8,
    port_cap_flags2: u16,
    appended: u16,
}

/// `IBV_PORT_ACTIVE`.
pub(super) const PORT_ACTIVE: c_uint = 4;
/// `IBV_LINK_LAYER_ETHERNET`.
pub(super) const LINK_LAYER_ETHERNET: u8 = 2;

/// `struct ibv_gid_entry`.
#[repr(C, align(8))]
#[derive(Clone, Copy, Default)]
pub(super) struct IbvGidEntry {
    pub(super) gid: [u8; 16],
    pub(super) gid_index: u32,
    pub(super) port_num: u32,
    pub(super) gid_type: u32,
    pub(super) ndev_ifindex: u32,
}

/// `IBV_GID_TYPE_ROCE_V1`.
pub(super) const GID_ROCE_V1: u32 = 1;
/// `IBV_GID_TYPE_ROCE_V2`.
pub(super) const GID_ROCE_V2: u32 = 2;

/// `struct ibv_mr`: registered memory.
#[repr(C)]
pub(super) struct IbvMr {
    owner: [*mut c_void; 2],
    addr: *mut c_void,
    length: usize,
    handle: u32,
    pub(super) lkey: u32,
    pub(super) rkey: u32,
}

/// `IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE`.
pub(super) const ACCESS_WRITES: c_int = 1 | 2;

/// The same, and `IBV_ACCESS_REMOTE_READ`.
pub(super) const ACCESS_ALL: c_int = ACCESS_WRITES | 4;

/// `struct ibv_comp_channel`.
#[repr(C)]
pub(super) struct IbvCompChannel {
    context: *mut IbvContext,
    pub(super) fd: c_int,
    refcnt: c_int,
}

/// `struct ibv_async_event`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct IbvAsyncEvent {
    /// A pointer to the event's object, or the number of a port in the first bytes.
    pub(super) element: u64,
    pub(super) event_type: c_uint,
}

/// `IBV_EVENT_CQ_ERR`.
pub(super) const EVENT_CQ_ERR: c_uint = 0;
/// `IBV_EVENT_QP_FATAL`.
pub(super) const EVENT_QP_FATAL: c_uint = 1;
/// `IBV_EVENT_QP_REQ_ERR`.
pub(super) const EVENT_QP_REQ_ERR: c_uint = 2;
/// `IBV_EVENT_QP_ACCESS_ERR`.
pub(super) const EVENT_QP_ACCESS_ERR: c_uint = 3;
/// `IBV_EVENT_LID_CHANGE`.
pub(super) const EVENT_LID_CHANGE: c_uint = 11;
/// `IBV_EVENT_GID_CHANGE`.
pub(super) const EVENT_GID_CHANGE: c_uint = 18;
/// `IBV_EVENT_DEVICE_FATAL`.
pub(super) const EVENT_DEVICE_FATAL: c_uint = 8;
/// `IBV_EVENT_PORT_ACTIVE`.
pub(super) const EVENT_PORT_ACTIVE: c_uint = 9;
/// `IBV_EVENT_PORT_ERR`.
pub(super) const EVENT_PORT_ERR: c_uint = 10;

/// `struct ibv_qp`, up to the last field that is used.
#[repr(C)]
pub(super) struct IbvQp {
    owner: [*mut c_void; 6],
    handle: u32,
    pub(super) qp_num: u32,
}

/// `struct ibv_qp_cap`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct IbvQpCap {
    pub(super) max_send_wr: u32,
    pub(super) max_recv_wr: u32,
    pub(super) max_send_sge: u32,
    pub(super) max_recv_sge: u32,
    pub(super) max_inline_data: u32,
}

/// `struct ibv_qp_init_attr`.
#[repr(C)]
pub(super) struct IbvQpInitAttr {
    pub(super) qp_context: *mut c_void,
    pub(super) send_cq: *mut IbvCq,
    pub(super) recv_cq: *mut IbvCq,
    pub(super) srq: *mut c_void,
    pub(super) cap: IbvQpCap,
    pub(super) qp_type: c_uint,
    pub(super) sq_sig_all: c_int,
}

/// `IBV_QPT_RC`: a reliable connection.
pub(super) const QPT_RC: c_uint = 2;

/// `struct ibv_global_route`.
#[repr(C, align(8))]
#[derive(Clone, Copy, Default)]
pub(super) struct IbvGlobalRoute {
    pub(super) dgid: [u8; 16],
    pub(super) flow_label: u32,
    pub(super) sgid_index: u8,
    pub(super) hop_limit: u8,
    pub(super) traffic_class: u8,
}

/// `struct ibv_ah_attr`: the way to a peer's port.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct IbvAhAttr {
    pub(super) grh: IbvGlobalRoute,
    pub(super) dlid: u16,
    pub(super) sl: u8,
    pub(super) src_path_bits: u8,
    pub(super) static_rate: u8,
    pub(super) is_global: u8,
    pub(super) port_num: u8,
}

/// `struct ibv_qp_attr`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct IbvQpAttr {
    pub(super) qp_state: c_uint,
    pub(super) cur_qp_state: c_uint,
    pub(super) path_mtu: c_uint,
    pub(super) path_mig_state: c_uint,
    pub(super) qkey: u32,
    pub(super) rq_psn: u32,
    pub(super) sq_psn: u32,
    pub(super) dest_qp_num: u32,
    pub(super) qp_access_flags: c_uint,
    pub(super) cap: IbvQpCap,
    pub(super) ah_attr: IbvAhAttr,
    pub(super) alt_ah_attr: IbvAhAttr,
    pub(super) pkey_index: u16,
    pub(super) alt_pkey_index: u16,
    pub(super) draining: [u8; 2],
    pub(super) max_rd_atomic: u8,
    pub(super) max_dest_rd_atomic: u8,
    pub(super) min_rnr_timer: u8,
    pub(super) port_num: u8,
    pub(super) timeout: u8,
    pub(super) retry_cnt: u8,
    pub(super) rnr_retry: u8,
    pub(super) alt_port: [u8; 2],
    pub(super) rate_limit: u32,
}

/// `IBV_QPS_INIT`, `IBV_QPS_RTR` and `IBV_QPS_RTS`: the states of a queue pair on its way to send.
pub(super) const QPS_INIT: c_uint = 1;
pub(super) const QPS_RTR: c_uint = 2;
pub(super) const QPS_RTS: c_uint = 3;

/// The fields that each step of [`IbvQpAttr`] names: `enum ibv_qp_attr_mask`.
pub(super) mod mask {
    use std::ffi::c_int;

    const STATE: c_int = 1;
    const ACCESS_FLAGS: c_int = 8;
    const PKEY_INDEX: c_int = 16;
    const PORT: c_int = 32;
    const AV: c_int = 128;
    const PATH_MTU: c_int = 256;
    const TIMEOUT: c_int = 512;
    const RETRY_CNT: c_int = 1024;
    const RNR_RETRY: c_int = 2048;
    const RQ_PSN: c_int = 4096;
    const MAX_QP_RD_ATOMIC: c_int = 8192;
    const MIN_RNR_TIMER: c_int = 32_768;
    const SQ_PSN: c_int = 65_536;
    const MAX_DEST_RD_ATOMIC: c_int = 131_072;
    const DEST_QPN: c_int = 1_048_576;

    pub(in crate::ib) const TO_INIT: c_int = STATE | PKEY_INDEX | PORT | ACCESS_FLAGS;
    pub(in crate::ib) const TO_RTR: c_int =
        STATE | AV | PATH_MTU | DEST_QPN | RQ_PSN | MAX_DEST_RD_ATOMIC | MIN_RNR_TIMER;
    pub(in crate::ib) const TO_RTS: c_int =
        STATE | TIMEOUT | RETRY_CNT | RNR_RETRY | SQ_PSN | MAX_QP_RD_ATOMIC;
}

/// `struct ibv_sge`: a range of registered memory.
#[repr(C)]
pub(super) struct IbvSge {
    pub(super) addr: u64,
    pub(super) length: u32,
    pub(super) lkey: u32,
}

/// `struct ibv_send_wr`, as a write to a peer's memory has it.
#[repr(C)]
pub(super) struct IbvSendWr {
    pub(super) wr_id: u64,
    pub(super) next: *mut IbvSendWr,
    pub(super) sg_list: *mut IbvSge,
    pub(super) num_sge: c_int,
    pub(super) opcode: c_uint,
    pub(super) send_flags: c_uint,
    /// In network byte order.
    pub(super) imm_data: u32,
    pub(super) remote_addr: u64,
    pub(super) rkey: u32,
    pub(super) rest: [u64; 9],
}

/// `IBV_WR_RDMA_WRITE`.
pub(super) const WRITE: c_uint = 0;
/// `IBV_WR_RDMA_WRITE_WITH_IMM`.
pub(super) const WRITE_WITH_IMM: c_uint = 1;
/// `IBV_WR_RDMA_READ`.
pub(super) const READ: c_uint = 4;
/// `IBV_SEND_SIGNALED`.
pub(super) const SEND_SIGNALED: c_uint = 2;
/// `IBV_SEND_INLINE`.
pub(super) const SEND_INLINE: c_uint = 8;

/// `struct ibv_recv_wr`.
#[repr(C)]
pub(super) struct IbvRecvWr {
    pub(super) wr_id: u64,
    pub(super) next: *mut IbvRecvWr,
    pub(super) sg_list: *mut IbvSge,
    pub(super) num_sge: c_int,
}

/// `struct ibv_wc`: a completion.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct IbvWc {
    pub(super) wr_id: u64,
    pub(super) status: c_uint,
    pub(super) opcode: c_uint,
    vendor_err: u32,
    pub(super) byte_len: u32,
    /// In network byte order.
    pub(super) imm_data: u32,
    qp_num: u32,
    src_qp: u32,
    wc_flags: c_uint,
    addressing: [u32; 2],
}

/// `IBV_WC_SUCCESS`.
pub(super) const WC_SUCCESS: c_uint = 0;
/// `IBV_WC_WR_FLUSH_ERR`: the queue pair failed before this request was looked at.
pub(super) const WC_FLUSHED: c_uint = 5;
/// `IBV_WC_REM_ACCESS_ERR`: the peer's memory does not allow the write.
pub(super) const WC_REFUSED: c_uint = 10;
/// `IBV_WC_RETRY_EXC_ERR`: no response of the peer's adapter.
pub(super) const WC_NO_ANSWER: c_uint = 12;
/// `IBV_WC_RECV_RDMA_WITH_IMM`.
pub(super) const WC_RECV_WITH_IMM: c_uint = 129;

#[cfg(all(test, target_pointer_width = "64"))]
mod tests;
