// The structures of libibverbs that its callers look into, as `infiniband/verbs.h` declares them.
// The header itself is not needed to build the fake.
#pragma once
#include <cstddef>
#include <cstdint>

struct ibv_device {
    void* ops[2];
    int node_type;
    int transport_type;
    char name[64];
    char dev_name[64];
    char dev_path[256];
    char ibdev_path[256];
};
static_assert(offsetof(ibv_device, transport_type) == 20 && sizeof(ibv_device) == 664);

struct ibv_send_wr;
struct ibv_recv_wr;
struct ibv_wc;

struct ibv_context_ops {
    void* before[11];
    int (*poll_cq)(void* cq, int most, ibv_wc* into);
    int (*req_notify_cq)(void* cq, int solicited_only);
    void* between[12];
    int (*post_send)(void* qp, ibv_send_wr* first, ibv_send_wr** bad);
    int (*post_recv)(void* qp, ibv_recv_wr* first, ibv_recv_wr** bad);
    void* after[5];
};
static_assert(sizeof(ibv_context_ops) == 256);

struct ibv_context {
    ibv_device* device;
    ibv_context_ops ops;
    int cmd_fd;
    int async_fd;
    int num_comp_vectors;
};

struct ibv_device_attr {
    char fw_ver[64];
    uint64_t guids[2];
    uint64_t max_mr_size, page_size_cap;
    uint32_t vendor[3];
    int max_qp, max_qp_wr;
    unsigned device_cap_flags;
    int max_sge[2];
    int max_cq, max_cqe;
    int other_limits[22];
    uint16_t max_pkeys;
    uint8_t local_ca_ack_delay;
    uint8_t phys_port_cnt;
};
static_assert(sizeof(ibv_device_attr) == 232);

struct ibv_port_attr {
    unsigned state, max_mtu, active_mtu;
    int gid_tbl_len;
    uint32_t port_cap_flags, max_msg_sz;
    uint32_t counters[2];
    uint16_t pkey_tbl_len, lid, sm_lid;
    uint8_t lmc_and_manager[5];
    uint8_t active_width, active_speed, phys_state, link_layer, flags;
};

struct ibv_gid_entry {
    uint8_t gid[16];
    uint32_t gid_index, port_num, gid_type, ndev_ifindex;
};
static_assert(sizeof(ibv_gid_entry) == 32);

struct ibv_mr {
    void* owner[2];
    void* addr;
    size_t length;
    uint32_t handle, lkey, rkey;
};

struct ibv_comp_channel {
    ibv_context* context;
    int fd;
    int refcnt;
};

struct ibv_async_event {
    uint64_t element;
    int event_type;
};

struct ibv_qp {
    void* owner[6];
    uint32_t handle, qp_num;
};
static_assert(offsetof(ibv_qp, qp_num) == 52);

struct ibv_qp_cap {
    uint32_t max_send_wr, max_recv_wr, max_send_sge, max_recv_sge, max_inline_data;
};

struct ibv_qp_init_attr {
    void* qp_context;
    void* send_cq;
    void* recv_cq;
    void* srq;
    ibv_qp_cap cap;
    int qp_type;
    int sq_sig_all;
};

struct ibv_ah_attr {
    uint8_t dgid[16];
    uint32_t flow_label;
    uint8_t sgid_index, hop_limit, traffic_class;
    alignas(8) uint16_t dlid;
    uint8_t sl, src_path_bits, static_rate, is_global, port_num;
};
static_assert(offsetof(ibv_ah_attr, is_global) == 29 && sizeof(ibv_ah_attr) == 32);

struct ibv_qp_attr {
    unsigned qp_state, cur_qp_state, path_mtu, path_mig_state;
    uint32_t qkey, rq_psn, sq_psn, dest_qp_num;
    unsigned qp_access_flags;
    ibv_qp_cap cap;
    alignas(8) ibv_ah_attr ah_attr;
    alignas(8) ibv_ah_attr alt_ah_attr;
    uint16_t pkey_index, alt_pkey_index;
    uint8_t draining[2];
    uint8_t max_rd_atomic, max_dest_rd_atomic, min_rnr_timer, port_num, timeout, retry_cnt,
        rnr_retry;
};
static_assert(offsetof(ibv_qp_attr, ah_attr) == 56 && offsetof(ibv_qp_attr, timeout) == 130);

struct ibv_sge {
    uint64_t addr;
    uint32_t length, lkey;
};

struct ibv_send_wr {
    uint64_t wr_id;
    ibv_send_wr* next;
    ibv_sge* sg_list;
    int num_sge;
    unsigned opcode, send_flags;
    uint32_t imm_data;
    uint64_t remote_addr;
    uint32_t rkey;
};

struct ibv_recv_wr {
    uint64_t wr_id;
    ibv_recv_wr* next;
    ibv_sge* sg_list;
    int num_sge;
};

struct ibv_wc {
    uint64_t wr_id;
    unsigned status, opcode;
    uint32_t vendor_err, byte_len, imm_data, qp_num, src_qp;
    unsigned wc_flags;
    uint32_t addressing[2];
};
static_assert(sizeof(ibv_wc) == 48);

enum {
    PORT_ACTIVE = 4,
    LINK_ETHERNET = 2,
    QPS_RESET = 0,
    QPS_INIT = 1,
    QPS_RTR = 2,
    QPS_RTS = 3,
    QPS_ERR = 6,
    ACCESS_REMOTE_WRITE = 2,
    ACCESS_REMOTE_READ = 4,
    WR_WRITE = 0,
    WR_WRITE_WITH_IMM = 1,
    WR_READ = 4,
    SEND_SIGNALED = 2,
    SEND_INLINE = 8,
    WC_SUCCESS = 0,
    WC_LOCAL_PROTECTION = 4,
    WC_FLUSHED = 5,
    WC_REMOTE_ACCESS = 10,
    WC_NO_ANSWER = 12,
    WC_OPCODE_WRITE = 1,
    WC_OPCODE_READ = 2,
    WC_OPCODE_RECV_WITH_IMM = 129,
    WC_HAS_IMM = 2,
    EVENT_CQ_ERR = 0,
    EVENT_QP_FATAL = 1,
    EVENT_QP_ACCESS_ERR = 3,
    EVENT_PORT_ACTIVE = 9,
    EVENT_PORT_ERR = 10,
};
