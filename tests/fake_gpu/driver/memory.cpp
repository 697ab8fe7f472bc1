// The table of memory.
#include "memory.h"

#include <sys/mman.h>
#include <unistd.h>

namespace fake {

bool Allocation::is_of_device() const {
    return kind == Kind::Device || kind == Kind::Pool || kind == Kind::Opened;
}

Memories& memories() { return immortal<Memories>(); }

void Memories::add(Allocation allocation) {
    std::lock_guard<std::mutex> guard(lock);
    count += 1;
    allocation.number = count;
    by_start[allocation.start] = allocation;
}

bool Memories::find_locked(uintptr_t address, Allocation& found) {
    for (auto& entry : by_start) {
        const Allocation& one = entry.second;
        if (address >= one.start && address < one.start + one.bytes) {
            found = one;
            return true;
        }
    }
    return false;
}

bool Memories::find(uintptr_t address, Allocation& found) {
    std::lock_guard<std::mutex> guard(lock);
    return find_locked(address, found);
}

bool Memories::remove(uintptr_t start, Allocation& removed,
                      const std::function<bool(const Allocation&)>& is_right) {
    std::lock_guard<std::mutex> guard(lock);
    auto found = by_start.find(start);
    if (found == by_start.end() || !is_right(found->second)) return false;
    removed = found->second;
    by_start.erase(found);
    return true;
}

bool Memories::overlaps(uintptr_t start, size_t bytes) {
    std::lock_guard<std::mutex> guard(lock);
    for (auto& entry : by_start) {
        const Allocation& one = entry.second;
        if (start < one.start + one.bytes && one.start < start + bytes) return true;
    }
    return false;
}

bool Memories::contains(uintptr_t start, size_t bytes) {
    std::lock_guard<std::mutex> guard(lock);
    Allocation found;
    return find_locked(start, found) && bytes <= found.start + found.bytes - start;
}

bool Memories::any(const std::function<bool(Allocation&)>& edit) {
    std::lock_guard<std::mutex> guard(lock);
    for (auto& entry : by_start) {
        if (edit(entry.second)) return true;
    }
    return false;
}

unsigned count_openers(int file, size_t mapped, int change) {
    size_t page = sizeof(std::atomic<unsigned>);
    void* behind = mmap(nullptr, page, PROT_READ | PROT_WRITE, MAP_SHARED, file, (off_t)mapped);
    if (behind == MAP_FAILED) return 0;
    auto& count = *(std::atomic<unsigned>*)behind;
    unsigned now = count.fetch_add((unsigned)change) + (unsigned)change;
    munmap(behind, page);
    return now;
}

void give_back(const Allocation& allocation) {
    if (allocation.kind != Kind::Registered) munmap((void*)allocation.start, allocation.mapped);
    if (allocation.file >= 0) close(allocation.file);
    if (allocation.kind != Kind::Device && allocation.kind != Kind::Pool) return;
    Device& owner = *device(allocation.ordinal);
    std::lock_guard<std::mutex> guard(owner.lock);
    owner.used -= allocation.mapped;
}

}
