// A libibverbs for tests: a `libibverbs.so.1` with devices that exist in this process alone. The
// Rust code for InfiniBand and RoCE runs over it unchanged, in one process or in several.
//
// A port is a set of attributes, a queue pair is a thread, and packets between two queue pairs go
// through a socket of the kernel (`pairs.cpp`). Tests can set conditions that neither an adapter
// nor soft-RoCE has on demand: limits, kinds of devices and networks, ports that go down, events of
// queues, calls that fail, late completions. The library counts requests.
//
// The fake does not show:
// - speed, and how an adapter's caches, queues and interrupts behave;
// - the order in which an adapter writes memory: a write is whole before its completion, as is
//   promised, and no reader sees half of it. One without immediate data lands as late as may be,
//   with the next one that has some;
// - packets: nothing is lost, repeated or reordered. A peer that is absent, or on another network,
//   stays silent for as long as the retries of the queue pair last;
// - whether a kernel and its limits allow to register memory.
//
// Variables of the environment:
//   FAKE_VERBS_DEVICES   "NAME KEY=VALUE KEY@PORT=VALUE...; NAME..." (none)
//   FAKE_VERBS_FAIL      "CALL:NTH:ERRNO,...": calls that fail; 0 is every one
//   FAKE_VERBS_COUNTERS  a file to which the process writes lines "DEVICE NAME VALUE" at its end
// Keys: transport, node (numbers of `enum ibv_transport_type` and `ibv_node_type`), ports, state
// (of `enum ibv_port_state`), link (1 InfiniBand, 2 Ethernet), speed, width, lid, address (the
// last byte of the port's GID), prefix (the last byte of its subnet's prefix), net (ports with
// different numbers do not reach each other), inline (most bytes of a request), late (milliseconds
// between an answer and its completion), refuse (1: memory takes no write without immediate data),
// takes (packets without immediate data that memory takes before it refuses them), unordered (1: bytes that a peer writes
// to memory of a device land when that memory is read), path (the device's folder in sysfs).
// `fake_verbs_set` and `fake_verbs_raise` change a device while it is used.
#include "fake.h"

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <set>
#include <sstream>
#include <unistd.h>

namespace fake {
namespace {

// Objects that live as long as the process, also while its destructors run.
template <typename T> T& immortal() {
    static T* object = new T;
    return *object;
}

struct Devices {
    std::mutex lock;
    std::vector<Device*> all;
    bool are_read = false;
};

struct Open {
    std::mutex lock;
    std::set<Context*> contexts;
    std::set<Queue*> queues;
    std::set<Pair*> pairs;
};

void describe(const std::string& text) {
    std::istringstream all(text);
    std::string one;
    while (std::getline(all, one, ';')) {
        std::istringstream words(one);
        auto* device = new Device;
        if (!(words >> device->name)) continue;
        std::string word;
        while (words >> word) {
            size_t equals = word.find('=');
            device->attributes[word.substr(0, equals)] = word.substr(equals + 1);
        }
        auto& devices = immortal<Devices>().all;
        device->number = (int)devices.size();
        device->shown.transport_type = (int)device->number_of("transport", 0, 0);
        device->shown.node_type = (int)device->number_of("node", 0, 1);
        snprintf(device->shown.name, sizeof device->shown.name, "%s", device->name.c_str());
        auto path = device->attributes["path"];
        snprintf(device->shown.ibdev_path, sizeof device->shown.ibdev_path, "%s", path.c_str());
        devices.push_back(device);
    }
}

std::vector<Device*> devices() {
    Devices& devices = immortal<Devices>();
    std::lock_guard<std::mutex> guard(devices.lock);
    const char* text = getenv("FAKE_VERBS_DEVICES");
    if (!devices.are_read && text) describe(text);
    devices.are_read = true;
    return devices.all;
}

Device* device_called(const char* name) {
    for (Device* device : devices()) {
        if (device->name == name) return device;
    }
    return nullptr;
}

Device* device_of(ibv_context* context) { return ((Context*)context)->device; }

}

// Call 0 is every call. Without another number the error is that memory is missing.
int planned_failure(const char* call) {
    static std::mutex lock;
    const char* plans = getenv("FAKE_VERBS_FAIL");
    if (!plans) return 0;
    std::lock_guard<std::mutex> guard(lock);
    uint64_t nth = ++immortal<std::map<std::string, uint64_t>>()[call];
    std::istringstream all(plans);
    std::string plan;
    while (std::getline(all, plan, ',')) {
        size_t length = strlen(call);
        if (plan.compare(0, length, call) != 0 || plan[length] != ':') continue;
        char* rest;
        uint64_t wanted = strtoull(plan.c_str() + length + 1, &rest, 10);
        if (wanted == 0 || wanted == nth) return *rest == ':' ? atoi(rest + 1) : ENOMEM;
    }
    return 0;
}

void Device::count(const char* what, uint64_t more) {
    std::lock_guard<std::mutex> guard(lock);
    counts[what] += more;
}

void Device::note(const char* what, uint64_t value) {
    std::lock_guard<std::mutex> guard(lock);
    counts[what] = value;
}

uint64_t Device::number_of(const char* key, int port, uint64_t otherwise) {
    std::lock_guard<std::mutex> guard(lock);
    auto found = attributes.find(std::string(key) + "@" + std::to_string(port));
    if (found == attributes.end()) found = attributes.find(key);
    return found == attributes.end() ? otherwise : strtoull(found->second.c_str(), nullptr, 10);
}

uint16_t Device::lid(int port) {
    if (is_ethernet(port)) return 0;
    return (uint16_t)number_of("lid", port, (uint64_t)(number * 4 + port));
}

// Of an InfiniBand port, one GID of its subnet. Of an Ethernet port, the GID of the link, and an
// IPv4 address by version 2 of RoCE.
std::vector<ibv_gid_entry> Device::gids(int port) {
    uint8_t last = (uint8_t)number_of("address", port, (uint64_t)port);
    ibv_gid_entry first{};
    first.port_num = (uint32_t)port;
    first.gid[0] = 0xfe;
    first.gid[1] = 0x80;
    first.gid[7] = (uint8_t)number_of("prefix", port, 0);
    first.gid[14] = (uint8_t)(number + 1);
    first.gid[15] = last;
    if (!is_ethernet(port)) return {first};
    first.gid_type = 2;
    ibv_gid_entry second{};
    second.port_num = (uint32_t)port;
    second.gid_index = 1;
    second.gid_type = 2;
    const uint8_t mapped[6] = {0xff, 0xff, 10, 77, (uint8_t)number, last};
    memcpy(second.gid + 10, mapped, sizeof mapped);
    return {first, second};
}

bool make_pipe(int ends[2]) { return pipe2(ends, O_CLOEXEC) == 0; }

void raise(Context* context, int type, uint64_t element) {
    ibv_async_event event{};
    event.element = element;
    event.event_type = type;
    context->device->count("async_events");
    if (write(context->events, &event, sizeof event) != sizeof event) abort();
}

template <typename T> void change(std::set<T*> Open::*all, T* it, bool is_open) {
    Open& open = immortal<Open>();
    std::lock_guard<std::mutex> guard(open.lock);
    if (is_open) (open.*all).insert(it);
    else (open.*all).erase(it);
}

void add(Context* context) { change(&Open::contexts, context, true); }
void remove(Context* context) { change(&Open::contexts, context, false); }
void add(Queue* queue) { change(&Open::queues, queue, true); }
void remove(Queue* queue) { change(&Open::queues, queue, false); }
void add(Pair* pair) { change(&Open::pairs, pair, true); }
void remove(Pair* pair) { change(&Open::pairs, pair, false); }

}

using namespace fake;

// Adds devices before the first list is made, for a program whose environment has none.
API void fake_verbs_devices(const char* text) {
    Devices& devices = immortal<Devices>();
    std::lock_guard<std::mutex> guard(devices.lock);
    describe(text);
}

API uint64_t fake_verbs_counter(const char* name, const char* what) {
    Device* device = device_called(name);
    std::lock_guard<std::mutex> guard(device->lock);
    return device->counts[what];
}

// Raises an event in all that is open of a device: of its queues (0), of its queue pairs (1 to 3),
// or of `port`. Returns how often.
API int fake_verbs_raise(const char* name, int port, int type) {
    Device* device = device_called(name);
    Open& open = immortal<Open>();
    std::lock_guard<std::mutex> guard(open.lock);
    int raised = 0;
    auto tell = [&](Context* context, uint64_t element) {
        if (context->device != device) return;
        raise(context, type, element);
        raised++;
    };
    if (type == EVENT_CQ_ERR) {
        for (Queue* queue : open.queues) tell(queue->context, (uint64_t)queue);
    } else if (type <= EVENT_QP_ACCESS_ERR) {
        for (Pair* pair : open.pairs) tell(pair->context, (uint64_t)pair);
    } else {
        for (Context* context : open.contexts) tell(context, (uint64_t)port);
    }
    return raised;
}

// Changes an attribute of a device, of one port or, if `port` is 0, of all. A new state of a port
// makes its event.
API void fake_verbs_set(const char* name, int port, const char* key, const char* value) {
    Device* device = device_called(name);
    std::string of = key + (port ? "@" + std::to_string(port) : std::string());
    {
        std::lock_guard<std::mutex> guard(device->lock);
        device->attributes[of] = value;
    }
    if (strcmp(key, "state") == 0) {
        bool up = device->is_up(port ? port : 1);
        fake_verbs_raise(name, port ? port : 1, up ? EVENT_PORT_ACTIVE : EVENT_PORT_ERR);
    }
    Open& open = immortal<Open>();
    std::lock_guard<std::mutex> guard(open.lock);
    for (Pair* pair : open.pairs) pair->wake();
}

API ibv_device** ibv_get_device_list(int* count) {
    errno = planned_failure("ibv_get_device_list");
    if (errno) return nullptr;
    std::vector<Device*> all = devices();
    auto** list = new ibv_device*[all.size() + 1]();
    for (size_t at = 0; at < all.size(); at++) list[at] = &all[at]->shown;
    if (count) *count = (int)all.size();
    return list;
}

API void ibv_free_device_list(ibv_device** list) { delete[] list; }

API const char* ibv_get_device_name(ibv_device* device) { return device->name; }

API ibv_context* ibv_open_device(ibv_device* device);

API int ibv_query_device(ibv_context* context, ibv_device_attr* into) {
    if (int failed = planned_failure("ibv_query_device")) return failed;
    *into = {};
    strcpy(into->fw_ver, "fake");
    into->max_mr_size = 1ull << 40;
    into->max_qp = 1024;
    into->max_qp_wr = 4096;
    into->max_cq = 1024;
    into->max_cqe = 65536;
    into->max_pkeys = 1;
    into->phys_port_cnt = (uint8_t)device_of(context)->ports();
    return 0;
}

API int ibv_query_port(ibv_context* context, uint8_t port, ibv_port_attr* into) {
    if (int failed = planned_failure("ibv_query_port")) return failed;
    Device* device = device_of(context);
    if (port < 1 || port > device->ports()) return EINVAL;
    *into = {};
    into->state = (unsigned)device->number_of("state", port, PORT_ACTIVE);
    into->max_mtu = into->active_mtu = 5;
    into->gid_tbl_len = (int)device->gids(port).size();
    into->max_msg_sz = 1 << 17;
    into->pkey_tbl_len = 1;
    into->lid = device->lid(port);
    into->active_speed = (uint8_t)device->number_of("speed", port, 32);
    into->active_width = (uint8_t)device->number_of("width", port, 2);
    into->link_layer = device->is_ethernet(port) ? LINK_ETHERNET : 1;
    return 0;
}

API ssize_t _ibv_query_gid_table(ibv_context* context, ibv_gid_entry* into, size_t most, uint32_t,
                                 size_t size) {
    if (int failed = planned_failure("_ibv_query_gid_table")) return -failed;
    if (size != sizeof(ibv_gid_entry)) return -EINVAL;
    size_t found = 0;
    Device* device = device_of(context);
    for (int port = 1; port <= device->ports(); port++) {
        for (const ibv_gid_entry& entry : device->gids(port)) {
            if (found == most) return -EINVAL;
            into[found++] = entry;
        }
    }
    return (ssize_t)found;
}

API int ibv_get_async_event(ibv_context* context, ibv_async_event* event) {
    ssize_t got = read(context->async_fd, event, sizeof *event);
    return got == sizeof *event ? 0 : -1;
}

API void ibv_ack_async_event(ibv_async_event*) {}

__attribute__((destructor)) static void at_exit() {
    const char* file = getenv("FAKE_VERBS_COUNTERS");
    FILE* into = file ? fopen(file, "w") : nullptr;
    if (!into) return;
    for (Device* device : devices()) {
        std::lock_guard<std::mutex> guard(device->lock);
        for (const auto& [what, value] : device->counts) {
            fprintf(into, "%s %s %llu\n", device->name.c_str(), what.c_str(),
                    (unsigned long long)value);
        }
    }
    fclose(into);
}
