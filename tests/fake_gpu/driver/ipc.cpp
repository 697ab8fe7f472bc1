// Memory of another process. A handle has the path of the memory's file in that process.
#include "memory.h"
#include "streams.h"

#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

// 64 bytes, as `CUipcMemHandle`.
struct MemoryHandle {
    uint64_t magic;
    int64_t process;
    int64_t file;
    // Which file it is: its number may have been given to another one.
    uint64_t device_of_file;
    uint64_t number_of_file;
    uint64_t bytes;
    // The number of the device in the machine.
    int64_t number;
    uint64_t unused;
};
static_assert(sizeof(MemoryHandle) == 64, "the size of CUipcMemHandle");

namespace fake {
namespace {

constexpr uint64_t MAGIC = 0x6c6f70796170203a;
constexpr unsigned LAZY_ENABLE_PEER_ACCESS = 1;

bool is_file(int file, const MemoryHandle& handle) {
    struct stat status;
    return fstat(file, &status) == 0 && status.st_dev == handle.device_of_file
        && status.st_ino == handle.number_of_file;
}

// The file of a handle, opened. -1 if the other process has closed it, or has ended.
int open_file(const MemoryHandle& handle) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%lld/fd/%lld", (long long)handle.process,
             (long long)handle.file);
    int file = open(path, O_RDWR | O_CLOEXEC);
    if (file < 0 || is_file(file, handle)) return file;
    close(file);
    return -1;
}

// If this process has opened the memory already, counts one more and returns its address.
bool open_again(const MemoryHandle& handle, uintptr_t* address) {
    return memories().any([&](Allocation& one) {
        if (one.kind != Kind::Opened || !is_file(one.file, handle)) return false;
        one.opened += 1;
        *address = one.start;
        return true;
    });
}

// The device of that number, or the current one if this process does not see it.
int ordinal_of(int64_t number) {
    for (Device* device : devices()) {
        if (device->number == number) return device->ordinal;
    }
    return current_device().ordinal;
}

int open_first(const MemoryHandle& handle, uintptr_t* address) {
    int file = open_file(handle);
    if (file < 0) return INVALID_HANDLE;
    size_t mapped = (handle.bytes + 4095) / 4096 * 4096;
    int kind = is_mirrored(current_device().number, (int)handle.number) ? MAP_PRIVATE : MAP_SHARED;
    void* memory = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, kind, file, 0);
    if (memory == MAP_FAILED) {
        close(file);
        return MAPPING_FAILED;
    }
    *address = (uintptr_t)memory;
    int ordinal = ordinal_of(handle.number);
    Allocation opened{Kind::Opened, ordinal, *address, handle.bytes, mapped, file, 0, 0, 1};
    memories().add(opened);
    note_opener(file, mapped, true);
    return SUCCESS;
}

}
}

using namespace fake;

// The handle is of the whole allocation in which the address lies, as on a GPU.
API cuIpcGetMemHandle(MemoryHandle* handle, uintptr_t address) {
    ENTER(Needs::Context);
    Allocation found;
    bool known = memories().find(address, found);
    if (!known || found.kind != Kind::Device) return INVALID_VALUE;
    // The manual requires such lengths: the driver shares the whole block of memory.
    if (settings().whole_blocks && found.bytes % (2 << 20) != 0) return INVALID_VALUE;
    struct stat status;
    if (fstat(found.file, &status) != 0) return OPERATING_SYSTEM;
    *handle = MemoryHandle{MAGIC, getpid(), found.file, status.st_dev, status.st_ino, found.bytes,
                           device(found.ordinal)->number, 0};
    return SUCCESS;
}

API cuIpcOpenMemHandle_v2(uintptr_t* address, MemoryHandle handle, unsigned flags) {
    ENTER(Needs::Context);
    if (flags != LAZY_ENABLE_PEER_ACCESS) return INVALID_VALUE;
    if (int failed = refuse_while_capturing()) return failed;
    if (handle.magic != MAGIC) return INVALID_HANDLE;
    if (handle.process == getpid()) return INVALID_CONTEXT;
    int mine = current_device().number;
    if (mine != handle.number && !is_reachable(mine, (int)handle.number)) {
        return MAPPING_FAILED;
    }
    return open_again(handle, address) ? (int)SUCCESS : open_first(handle, address);
}

// As on a GPU, this may wait for all work of the device.
API cuIpcCloseMemHandle(uintptr_t address) {
    ENTER(Needs::Context);
    if (int failed = refuse_while_capturing()) return failed;
    bool is_last = false;
    bool found = memories().any([&](Allocation& one) {
        if (one.kind != Kind::Opened || one.start != address) return false;
        one.opened -= 1;
        is_last = one.opened == 0;
        return true;
    });
    if (!found) return INVALID_VALUE;
    if (!is_last) return SUCCESS;
    Allocation removed;
    memories().remove(address, removed, [](const Allocation&) { return true; });
    int result = synchronize_alone(current_device());
    note_opener(removed.file, removed.mapped, false);
    give_back(removed);
    return result;
}

// A file of the memory stands for the dma-buf: whoever maps it has the same pages.
API cuMemGetHandleForAddressRange(int* file, uintptr_t address, size_t bytes, int type, uint64_t flags) {
    ENTER(Needs::Context);
    const int dma_buf = 1;
    if (type != dma_buf || flags != 0) return INVALID_VALUE;
    if (!settings().has_dma_buf) return NOT_SUPPORTED;
    Allocation found;
    bool known = memories().find(address, found);
    bool whole = address % 4096 == 0 && bytes % 4096 == 0;
    if (!known || found.kind != Kind::Device || !whole) return INVALID_VALUE;
    if (address != found.start || bytes > found.mapped) return INVALID_VALUE;
    *file = fcntl(found.file, F_DUPFD_CLOEXEC, 0);
    return *file < 0 ? (int)OPERATING_SYSTEM : (int)SUCCESS;
}
