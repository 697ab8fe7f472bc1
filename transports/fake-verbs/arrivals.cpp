// The receiving end of a queue pair.
#include "fake.h"

#include <cerrno>
#include <cstring>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

namespace fake {

// A packet reaches this end if its network is this port's, and its address one of this port's.
bool Pair::is_addressed_by(const Frame& hello) {
    Device* device = context->device;
    int port = attributes.port_num;
    if (hello.from != attributes.dest_qp_num || hello.to != shown.qp_num) return false;
    if (hello.net != device->number_of("net", port, 0)) return false;
    if (!hello.is_global) return !device->is_ethernet(port) && hello.lid == device->lid(port);
    for (const ibv_gid_entry& entry : device->gids(port)) {
        if (memcmp(entry.gid, hello.gid, sizeof hello.gid) == 0) return true;
    }
    return false;
}

void Pair::accept_peer() {
    int made = accept4(listening_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (made < 0) return;
    Frame hello{};
    // The hello was sent right after the connection was made, so it arrives immediately.
    pollfd wanted{made, POLLIN, 0};
    poll(&wanted, 1, 1000);
    bool is_heard = recv(made, &hello, sizeof hello, 0) == sizeof hello;
    if (is_heard && is_addressed_by(hello)) incoming_ = made;
    else close(made);
}

void Pair::take_frames() {
    while (incoming_ >= 0 && state_ != QPS_ERR) {
        if (held_ && !deliver(*held_)) return;
        held_.reset();
        ssize_t got = recv(incoming_, in_.data(), in_.size(), 0);
        if (got < 0 && errno == EAGAIN) return;
        if (got < (ssize_t)sizeof(Frame)) return close_if_open(incoming_);
        held_ = std::make_unique<Frame>();
        memcpy(held_.get(), in_.data(), sizeof(Frame));
        if (held_->has_immediate && receives_.empty()) context->device->count("receiver_not_ready");
    }
}

// Writes the bytes of a received packet, or keeps them for later. Returns the answer.
unsigned Pair::place(const Frame& frame) {
    const char* payload = in_.data() + sizeof frame;
    Regions& regions = Regions::all();
    bool is_refused = false;
    if (frame.is_read) {
        context->device->count("reads");
        return regions.land(frame.key, frame.address, frame.length) ? WC_SUCCESS : WC_REMOTE_ACCESS;
    }
    if (frame.has_immediate) {
        for (auto& [at, bytes] : unplaced_) {
            regions.write(at.key, at.address, bytes.data(), bytes.size());
        }
        unplaced_.clear();
    } else {
        uint64_t never = ~0ull;
        is_refused = context->device->number_of("refuse", attributes.port_num, 0) != 0
            || placed_++ >= context->device->number_of("takes", attributes.port_num, never);
    }
    if (frame.length == 0) return WC_SUCCESS;
    if (is_refused || !regions.has(frame.key, frame.address, frame.length, ACCESS_REMOTE_WRITE)) {
        return WC_REMOTE_ACCESS;
    }
    if (frame.has_immediate) regions.write(frame.key, frame.address, payload, frame.length);
    else unplaced_.emplace_back(frame, std::vector<char>(payload, payload + frame.length));
    return WC_SUCCESS;
}

// Takes a received packet, if a receive was posted for its immediate data, and acknowledges it.
bool Pair::deliver(const Frame& frame) {
    if (frame.has_immediate && receives_.empty()) return false;
    unsigned status = place(frame);
    if (status == WC_SUCCESS && frame.has_immediate) {
        ibv_wc completion{};
        completion.wr_id = receives_.front();
        completion.opcode = WC_OPCODE_RECV_WITH_IMM;
        completion.byte_len = frame.length;
        completion.imm_data = frame.immediate;
        completion.qp_num = shown.qp_num;
        completion.wc_flags = WC_HAS_IMM;
        receives_.pop_front();
        receives->add(completion);
    } else if (status != WC_SUCCESS) {
        raise(context, EVENT_QP_ACCESS_ERR, (uint64_t)this);
        state_ = QPS_ERR;
    }
    if (send(incoming_, &status, sizeof status, MSG_NOSIGNAL) < 0) close_if_open(incoming_);
    return true;
}

}
