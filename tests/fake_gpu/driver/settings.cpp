// The variables of the environment by which a test chooses a driver and its devices.
//
//   FAKE_CUDA_DEVICES     how many devices there are (2)
//   FAKE_CUDA_PROCESSORS  multiprocessors of a device (16)
//   FAKE_CUDA_MEMORY      bytes of a device (1 GiB)
//   FAKE_CUDA_THREADS     most threads of a block that really run, at least 2: one posts (4)
//   FAKE_CUDA_VERSION     the version of CUDA that the driver is for (12080)
//   FAKE_CUDA_POOLS       0: devices have no memory pools
//   FAKE_CUDA_NO_PEERS    "all", or pairs of devices, "0-1,0-2", that do not reach each other
//   FAKE_CUDA_MIRROR      "all", or pairs of devices: writes of one to mapped memory of the other do not
//                         arrive, and it does not see later writes of the other
//   FAKE_CUDA_LOAD_WAITS  1: loading a module waits for all work of the device
//   FAKE_CUDA_FREE_HOLDS  1: while freeing or loading waits for the device, no work is started on it
//   FAKE_CUDA_WHOLE_BLOCKS 1: memory of other processes is a multiple of 2 MiB, or there is no handle
//   FAKE_CUDA_DMA_BUF     1: memory can be exported to adapters
//   FAKE_CUDA_ORDERING    how a device orders writes of adapters: CUGPUDirectRDMAWritesOrdering (100)
//   FAKE_CUDA_CAPTURE_TRACE 1: prints which function, on which thread, ends a capture
//   FAKE_CUDA_LAUNCH_TRACE 1: prints the kernel and the blocks of each launch
//   FAKE_CUDA_REGISTERS   registers of a multiprocessor, of which a block has some (65536)
//   FAKE_CUDA_DELAY       microseconds that a stream waits before each piece of work (0)
//   FAKE_CUDA_PATIENCE    seconds after which the host no longer waits for a device (300)
//   FAKE_CUDA_SEED        draws the order of the threads of a block (1)
//   FAKE_CUDA_LEAKS       1: prints leaks when the process ends
//   FAKE_CUDA_FAIL        calls that fail, see `planned_failure`
//   CUDA_VISIBLE_DEVICES  numbers of the devices that the process sees, as for a GPU (all)
#include "devices.h"

#include <cstdlib>
#include <cstring>

namespace fake {
namespace {

std::string text(const char* name) {
    const char* value = getenv(name);
    return value ? value : "";
}

uint64_t number(const char* name, uint64_t otherwise) {
    std::string value = text(name);
    return value.empty() ? otherwise : strtoull(value.c_str(), nullptr, 10);
}

// A list of devices ends where there is no such device.
std::vector<int> visible(int devices) {
    std::vector<int> numbers;
    const char* list = getenv("CUDA_VISIBLE_DEVICES");
    if (!list) {
        for (int at = 0; at < devices; at++) numbers.push_back(at);
        return numbers;
    }
    while (*list) {
        char* rest;
        long number = strtol(list, &rest, 10);
        if (rest == list || number < 0 || number >= devices) break;
        numbers.push_back((int)number);
        list = *rest == ',' ? rest + 1 : rest;
    }
    return numbers;
}

Settings read_settings() {
    Settings settings;
    settings.visible = visible((int)number("FAKE_CUDA_DEVICES", 2));
    settings.processors = (int)number("FAKE_CUDA_PROCESSORS", 16);
    settings.threads = (int)number("FAKE_CUDA_THREADS", 4);
    settings.version = (int)number("FAKE_CUDA_VERSION", 12080);
    settings.has_pools = number("FAKE_CUDA_POOLS", 1) != 0;
    settings.reports_leaks = number("FAKE_CUDA_LEAKS", 0) != 0;
    settings.memory = number("FAKE_CUDA_MEMORY", 1ull << 30);
    settings.delay = number("FAKE_CUDA_DELAY", 0);
    settings.patience = number("FAKE_CUDA_PATIENCE", 300);
    settings.seed = number("FAKE_CUDA_SEED", 1);
    settings.refused_peers = text("FAKE_CUDA_NO_PEERS");
    settings.mirrored_peers = text("FAKE_CUDA_MIRROR");
    settings.load_waits = number("FAKE_CUDA_LOAD_WAITS", 0) != 0;
    settings.free_holds = number("FAKE_CUDA_FREE_HOLDS", 0) != 0;
    settings.whole_blocks = number("FAKE_CUDA_WHOLE_BLOCKS", 0) != 0;
    settings.has_dma_buf = number("FAKE_CUDA_DMA_BUF", 0) != 0;
    settings.writes_ordering = (int)number("FAKE_CUDA_ORDERING", 100);
    settings.traces_captures = number("FAKE_CUDA_CAPTURE_TRACE", 0) != 0;
    settings.traces_launches = number("FAKE_CUDA_LAUNCH_TRACE", 0) != 0;
    settings.registers = (unsigned)number("FAKE_CUDA_REGISTERS", REGISTERS);
    settings.failures = text("FAKE_CUDA_FAIL");
    return settings;
}

// How often each name has come.
struct Counts {
    std::mutex lock;
    std::unordered_map<std::string, uint64_t> of;
};

uint64_t count(const char* name) {
    Counts& counts = immortal<Counts>();
    std::lock_guard<std::mutex> guard(counts.lock);
    counts.of[name] += 1;
    return counts.of[name];
}

}

const Settings& settings() {
    static const Settings* read = new Settings(read_settings());
    return *read;
}

// FAKE_CUDA_FAIL is a list such as "cuMemAlloc_v2:3,cuInit:1:999": the third call of cuMemAlloc_v2
// returns 2, which is out of memory, and the first call of cuInit returns 999. Call 0 is every
// call. The name "kernel" counts kernels that run, "name:nth:code" then being the error that ends
// the context, as on a GPU.
int planned_failure(const char* name) {
    const std::string& failures = settings().failures;
    if (failures.empty()) return SUCCESS;
    uint64_t nth = count(name);
    size_t length = strlen(name);
    for (size_t at = 0; at < failures.size();) {
        size_t end = failures.find(',', at);
        std::string plan = failures.substr(at, end == std::string::npos ? end : end - at);
        at = end == std::string::npos ? failures.size() : end + 1;
        if (plan.compare(0, length, name) != 0 || plan[length] != ':') continue;
        char* rest;
        uint64_t wanted = strtoull(plan.c_str() + length + 1, &rest, 10);
        int code = *rest == ':' ? atoi(rest + 1) : OUT_OF_MEMORY;
        if (wanted == 0 || wanted == nth) return code;
    }
    return SUCCESS;
}

}
