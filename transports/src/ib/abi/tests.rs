//! The layouts of the structures, against those of the C header.

use super::*;
use std::mem::{align_of, offset_of, size_of};

/// Asserts the size of a structure, its alignment, and the offsets of some fields.
macro_rules! layout {
    ($of:ty, $size:expr, $align:expr, $($field:ident: $offset:expr),* $(,)?) => {
        assert_eq!((size_of::<$of>(), align_of::<$of>()), ($size, $align), stringify!($of));
        $(assert_eq!(offset_of!($of, $field), $offset, stringify!($field));)*
    };
}

/// The expected numbers were printed by a C program that includes `infiniband/verbs.h`.
#[test]
fn layouts_are_those_of_the_header() {
    layout!(IbvDevice, 664, 8, node_type: 16, transport_type: 20, names: 24, dev_path: 152,
        ibdev_path: 408);
    layout!(IbvContextOps, 256, 8, poll_cq: 88, req_notify_cq: 96, post_send: 200,
        post_recv: 208);
    assert_eq!([offset_of!(IbvContext, ops), offset_of!(IbvContext, async_fd)], [8, 268]);
    layout!(IbvDeviceAttr, 232, 8, fw_ver: 0, guids: 64, max_mr_size: 80, max_qp: 108,
        max_qp_wr: 112, max_sge: 120, max_cq: 128, max_cqe: 132, phys_port_cnt: 227);
    layout!(IbvPortAttr, 52, 4, state: 0, active_mtu: 8, gid_tbl_len: 12, max_msg_sz: 20,
        pkey_tbl_len: 32, lid: 34, active_width: 43, active_speed: 44, phys_state: 45,
        link_layer: 46, flags: 47);
    layout!(IbvGidEntry, 32, 8, gid: 0, gid_index: 16, port_num: 20, gid_type: 24,
        ndev_ifindex: 28);
    layout!(IbvMr, 48, 8, addr: 16, length: 24, handle: 32, lkey: 36, rkey: 40);
    layout!(IbvCompChannel, 16, 8, fd: 8);
    layout!(IbvAsyncEvent, 16, 8, element: 0, event_type: 8);
    assert_eq!(offset_of!(IbvQp, qp_num), 52);
    layout!(IbvQpCap, 20, 4, max_send_wr: 0, max_inline_data: 16);
    layout!(IbvQpInitAttr, 64, 8, qp_context: 0, send_cq: 8, recv_cq: 16, srq: 24, cap: 32,
        qp_type: 52, sq_sig_all: 56);
    layout!(IbvGlobalRoute, 24, 8, dgid: 0, flow_label: 16, sgid_index: 20, hop_limit: 21,
        traffic_class: 22);
    layout!(IbvAhAttr, 32, 8, grh: 0, dlid: 24, sl: 26, is_global: 29, port_num: 30);
    layout!(IbvQpAttr, 144, 8, qp_state: 0, path_mtu: 8, rq_psn: 20, sq_psn: 24,
        dest_qp_num: 28, qp_access_flags: 32, cap: 36, ah_attr: 56, alt_ah_attr: 88,
        pkey_index: 120, max_rd_atomic: 126, max_dest_rd_atomic: 127, min_rnr_timer: 128,
        port_num: 129, timeout: 130, retry_cnt: 131, rnr_retry: 132, rate_limit: 136);
    layout!(IbvSge, 16, 8, addr: 0, length: 8, lkey: 12);
    layout!(IbvSendWr, 128, 8, wr_id: 0, next: 8, sg_list: 16, num_sge: 24, opcode: 28,
        send_flags: 32, imm_data: 36, remote_addr: 40, rkey: 48);
    layout!(IbvRecvWr, 32, 8, wr_id: 0, next: 8, sg_list: 16, num_sge: 24);
    layout!(IbvWc, 48, 8, wr_id: 0, status: 8, opcode: 12, byte_len: 20, imm_data: 24);
}
