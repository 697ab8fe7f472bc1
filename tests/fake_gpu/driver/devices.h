// Devices, their primary contexts, and the context of each thread.
#pragma once
#include "emulated/fibers.h"
#include "driver.h"

#include <atomic>
#include <set>
#include <shared_mutex>
#include <vector>

namespace fake {

struct Stream;

constexpr unsigned REGISTERS = 65536;

// The registers of a device, of which each block of a running kernel has some.
class Registers {
  public:
    explicit Registers(long all) : left(all) {}
    bool take(long count);
    void give(long count) { left += count; }

  private:
    std::atomic<long> left;
};

// A device, and its primary context, whose handle is the address of this.
struct Device {
    Device(int ordinal, int number);

    // Its number in this process, and in the machine.
    const int ordinal;
    const int number;
    Registers registers;
    // Held while anything below is used.
    std::mutex lock;
    unsigned retained = 0;
    std::set<int> peers;
    size_t used = 0;
    std::vector<std::weak_ptr<Stream>> streams;
    std::shared_ptr<Stream> null_stream;
    // Held in common while work is started, and alone while freeing or loading waits for the device.
    std::shared_mutex starting;
    // The error of a kernel that failed. It ends the context: all later calls return it.
    std::atomic<int> error{SUCCESS};
};

// All devices of this process.
std::vector<Device*>& devices();

// The device of that number, or null.
Device* device(int ordinal);

// The device whose primary context has this handle, or null.
Device* device_of_context(const void* context);

// The device of the calling thread's context. Valid if ENTER required one.
Device& current_device();

// True if kernels of one device can reach the memory of another, by their numbers in the machine.
bool is_reachable(int from, int to);
// True if writes of one device to the other's memory do not arrive.
bool is_mirrored(int from, int to);

// SUCCESS if the driver has started in this process.
int check_start();
// SUCCESS if the calling thread has a context that works.
int check_context();

// How many contexts are retained.
size_t retained_contexts();

}
