// Devices and their attributes.
#include "devices.h"

#include <cstdio>
#include <cstring>

namespace fake {
namespace {

// The numbers of `CUdevice_attribute`, and the values of an H100, made smaller.
struct Attribute {
    int number;
    int value;
};

const Attribute ATTRIBUTES[] = {
    {1, 1024},       // MAX_THREADS_PER_BLOCK
    {2, 1024},       // MAX_BLOCK_DIM_X
    {3, 1024},       // MAX_BLOCK_DIM_Y
    {4, 64},         // MAX_BLOCK_DIM_Z
    {5, 2147483647}, // MAX_GRID_DIM_X
    {6, 65535},      // MAX_GRID_DIM_Y
    {7, 65535},      // MAX_GRID_DIM_Z
    {8, 49152},      // MAX_SHARED_MEMORY_PER_BLOCK
    {9, 65536},      // TOTAL_CONSTANT_MEMORY
    {10, 32},        // WARP_SIZE
    {12, REGISTERS}, // MAX_REGISTERS_PER_BLOCK
    {13, 1980000},   // CLOCK_RATE
    {14, 512},       // TEXTURE_ALIGNMENT
    {18, 0},         // INTEGRATED
    {19, 1},         // CAN_MAP_HOST_MEMORY
    {20, 0},         // COMPUTE_MODE
    {31, 1},         // CONCURRENT_KERNELS
    {34, 0},         // PCI_DEVICE_ID
    {36, 2619000},   // MEMORY_CLOCK_RATE
    {37, 5120},      // GLOBAL_MEMORY_BUS_WIDTH
    {38, 52428800},  // L2_CACHE_SIZE
    {39, 2048},      // MAX_THREADS_PER_MULTIPROCESSOR
    {40, 3},         // ASYNC_ENGINE_COUNT
    {41, 1},         // UNIFIED_ADDRESSING
    {50, 0},         // PCI_DOMAIN_ID
    {75, 9},         // COMPUTE_CAPABILITY_MAJOR
    {76, 0},         // COMPUTE_CAPABILITY_MINOR
    {78, 1},         // STREAM_PRIORITIES_SUPPORTED
    {81, 233472},    // MAX_SHARED_MEMORY_PER_MULTIPROCESSOR
    {82, REGISTERS}, // MAX_REGISTERS_PER_MULTIPROCESSOR
    {83, 0},         // MANAGED_MEMORY
    {91, 1},         // CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM
    {95, 1},         // COOPERATIVE_LAUNCH
    {97, 232448},    // MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
    {99, 1},         // HOST_REGISTER_SUPPORTED
    {106, 32},       // MAX_BLOCKS_PER_MULTIPROCESSOR
};

constexpr int MULTIPROCESSOR_COUNT = 16;
constexpr int PCI_BUS_ID = 33;
constexpr int MEMORY_POOLS_SUPPORTED = 115;
constexpr int GPU_DIRECT_RDMA_WRITES_ORDERING = 118;
constexpr int DMA_BUF_SUPPORTED = 124;
constexpr int LAST_ATTRIBUTE = 160;

int attribute(int wanted, const Device& device) {
    if (wanted == MULTIPROCESSOR_COUNT) return settings().processors;
    if (wanted == PCI_BUS_ID) return device.number + 1;
    if (wanted == MEMORY_POOLS_SUPPORTED) return settings().has_pools;
    if (wanted == GPU_DIRECT_RDMA_WRITES_ORDERING) return settings().writes_ordering;
    if (wanted == DMA_BUF_SUPPORTED) return settings().has_dma_buf;
    for (const Attribute& known : ATTRIBUTES) {
        if (known.number == wanted) return known.value;
    }
    return 0;
}

std::vector<Device*> make_devices() {
    std::vector<Device*> made;
    for (int number : settings().visible) {
        made.push_back(new Device((int)made.size(), number));
    }
    return made;
}

}

Device::Device(int ordinal, int number)
    : ordinal(ordinal), number(number), registers((long)settings().registers * settings().processors) {}

bool Registers::take(long count) {
    long seen = left;
    while (seen >= count) {
        if (left.compare_exchange_weak(seen, seen - count)) return true;
    }
    return false;
}

std::vector<Device*>& devices() {
    static auto* all = new std::vector<Device*>(make_devices());
    return *all;
}

Device* device(int ordinal) {
    if (ordinal < 0 || ordinal >= (int)devices().size()) return nullptr;
    return devices()[(size_t)ordinal];
}

Device* device_of_context(const void* context) {
    for (Device* device : devices()) {
        if (device == context) return device;
    }
    return nullptr;
}

// True if a list of pairs, "0-1,0-2", has these two in any order, or is "all".
static bool has_pair(const std::string& list, int a, int b) {
    std::string pairs = "," + list + ",";
    auto has = [&](int a, int b) {
        return pairs.find("," + std::to_string(a) + "-" + std::to_string(b) + ",")
            != std::string::npos;
    };
    return list == "all" || has(a, b) || has(b, a);
}

bool is_reachable(int from, int to) {
    return from != to && !has_pair(settings().refused_peers, from, to);
}

bool is_mirrored(int from, int to) { return has_pair(settings().mirrored_peers, from, to); }

}

using namespace fake;

API cuDeviceGetCount(int* count) {
    ENTER(Needs::Start);
    *count = (int)devices().size();
    return SUCCESS;
}

API cuDeviceGet(int* found, int ordinal) {
    ENTER(Needs::Start);
    if (!device(ordinal)) return INVALID_DEVICE;
    *found = ordinal;
    return SUCCESS;
}

API cuDeviceGetName(char* name, int length, int ordinal) {
    ENTER(Needs::Start);
    if (!device(ordinal)) return INVALID_DEVICE;
    snprintf(name, (size_t)length, "Emulated GPU");
    return SUCCESS;
}

API cuDeviceGetUuid_v2(char* uuid, int ordinal) {
    ENTER(Needs::Start);
    if (!device(ordinal)) return INVALID_DEVICE;
    memset(uuid, 0, 16);
    memcpy(uuid, "emulated", 8);
    uuid[15] = (char)(device(ordinal)->number + 1);
    return SUCCESS;
}

// All devices are parts of one GPU (MIG) here: the first version of the function names the whole.
API cuDeviceGetUuid(char* uuid, int ordinal) {
    if (int failed = cuDeviceGetUuid_v2(uuid, ordinal)) return failed;
    uuid[15] = 0;
    return SUCCESS;
}

API cuDeviceTotalMem_v2(size_t* bytes, int ordinal) {
    ENTER(Needs::Start);
    if (!device(ordinal)) return INVALID_DEVICE;
    *bytes = settings().memory;
    return SUCCESS;
}

API cuDeviceGetAttribute(int* value, int number, int ordinal) {
    ENTER(Needs::Start);
    if (!device(ordinal)) return INVALID_DEVICE;
    if (number < 1 || number > LAST_ATTRIBUTE) return INVALID_VALUE;
    *value = attribute(number, *device(ordinal));
    return SUCCESS;
}

API cuDeviceGetPCIBusId(char* text, int length, int ordinal) {
    ENTER(Needs::Start);
    if (!device(ordinal)) return INVALID_DEVICE;
    snprintf(text, (size_t)length, "0000:%02x:00.0", device(ordinal)->number + 1);
    return SUCCESS;
}

API cuDeviceCanAccessPeer(int* can, int from, int to) {
    ENTER(Needs::Start);
    if (!device(from) || !device(to)) return INVALID_DEVICE;
    *can = is_reachable(device(from)->number, device(to)->number);
    return SUCCESS;
}

API cuDeviceGetP2PAttribute(int* value, int number, int from, int to) {
    ENTER(Needs::Start);
    if (!device(from) || !device(to)) return INVALID_DEVICE;
    const int performance_rank = 1;
    const int last = 4;
    if (from == to || number < performance_rank || number > last) return INVALID_VALUE;
    bool reachable = is_reachable(device(from)->number, device(to)->number);
    *value = number != performance_rank && reachable;
    return SUCCESS;
}
