// The table of memory.
#include "memory.h"

#include <cerrno>
#include <csignal>
#include <cstdio>
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

// True if the process has ended, and its parent has not noticed: it has nothing open any more.
static bool is_zombie(int process) {
    char name[64];
    snprintf(name, sizeof name, "/proc/%d/stat", process);
    FILE* file = fopen(name, "r");
    if (!file) return true;
    char state = '?';
    bool read = fscanf(file, "%*d (%*[^)]) %c", &state) == 1;
    fclose(file);
    return read && (state == 'Z' || state == 'X');
}

// Calls `edit` with the places for the numbers of the processes that have memory open.
static void with_openers(int file, size_t mapped,
                         const std::function<void(std::atomic<int>*)>& edit) {
    size_t bytes = MOST_OPENERS * sizeof(std::atomic<int>);
    void* behind = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, (off_t)mapped);
    if (behind == MAP_FAILED) return;
    edit((std::atomic<int>*)behind);
    munmap(behind, bytes);
}

void note_opener(int file, size_t mapped, bool opens) {
    int from = opens ? 0 : getpid();
    int to = opens ? getpid() : 0;
    with_openers(file, mapped, [&](std::atomic<int>* places) {
        for (unsigned at = 0; at < MOST_OPENERS; at++) {
            int expected = from;
            if (places[at].compare_exchange_strong(expected, to)) return;
        }
    });
}

unsigned count_openers(int file, size_t mapped) {
    unsigned count = 0;
    with_openers(file, mapped, [&](std::atomic<int>* places) {
        for (unsigned at = 0; at < MOST_OPENERS; at++) {
            int process = places[at];
            count += process != 0 && (kill(process, 0) == 0 || errno == EPERM) && !is_zombie(process);
        }
    });
    return count;
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
