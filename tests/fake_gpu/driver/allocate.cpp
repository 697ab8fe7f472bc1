// Making and freeing memory of devices and of the host.
#include "memory.h"
#include "streams.h"

#include <cstdio>
#include <cstring>
#include <sys/mman.h>
#include <unistd.h>

namespace fake {
namespace {

constexpr size_t PAGE = 4096;
// Fresh memory holds this, as far as filling it is quick: programs must not rely on zeros.
constexpr int POISON = 0xa5;
constexpr size_t MOST_POISON = 16 << 20;

// The flag of memory of the program that devices reach.
constexpr unsigned DEVICEMAP = 2;

size_t whole_pages(size_t bytes) { return (bytes + PAGE - 1) / PAGE * PAGE; }

// Counts bytes of a device as used. False if the device has not so many left.
bool reserve(Device& device, size_t bytes) {
    std::lock_guard<std::mutex> guard(device.lock);
    if (bytes > settings().memory - device.used) return false;
    device.used += bytes;
    return true;
}

void unreserve(Device& device, size_t bytes) {
    std::lock_guard<std::mutex> guard(device.lock);
    device.used -= bytes;
}

// A file in memory, which other processes open through /proc, with a page after the memory. -1 if
// it cannot be made.
int make_file(size_t bytes) {
    int file = memfd_create("emulated GPU memory", MFD_CLOEXEC);
    if (file >= 0 && ftruncate(file, (off_t)(bytes + PAGE)) != 0) {
        close(file);
        return -1;
    }
    return file;
}

// Maps so many bytes of `file`, or of no file. Null if that fails.
void* map(size_t bytes, int file) {
    int kind = file >= 0 ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS;
    void* mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, kind, file, 0);
    return mapped == MAP_FAILED ? nullptr : mapped;
}

// Makes memory of the current device.
int make(Kind kind, size_t bytes, uintptr_t* address) {
    Device& device = current_device();
    size_t mapped = whole_pages(bytes);
    if (mapped < bytes || !reserve(device, mapped)) return OUT_OF_MEMORY;
    int file = kind == Kind::Device ? make_file(mapped) : -1;
    void* memory = kind == Kind::Device && file < 0 ? nullptr : map(mapped, file);
    if (!memory) {
        if (file >= 0) close(file);
        unreserve(device, mapped);
        return OUT_OF_MEMORY;
    }
    memset(memory, POISON, bytes < MOST_POISON ? bytes : MOST_POISON);
    *address = (uintptr_t)memory;
    memories().add(Allocation{kind, device.ordinal, *address, bytes, mapped, file, 0, 0, 0});
    return SUCCESS;
}

bool is_host(const Allocation& allocation) { return allocation.kind == Kind::Host; }
bool is_registered(const Allocation& allocation) { return allocation.kind == Kind::Registered; }
bool is_pool(const Allocation& allocation) { return allocation.kind == Kind::Pool; }
bool is_device(const Allocation& allocation) {
    return allocation.kind == Kind::Device || allocation.kind == Kind::Pool;
}

}
}

using namespace fake;

API cuMemAlloc_v2(uintptr_t* address, size_t bytes) {
    ENTER(Needs::Context);
    if (bytes == 0) return INVALID_VALUE;
    if (int failed = refuse_while_capturing()) return failed;
    return make(Kind::Device, bytes, address);
}

// As on a GPU, this may wait for all work of the device. Memory that another process has open must not
// be freed: the manual leaves the effect undefined.
API cuMemFree_v2(uintptr_t address) {
    ENTER(Needs::Context);
    if (address == 0) return SUCCESS;
    if (int failed = refuse_while_capturing()) return failed;
    Allocation removed;
    bool is_known = memories().find(address, removed);
    if (is_known && removed.kind == Kind::Device
        && count_openers(removed.file, removed.mapped) > 0) {
        fprintf(stderr, "fake driver: memory is freed while another process has it open\n");
        return ILLEGAL_STATE;
    }
    if (!memories().remove(address, removed, is_device)) return INVALID_VALUE;
    int result = synchronize_alone(*device(removed.ordinal));
    give_back(removed);
    return result;
}

API cuMemAllocAsync(uintptr_t* address, size_t bytes, void* handle) {
    ENTER(Needs::Context);
    std::shared_ptr<Stream> stream = find_stream(handle);
    if (!stream) return INVALID_HANDLE;
    if (!settings().has_pools || is_capturing(*stream)) return NOT_SUPPORTED;
    return bytes == 0 ? (int)INVALID_VALUE : make(Kind::Pool, bytes, address);
}

// The address is free for the program immediately, and the memory in stream order.
API cuMemFreeAsync(uintptr_t address, void* handle) {
    ENTER(Needs::Context);
    std::shared_ptr<Stream> stream = find_stream(handle);
    if (!stream) return INVALID_HANDLE;
    if (address == 0) return SUCCESS;
    if (is_capturing(*stream)) return NOT_SUPPORTED;
    Allocation removed;
    if (!memories().remove(address, removed, is_pool)) return INVALID_VALUE;
    submit(*stream, [removed] { give_back(removed); }, true);
    return SUCCESS;
}

API cuMemGetInfo_v2(size_t* available, size_t* total) {
    ENTER(Needs::Context);
    Device& device = current_device();
    std::lock_guard<std::mutex> guard(device.lock);
    *total = settings().memory;
    *available = *total - device.used;
    return SUCCESS;
}

API cuMemHostAlloc(void** address, size_t bytes, unsigned flags) {
    ENTER(Needs::Context);
    if (bytes == 0) return INVALID_VALUE;
    if (int failed = refuse_while_capturing()) return failed;
    size_t mapped = whole_pages(bytes);
    void* memory = map(mapped, -1);
    if (!memory) return OUT_OF_MEMORY;
    memset(memory, POISON, bytes < MOST_POISON ? bytes : MOST_POISON);
    *address = memory;
    int ordinal = current_device().ordinal;
    Allocation made{Kind::Host, ordinal, (uintptr_t)memory, bytes, mapped, -1, 0, flags, 0};
    memories().add(made);
    return SUCCESS;
}

API cuMemFreeHost(void* address) {
    ENTER(Needs::Context);
    if (!address) return SUCCESS;
    if (int failed = refuse_while_capturing()) return failed;
    Allocation removed;
    if (!memories().remove((uintptr_t)address, removed, is_host)) return INVALID_VALUE;
    int result = synchronize_alone(current_device());
    give_back(removed);
    return result;
}

// Older drivers want whole pages.
API cuMemHostRegister_v2(void* address, size_t bytes, unsigned flags) {
    ENTER(Needs::Context);
    uintptr_t start = (uintptr_t)address;
    if (start == 0 || bytes == 0 || start % PAGE != 0 || bytes % PAGE != 0) return INVALID_VALUE;
    if (int failed = refuse_while_capturing()) return failed;
    if (memories().overlaps(start, bytes)) return HOST_MEMORY_ALREADY_REGISTERED;
    int ordinal = current_device().ordinal;
    memories().add(Allocation{Kind::Registered, ordinal, start, bytes, bytes, -1, 0, flags, 0});
    return SUCCESS;
}

// As on a GPU, this may wait for all work of the device.
API cuMemHostUnregister(void* address) {
    ENTER(Needs::Context);
    if (int failed = refuse_while_capturing()) return failed;
    Allocation removed;
    bool found = memories().remove((uintptr_t)address, removed, is_registered);
    return found ? synchronize_alone(current_device()) : HOST_MEMORY_NOT_REGISTERED;
}

API cuMemHostGetDevicePointer_v2(uintptr_t* address, void* host, unsigned flags) {
    ENTER(Needs::Context);
    if (flags != 0) return INVALID_VALUE;
    Allocation found;
    if (!memories().find((uintptr_t)host, found) || found.is_of_device()) return INVALID_VALUE;
    if (found.kind == Kind::Registered && !(found.flags & DEVICEMAP)) return INVALID_VALUE;
    *address = (uintptr_t)host;
    return SUCCESS;
}

API cuMemHostGetFlags(unsigned* flags, void* host) {
    ENTER(Needs::Context);
    Allocation found;
    if (!memories().find((uintptr_t)host, found) || found.is_of_device()) return INVALID_VALUE;
    *flags = found.flags;
    return SUCCESS;
}
