// Shared by all files of the fake driver. `driver.cpp` explains its purpose.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

// Functions have the names and the parameters of NVIDIA's manual. A version script of the linker
// that makes a name local gives a driver without that function.
#define API extern "C" __attribute__((visibility("default"))) int

namespace fake {

// The `CUresult`s that the fake returns.
enum Result : int {
    SUCCESS = 0,
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    NOT_INITIALIZED = 3,
    NO_DEVICE = 100,
    INVALID_DEVICE = 101,
    INVALID_CONTEXT = 201,
    MAPPING_FAILED = 205,
    PEER_ACCESS_UNSUPPORTED = 217,
    INVALID_PTX = 218,
    UNSUPPORTED_PTX_VERSION = 222,
    FILE_NOT_FOUND = 301,
    OPERATING_SYSTEM = 304,
    INVALID_HANDLE = 400,
    ILLEGAL_STATE = 401,
    NOT_FOUND = 500,
    NOT_READY = 600,
    ILLEGAL_ADDRESS = 700,
    LAUNCH_OUT_OF_RESOURCES = 701,
    LAUNCH_TIMEOUT = 702,
    PEER_ACCESS_ALREADY_ENABLED = 704,
    PEER_ACCESS_NOT_ENABLED = 705,
    CONTEXT_IS_DESTROYED = 709,
    HOST_MEMORY_ALREADY_REGISTERED = 712,
    HOST_MEMORY_NOT_REGISTERED = 713,
    LAUNCH_FAILED = 719,
    COOPERATIVE_LAUNCH_TOO_LARGE = 720,
    NOT_SUPPORTED = 801,
    STREAM_CAPTURE_UNSUPPORTED = 900,
    STREAM_CAPTURE_INVALIDATED = 901,
    STREAM_CAPTURE_MERGE = 902,
    STREAM_CAPTURE_UNMATCHED = 903,
    STREAM_CAPTURE_UNJOINED = 904,
    STREAM_CAPTURE_ISOLATION = 905,
    STREAM_CAPTURE_IMPLICIT = 906,
    CAPTURED_EVENT = 907,
    UNKNOWN = 999,
};

// The settings of the environment. `settings.cpp` has the names of the variables.
struct Settings {
    int processors;
    int threads;
    int version;
    bool has_pools;
    bool reports_leaks;
    size_t memory;
    // Microseconds before each piece of work of a stream.
    uint64_t delay;
    // Seconds after which the host no longer waits for a device.
    uint64_t patience;
    uint64_t seed;
    std::string refused_peers;
    std::string mirrored_peers;
    bool load_waits;
    bool free_holds;
    bool whole_blocks;
    bool has_dma_buf;
    int writes_ordering;
    bool traces_captures;
    bool traces_launches;
    // Of a multiprocessor.
    unsigned registers;
    // Numbers of the devices of the machine that this process sees.
    std::vector<int> visible;
    std::string failures;
};

const Settings& settings();

// The precondition of a function.
enum class Needs { Nothing, Start, Context };

// Counts the call of a function of the driver. Returns the error that the call must return
// immediately, or SUCCESS.
int enter(const char* function, Needs needs);

#define ENTER(needs)                                          \
    if (int failed = fake::enter(__func__, needs)) return failed

// The function of the driver that the calling thread is in.
const char* current_function();

// The failure that the environment plans for this call of `name`, or SUCCESS.
int planned_failure(const char* name);

// Objects with a handle, which is the address of the object.
template <class T> class Handles {
  public:
    T* add(std::shared_ptr<T> object) {
        std::lock_guard<std::mutex> guard(lock);
        T* handle = object.get();
        live[handle] = std::move(object);
        return handle;
    }

    // Null if there is no such object.
    std::shared_ptr<T> find(const void* handle) {
        std::lock_guard<std::mutex> guard(lock);
        auto found = live.find(handle);
        return found == live.end() ? nullptr : found->second;
    }

    std::shared_ptr<T> remove(const void* handle) {
        std::lock_guard<std::mutex> guard(lock);
        auto found = live.find(handle);
        if (found == live.end()) return nullptr;
        std::shared_ptr<T> object = found->second;
        live.erase(found);
        return object;
    }

    size_t count() {
        std::lock_guard<std::mutex> guard(lock);
        return live.size();
    }

  private:
    std::mutex lock;
    std::unordered_map<const void*, std::shared_ptr<T>> live;
};

// An object that lives as long as the process: threads of streams may use it while the process
// ends.
template <class T> T& immortal() {
    static T* object = new T;
    return *object;
}

}
