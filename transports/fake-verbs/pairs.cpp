// Queue pairs. Each has a thread and, by its number, a socket in the kernel's abstract namespace.
// The thread of the end that writes copies from registered memory into a packet of that socket. The
// thread at the other end copies it into the memory that the key names, and acknowledges. So two
// ends may be in one process or in two, and the end of a process is detected.
#include "fake.h"

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <poll.h>
#include <random>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

namespace fake {

namespace {

constexpr size_t LONGEST = 1 << 17;
constexpr auto BETWEEN_ATTEMPTS = std::chrono::milliseconds(2);
// `enum ibv_qp_attr_mask`.
constexpr int STATE = 1, AV = 128, TIMEOUT = 512;

socklen_t address_of(uint32_t number, sockaddr_un& address) {
    address = {};
    address.sun_family = AF_UNIX;
    char* name = address.sun_path + 1;
    int length = snprintf(name, sizeof address.sun_path - 1, "fake-verbs/%06x", number);
    return (socklen_t)(offsetof(sockaddr_un, sun_path) + 1 + (size_t)length);
}

int make_socket() { return socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0); }

bool is_read(const Write& write) { return write.request.opcode == WR_READ; }

// The bytes of a write. Those of an inline one may be in memory that is not registered.
const char* memory_of(const Write& write) {
    if (write.is_inline || write.range.length == 0) return (const char*)write.range.addr;
    bool known = Regions::all().has(write.range.lkey, write.range.addr, write.range.length, 0);
    return known ? Regions::all().place(write.range.lkey, write.range.addr)
                 : (const char*)write.range.addr;
}

uint64_t sum_of(const char* bytes, size_t length) {
    uint64_t sum = 0xcbf29ce484222325;
    for (size_t at = 0; at < length; at++) sum = (sum ^ (uint8_t)bytes[at]) * 0x100000001b3;
    return sum;
}

}

void close_if_open(int& descriptor) {
    if (descriptor >= 0) close(descriptor);
    descriptor = -1;
}

// Takes a number that no other queue pair of this machine has: its socket could not be bound else.
Pair::Pair(Context* context, const ibv_qp_init_attr& wanted)
    : context(context), sends((Queue*)wanted.send_cq), receives((Queue*)wanted.recv_cq),
      cap(wanted.cap) {
    out_.resize(sizeof(Frame) + LONGEST);
    in_.resize(sizeof(Frame) + LONGEST);
    wake_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    listening_ = make_socket();
    std::random_device random;
    sockaddr_un address;
    do {
        shown.qp_num = random() & 0xffffff;
    } while (bind(listening_, (sockaddr*)&address, address_of(shown.qp_num, address)) != 0);
    listen(listening_, 4);
}

Pair::~Pair() {
    {
        std::lock_guard<std::mutex> guard(lock_);
        ending_ = true;
    }
    wake();
    if (thread_.joinable()) thread_.join();
    for (int* open : {&wake_, &listening_, &outgoing_, &incoming_}) close_if_open(*open);
}

void Pair::wake() {
    if (eventfd_write(wake_, 1) < 0 && errno != EAGAIN) abort();
}

int Pair::modify(const ibv_qp_attr& to, int mask) {
    std::lock_guard<std::mutex> guard(lock_);
    if (!(mask & STATE)) return EINVAL;
    switch (to.qp_state) {
    case QPS_INIT:
        if (to.port_num < 1 || to.port_num > context->device->ports()) return EINVAL;
        attributes = to;
        break;
    case QPS_RTR: {
        if (state_ != QPS_INIT || !(mask & AV)) return EINVAL;
        // RoCE has no other addresses.
        bool global = to.ah_attr.is_global;
        if (!global && context->device->is_ethernet(attributes.port_num)) return EINVAL;
        if (global && to.ah_attr.sgid_index >= context->device->gids(attributes.port_num).size()) {
            return EINVAL;
        }
        context->device->count(global ? "global_paths" : "local_paths");
        attributes.ah_attr = to.ah_attr;
        attributes.dest_qp_num = to.dest_qp_num;
        thread_ = std::thread([this] { run(); });
        break;
    }
    case QPS_RTS:
        if (state_ != QPS_RTR || !(mask & TIMEOUT)) return EINVAL;
        attributes.timeout = to.timeout;
        attributes.retry_cnt = to.retry_cnt;
        context->device->note("timeout", to.timeout);
        context->device->note("retries", to.retry_cnt);
        break;
    default:
        return EINVAL;
    }
    state_ = to.qp_state;
    wake();
    return 0;
}

int Pair::post(const ibv_send_wr& request) {
    std::lock_guard<std::mutex> guard(lock_);
    size_t length = request.num_sge ? request.sg_list[0].length : 0;
    bool is_inline = request.send_flags & SEND_INLINE;
    bool has_immediate = request.opcode == WR_WRITE_WITH_IMM;
    bool is_read = request.opcode == WR_READ;
    if (state_ < QPS_RTS || !(has_immediate || is_read || request.opcode == WR_WRITE)) return EINVAL;
    // The processor would read the bytes now, as an adapter's driver does.
    if (is_inline && length > 0 && Regions::all().is_of_device(request.sg_list[0].addr, length)) {
        return EFAULT;
    }
    if (has_immediate && length > LONGEST) return EINVAL;
    if (request.num_sge > 1 || (is_inline && length > cap.max_inline_data)) return EINVAL;
    auto is_whole = [](const Write& write) { return !write.is_part; };
    auto whole = std::count_if(queue_.begin(), queue_.end(), is_whole);
    if ((size_t)whole + late_.size() >= cap.max_send_wr) return ENOMEM;
    if (!has_immediate && !is_read) {
        context->device->count("direct_writes");
        context->device->count("direct_bytes", length);
    }
    ibv_sge range{};
    if (length > 0) range = request.sg_list[0];
    ibv_send_wr rest = request;
    for (; length > LONGEST; length -= LONGEST) {
        range.length = LONGEST;
        post_part(rest, range, true);
        range.addr += LONGEST;
        rest.remote_addr += LONGEST;
    }
    range.length = (uint32_t)length;
    post_part(rest, range, false);
    wake();
    return 0;
}

void Pair::post_part(const ibv_send_wr& request, ibv_sge range, bool is_part) {
    bool is_inline = request.send_flags & SEND_INLINE;
    size_t length = range.length;
    Write write{request, range, is_part, is_inline, {}, 0, {}};
    const char* bytes = memory_of(write);
    if (is_inline) {
        write.bytes.assign(bytes, bytes + length);
        context->device->count("inline_bytes", length);
    }
    write.sum = is_read(write) ? 0 : sum_of(bytes, length);
    if (queue_.empty()) last_answer_ = Clock::now();
    queue_.push_back(std::move(write));
}

int Pair::post(const ibv_recv_wr& request) {
    std::lock_guard<std::mutex> guard(lock_);
    if (state_ < QPS_INIT || request.num_sge != 0) return EINVAL;
    if (receives_.size() >= cap.max_recv_wr) return ENOMEM;
    receives_.push_back(request.wr_id);
    // The thread waits for a receive only if it holds what came for it.
    if (held_ || state_ == QPS_ERR) wake();
    return 0;
}

void Pair::run() {
    std::unique_lock<std::mutex> guard(lock_);
    while (!ending_) {
        if (state_ == QPS_ERR) {
            flush();
        } else if (context->device->is_up(attributes.port_num)) {
            if (incoming_ < 0) accept_peer();
            if (incoming_ >= 0) take_frames();
            if (outgoing_ >= 0) take_answers();
            if (transmitted_ < queue_.size() && outgoing_ < 0) connect_to_peer();
            if (outgoing_ >= 0) transmit();
        }
        give_up_unanswered();
        finish_due();
        bool is_heard = state_ != QPS_ERR && context->device->is_up(attributes.port_num);
        short answers = (short)(blocked_ ? POLLIN | POLLOUT : POLLIN);
        pollfd wanted[3] = {
            {wake_, POLLIN, 0},
            {is_heard && !held_ ? (incoming_ >= 0 ? incoming_ : listening_) : -1, POLLIN, 0},
            {is_heard ? outgoing_ : -1, answers, 0},
        };
        int milliseconds = sleep_for();
        guard.unlock();
        poll(wanted, 3, milliseconds);
        eventfd_t woken;
        if (eventfd_read(wake_, &woken) < 0 && errno != EAGAIN) abort();
        guard.lock();
    }
}

// Timeout of the thread's poll; -1 for none.
int Pair::sleep_for() {
    auto now = Clock::now();
    auto until = now + std::chrono::hours(1);
    if (!queue_.empty()) until = std::min(until, last_answer_ + patience());
    if (!late_.empty()) until = std::min(until, late_.front().due);
    if (transmitted_ < queue_.size() && outgoing_ < 0) until = now + BETWEEN_ATTEMPTS;
    auto left = std::chrono::ceil<std::chrono::milliseconds>(until - now).count();
    return (int)std::max<long>(left, 0);
}

// How long packets are repeated.
Clock::duration Pair::patience() const {
    auto once = std::chrono::nanoseconds(4096ull << attributes.timeout);
    return std::chrono::duration_cast<Clock::duration>(once * (attributes.retry_cnt + 1));
}

// Connects, if it can. Its peer may not be ready to receive yet, may have ended, or may never
// accept this end.
void Pair::connect_to_peer() {
    int made = make_socket();
    sockaddr_un address;
    const ibv_ah_attr& path = attributes.ah_attr;
    Frame hello{};
    hello.from = shown.qp_num;
    hello.to = attributes.dest_qp_num;
    hello.net = (uint32_t)context->device->number_of("net", attributes.port_num, 0);
    hello.is_global = path.is_global;
    hello.lid = path.dlid;
    memcpy(hello.gid, path.dgid, sizeof hello.gid);
    socklen_t length = address_of(attributes.dest_qp_num, address);
    bool is_told = connect(made, (sockaddr*)&address, length) == 0
        && send(made, &hello, sizeof hello, MSG_NOSIGNAL) == sizeof hello;
    if (is_told) outgoing_ = made;
    else close(made);
}

void Pair::lose_outgoing() {
    close_if_open(outgoing_);
    transmitted_ = 0;
}

// Sends posted writes, until the socket is full.
void Pair::transmit() {
    blocked_ = false;
    while (transmitted_ < queue_.size()) {
        const Write& write = queue_[transmitted_];
        Frame frame{};
        frame.address = write.request.remote_addr;
        frame.key = write.request.rkey;
        frame.length = write.range.length;
        frame.immediate = write.request.imm_data;
        frame.has_immediate = write.request.opcode == WR_WRITE_WITH_IMM;
        frame.is_read = is_read(write);
        char* payload = out_.data() + sizeof frame;
        memcpy(out_.data(), &frame, sizeof frame);
        if (frame.is_read) {
            // No bytes, but the request for them.
        } else if (write.is_inline) {
            memcpy(payload, write.bytes.data(), frame.length);
        } else if (frame.length > 0 && !Regions::all().read(write.range, payload)) {
            finish(write, WC_LOCAL_PROTECTION);
            queue_.pop_front();
            state_ = QPS_ERR;
            return wake();
        }
        size_t carried = frame.is_read ? 0 : frame.length;
        ssize_t sent = send(outgoing_, out_.data(), sizeof frame + carried, MSG_NOSIGNAL);
        if (sent < 0) {
            blocked_ = errno == EAGAIN;
            if (!blocked_) lose_outgoing();
            return;
        }
        transmitted_++;
    }
}

// Takes the peer's acknowledgements and refusals of writes.
void Pair::take_answers() {
    unsigned status;
    while (outgoing_ >= 0) {
        ssize_t got = recv(outgoing_, &status, sizeof status, 0);
        if (got < 0 && errno == EAGAIN) return;
        if (got != sizeof status) return lose_outgoing();
        Write write = std::move(queue_.front());
        queue_.pop_front();
        transmitted_--;
        last_answer_ = Clock::now();
        if (status != WC_SUCCESS) {
            finish(write, status);
            state_ = QPS_ERR;
            return wake();
        }
        if (write.is_part) continue;
        auto late = context->device->number_of("late", attributes.port_num, 0);
        write.due = last_answer_ + std::chrono::milliseconds(late);
        late_.push_back(std::move(write));
    }
}

void Pair::finish_due() {
    bool none_late = context->device->number_of("late", attributes.port_num, 0) == 0;
    while (!late_.empty() && (none_late || late_.front().due <= Clock::now())) {
        finish(late_.front(), WC_SUCCESS);
        late_.pop_front();
    }
}

// Reports a write as done. Its memory has to be as it was when it was posted.
void Pair::finish(const Write& write, unsigned status) {
    const char* bytes = memory_of(write);
    bool is_same = write.is_inline || is_read(write) || sum_of(bytes, write.range.length) == write.sum;
    if (status == WC_SUCCESS && !is_same) context->device->count("overwritten");
    if (write.is_part && status != WC_REMOTE_ACCESS && status != WC_LOCAL_PROTECTION) return;
    if (status == WC_SUCCESS && !(write.request.send_flags & SEND_SIGNALED)) return;
    ibv_wc completion{};
    completion.wr_id = write.request.wr_id;
    completion.status = status;
    completion.opcode = is_read(write) ? WC_OPCODE_READ : WC_OPCODE_WRITE;
    completion.qp_num = shown.qp_num;
    sends->add(completion);
}

void Pair::give_up_unanswered() {
    if (state_ != QPS_RTS || queue_.empty() || Clock::now() < last_answer_ + patience()) return;
    finish(queue_.front(), WC_NO_ANSWER);
    queue_.pop_front();
    context->device->count("unanswered");
    state_ = QPS_ERR;
    wake();
}

// Ends all requests of a queue pair that has failed.
void Pair::flush() {
    lose_outgoing();
    close_if_open(incoming_);
    close_if_open(listening_);
    held_.reset();
    while (!late_.empty()) {
        finish(late_.front(), WC_SUCCESS);
        late_.pop_front();
    }
    for (const Write& write : queue_) finish(write, WC_FLUSHED);
    queue_.clear();
    for (uint64_t id : receives_) {
        ibv_wc completion{};
        completion.wr_id = id;
        completion.status = WC_FLUSHED;
        completion.qp_num = shown.qp_num;
        receives->add(completion);
    }
    receives_.clear();
}

}
