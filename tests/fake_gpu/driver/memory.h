// Memory of the driver.
#pragma once
#include "devices.h"

#include <functional>

namespace fake {

enum class Kind {
    // Of `cuMemAlloc_v2`: other processes can open it.
    Device,
    // Of `cuMemAllocAsync`: no other process can open it.
    Pool,
    // Of `cuMemHostAlloc`.
    Host,
    // Memory of the program, by `cuMemHostRegister_v2`.
    Registered,
    // Memory of another process.
    Opened,
};

struct Allocation {
    Kind kind;
    int ordinal;
    uintptr_t start;
    // As requested, and as mapped.
    size_t bytes;
    size_t mapped;
    // The file of memory that other processes can open, or that this process opened.
    int file = -1;
    // Which of all allocations of the process this is.
    uint64_t number = 0;
    // Flags of host memory; how often memory of another process was opened.
    unsigned flags = 0;
    unsigned opened = 0;

    bool is_of_device() const;
};

// All memory by its address.
class Memories {
  public:
    // Keeps the allocation, and gives it a number.
    void add(Allocation allocation);
    // The allocation in which `address` lies. False if there is none.
    bool find(uintptr_t address, Allocation& found);
    // Removes the allocation that starts there, if `is_right` accepts it.
    bool remove(uintptr_t start, Allocation& removed,
                const std::function<bool(const Allocation&)>& is_right);
    // True if some memory lies in these bytes.
    bool overlaps(uintptr_t start, size_t bytes);
    // True if all these bytes are of one allocation.
    bool contains(uintptr_t start, size_t bytes);
    // Calls `edit` for every allocation, until it returns true.
    bool any(const std::function<bool(Allocation&)>& edit);

  private:
    bool find_locked(uintptr_t address, Allocation& found);

    std::mutex lock;
    std::unordered_map<uintptr_t, Allocation> by_start;
    uint64_t count = 0;
};

Memories& memories();

// The page after memory that other processes can open has their numbers.
constexpr unsigned MOST_OPENERS = 64;

// Records that this process has the memory of `file` open, or no longer.
void note_opener(int file, size_t mapped, bool opens);
// How many processes that have not ended have it open.
unsigned count_openers(int file, size_t mapped);

// Unmaps memory that is no longer in the table, and counts it as free.
void give_back(const Allocation& allocation);

}
