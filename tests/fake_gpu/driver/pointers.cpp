// The attributes of an address.
#include "memory.h"

#include <cstring>

namespace fake {
namespace {

// The numbers of `CUpointer_attribute`.
enum Attribute : int {
    CONTEXT = 1,
    MEMORY_TYPE = 2,
    DEVICE_POINTER = 3,
    HOST_POINTER = 4,
    SYNC_MEMOPS = 6,
    BUFFER_ID = 7,
    IS_MANAGED = 8,
    DEVICE_ORDINAL = 9,
    IS_LEGACY_CUDA_IPC_CAPABLE = 10,
    RANGE_START_ADDR = 11,
    RANGE_SIZE = 12,
    MAPPED = 13,
};

constexpr unsigned HOST_MEMORY = 1;
constexpr unsigned DEVICE_MEMORY = 2;

template <class T> int put(void* into, T value) {
    memcpy(into, &value, sizeof value);
    return SUCCESS;
}

int describe(const Allocation& memory, uintptr_t address, int attribute, void* into) {
    bool is_of_device = memory.is_of_device();
    switch (attribute) {
        case CONTEXT: return put<void*>(into, device(memory.ordinal));
        case MEMORY_TYPE: return put<unsigned>(into, is_of_device ? DEVICE_MEMORY : HOST_MEMORY);
        case DEVICE_POINTER: return put<uintptr_t>(into, address);
        case HOST_POINTER: return is_of_device ? INVALID_VALUE : put<uintptr_t>(into, address);
        case SYNC_MEMOPS: return put<unsigned>(into, 0);
        case BUFFER_ID: return put<uint64_t>(into, memory.number);
        case IS_MANAGED: return put<unsigned>(into, 0);
        case DEVICE_ORDINAL: return put<int>(into, memory.ordinal);
        case IS_LEGACY_CUDA_IPC_CAPABLE:
            return put<unsigned>(into, memory.kind == Kind::Device);
        case RANGE_START_ADDR: return put<uintptr_t>(into, memory.start);
        case RANGE_SIZE: return put<size_t>(into, memory.bytes);
        case MAPPED: return put<unsigned>(into, 1);
        default: return INVALID_VALUE;
    }
}

// How many bytes an attribute has.
size_t size_of(int attribute) {
    switch (attribute) {
        case CONTEXT:
        case DEVICE_POINTER:
        case HOST_POINTER:
        case BUFFER_ID:
        case RANGE_START_ADDR:
        case RANGE_SIZE: return 8;
        default: return 4;
    }
}

}
}

using namespace fake;

API cuPointerGetAttribute(void* into, int attribute, uintptr_t address) {
    ENTER(Needs::Context);
    Allocation found;
    if (!memories().find(address, found)) return INVALID_VALUE;
    return describe(found, address, attribute, into);
}

// All attributes of an unknown address are zero.
API cuPointerGetAttributes(unsigned count, int* attributes, void** into, uintptr_t address) {
    ENTER(Needs::Context);
    Allocation found;
    bool known = memories().find(address, found);
    for (unsigned at = 0; at < count; at++) {
        memset(into[at], 0, size_of(attributes[at]));
        if (known) describe(found, address, attributes[at], into[at]);
    }
    return SUCCESS;
}

API cuMemGetAddressRange_v2(uintptr_t* start, size_t* bytes, uintptr_t address) {
    ENTER(Needs::Context);
    Allocation found;
    if (!memories().find(address, found)) return NOT_FOUND;
    if (start) *start = found.start;
    if (bytes) *bytes = found.bytes;
    return SUCCESS;
}
