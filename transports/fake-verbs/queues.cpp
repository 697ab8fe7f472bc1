// Objects of a device before connections: contexts, domains, registered memory, completion queues
// and their channels.
#include "fake.h"

#include <cerrno>
#include <cstring>
#include <sys/mman.h>
#include <unistd.h>

namespace fake {

// Adds a completion. A queue that is full fails, as an adapter's does.
void Queue::add(const ibv_wc& completion) {
    std::lock_guard<std::mutex> guard(lock);
    if (completions.size() == most) {
        if (!overrun) raise(context, EVENT_CQ_ERR, (uint64_t)this);
        overrun = true;
        return;
    }
    completions.push_back(completion);
    context->device->count("completions");
    if (!armed || !channel) return;
    armed = false;
    context->device->count("events");
    Queue* self = this;
    if (write(channel->events, &self, sizeof self) != sizeof self) abort();
}

Regions& Regions::all() {
    static Regions* regions = new Regions;
    return *regions;
}

uint32_t Regions::add(uint64_t start, size_t length, int access) {
    std::lock_guard<std::recursive_mutex> guard(lock_);
    regions_[next_] = {start, length, access, (char*)start, false, false, {}};
    return next_++;
}

uint32_t Regions::add_device(uint64_t start, size_t length, int access, int file, bool is_late) {
    void* mapped = mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (mapped == MAP_FAILED) return 0;
    std::lock_guard<std::recursive_mutex> guard(lock_);
    regions_[next_] = {start, length, access, (char*)mapped, true, is_late, {}};
    return next_++;
}

void Regions::remove(uint32_t key) {
    std::lock_guard<std::recursive_mutex> guard(lock_);
    Region& region = regions_[key];
    if (region.is_of_device) munmap(region.mapped, region.length);
    regions_.erase(key);
}

char* Regions::place(uint32_t key, uint64_t at) {
    std::lock_guard<std::recursive_mutex> guard(lock_);
    const Region& region = regions_[key];
    return region.mapped + (at - region.start);
}

bool Regions::is_of_device(uint64_t at, size_t length) {
    std::lock_guard<std::recursive_mutex> guard(lock_);
    for (const auto& [key, region] : regions_) {
        if (region.is_of_device && at < region.start + region.length && region.start < at + length) return true;
    }
    return false;
}

bool Regions::land(uint32_t key, uint64_t at, size_t length) {
    std::lock_guard<std::recursive_mutex> guard(lock_);
    if (!has(key, at, length, ACCESS_REMOTE_READ)) return false;
    Region& region = regions_[key];
    for (const auto& [to, bytes] : region.late) memcpy(place(key, to), bytes.data(), bytes.size());
    region.late.clear();
    return true;
}

bool Regions::has(uint32_t key, uint64_t at, size_t length, int access) {
    std::lock_guard<std::recursive_mutex> guard(lock_);
    auto found = regions_.find(key);
    if (found == regions_.end()) return false;
    const Region& region = found->second;
    bool allowed = (region.access & access) == access;
    return allowed && at >= region.start && at + length <= region.start + region.length;
}

bool Regions::write(uint32_t key, uint64_t to, const char* from, size_t length) {
    std::lock_guard<std::recursive_mutex> guard(lock_);
    if (!has(key, to, length, ACCESS_REMOTE_WRITE)) return false;
    Region& region = regions_[key];
    if (region.is_late) region.late.emplace_back(to, std::vector<char>(from, from + length));
    else memcpy(place(key, to), from, length);
    return true;
}

bool Regions::read(const ibv_sge& from, char* to) {
    std::lock_guard<std::recursive_mutex> guard(lock_);
    if (!has(from.lkey, from.addr, from.length, 0)) return false;
    memcpy(to, place(from.lkey, from.addr), from.length);
    return true;
}

namespace {

int poll_cq(void* cq, int most, ibv_wc* into) {
    auto* queue = (Queue*)cq;
    std::lock_guard<std::mutex> guard(queue->lock);
    if (queue->overrun) return -EIO;
    int taken = 0;
    while (taken < most && !queue->completions.empty()) {
        into[taken++] = queue->completions.front();
        queue->completions.pop_front();
    }
    return taken;
}

int req_notify_cq(void* cq, int) {
    auto* queue = (Queue*)cq;
    queue->context->device->count("arms");
    if (int failed = planned_failure("ibv_req_notify_cq")) return failed;
    std::lock_guard<std::mutex> guard(queue->lock);
    queue->armed = true;
    return 0;
}

template <typename Request> int post(void* qp, Request* first, Request** bad) {
    for (Request* request = first; request; request = request->next) {
        if (int failed = ((Pair*)qp)->post(*request)) {
            *bad = request;
            return failed;
        }
    }
    return 0;
}

int post_send(void* qp, ibv_send_wr* first, ibv_send_wr** bad) {
    ((Pair*)qp)->context->device->count("sends");
    if (int failed = planned_failure("ibv_post_send")) return failed;
    return post(qp, first, bad);
}

int post_recv(void* qp, ibv_recv_wr* first, ibv_recv_wr** bad) {
    ((Pair*)qp)->context->device->count("receives");
    if (int failed = planned_failure("ibv_post_recv")) return failed;
    return post(qp, first, bad);
}

// Sets `errno` if the call is planned to fail.
bool fails(const char* call) {
    errno = planned_failure(call);
    return errno != 0;
}

// A protection domain.
struct Domain {
    Context* context;
};

}

}

using namespace fake;

API ibv_context* ibv_open_device(ibv_device* device) {
    int ends[2];
    if (fails("ibv_open_device") || !make_pipe(ends)) return nullptr;
    auto* context = new Context;
    context->device = (Device*)device;
    context->events = ends[1];
    context->shown.device = device;
    context->shown.cmd_fd = -1;
    context->shown.async_fd = ends[0];
    context->shown.ops.poll_cq = poll_cq;
    context->shown.ops.req_notify_cq = req_notify_cq;
    context->shown.ops.post_send = post_send;
    context->shown.ops.post_recv = post_recv;
    add(context);
    return &context->shown;
}

API int ibv_close_device(ibv_context* shown) {
    auto* context = (Context*)shown;
    remove(context);
    close(context->events);
    close(context->shown.async_fd);
    delete context;
    return 0;
}

API void* ibv_alloc_pd(ibv_context* context) {
    if (fails("ibv_alloc_pd")) return nullptr;
    return new Domain{(Context*)context};
}

API int ibv_dealloc_pd(void* domain) {
    delete (Domain*)domain;
    return 0;
}

API ibv_mr* ibv_reg_mr(void* domain, void* start, size_t length, int access) {
    if (fails("ibv_reg_mr")) return nullptr;
    auto* region = new ibv_mr{};
    region->owner[1] = domain;
    region->addr = start;
    region->length = length;
    region->lkey = region->rkey = Regions::all().add((uint64_t)start, length, access);
    ((Domain*)domain)->context->device->count("regions");
    return region;
}

// `start` is the address by which requests name the first byte.
API ibv_mr* ibv_reg_dmabuf_mr(void* domain, uint64_t offset, size_t length, uint64_t start, int file,
                              int access) {
    if (fails("ibv_reg_dmabuf_mr")) return nullptr;
    Device* device = ((Domain*)domain)->context->device;
    bool is_late = device->number_of("unordered", 0, 0) != 0;
    uint32_t key = offset == 0 ? Regions::all().add_device(start, length, access, file, is_late) : 0;
    if (key == 0) {
        errno = EINVAL;
        return nullptr;
    }
    auto* region = new ibv_mr{};
    region->owner[1] = domain;
    region->length = length;
    region->lkey = region->rkey = key;
    device->count("device_regions");
    return region;
}

API int ibv_dereg_mr(ibv_mr* region) {
    Regions::all().remove(region->lkey);
    ((Domain*)region->owner[1])->context->device->count("regions_removed");
    delete region;
    return 0;
}

API ibv_comp_channel* ibv_create_comp_channel(ibv_context* context) {
    int ends[2];
    if (fails("ibv_create_comp_channel") || !make_pipe(ends)) return nullptr;
    auto* channel = new Channel;
    channel->shown.context = context;
    channel->shown.fd = ends[0];
    channel->events = ends[1];
    return &channel->shown;
}

API int ibv_destroy_comp_channel(ibv_comp_channel* shown) {
    auto* channel = (Channel*)shown;
    close(channel->shown.fd);
    close(channel->events);
    delete channel;
    return 0;
}

API void* ibv_create_cq(ibv_context* context, int entries, void* own, ibv_comp_channel* channel,
                        int) {
    if (fails("ibv_create_cq")) return nullptr;
    auto* queue = new Queue;
    queue->context = (Context*)context;
    queue->channel = (Channel*)channel;
    queue->own = own;
    queue->most = (size_t)entries;
    add(queue);
    queue->context->device->count("queues");
    return queue;
}

// libibverbs would wait indefinitely for events that were taken and not acknowledged.
API int ibv_destroy_cq(void* cq) {
    auto* queue = (Queue*)cq;
    if (queue->events != 0) return EBUSY;
    remove(queue);
    queue->context->device->count("queues_destroyed");
    delete queue;
    return 0;
}

API int ibv_get_cq_event(ibv_comp_channel* channel, void** cq, void** own) {
    Queue* queue;
    if (read(channel->fd, &queue, sizeof queue) != sizeof queue) return -1;
    queue->events++;
    *cq = queue;
    *own = queue->own;
    return 0;
}

API void ibv_ack_cq_events(void* cq, unsigned count) { ((Queue*)cq)->events -= count; }

API Pair* ibv_create_qp(Domain* domain, ibv_qp_init_attr* wanted) {
    if (fails("ibv_create_qp")) return nullptr;
    Context* context = domain->context;
    auto most = (uint32_t)context->device->number_of("inline", 0, 256);
    if (wanted->cap.max_inline_data > most) {
        errno = EINVAL;
        return nullptr;
    }
    wanted->cap.max_inline_data = most;
    auto* pair = new Pair(context, *wanted);
    add(pair);
    context->device->count("pairs");
    return pair;
}

API int ibv_modify_qp(Pair* pair, ibv_qp_attr* to, int mask) {
    if (int failed = planned_failure("ibv_modify_qp")) return failed;
    return pair->modify(*to, mask);
}

API int ibv_destroy_qp(Pair* pair) {
    remove(pair);
    pair->context->device->count("pairs_destroyed");
    delete pair;
    return 0;
}
