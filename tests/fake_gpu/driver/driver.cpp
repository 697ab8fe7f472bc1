// A driver for tests: a `libcuda.so.1` that runs the project's kernels on a CPU. The whole
// Rust code for GPUs runs over it unchanged, in one process or in several.
//
// Devices are numbers, their memory is memory of the host, and a stream is an OS thread with a
// queue. A launch runs the text of `walk.cu` and `map.cu`, compiled for the CPU, as fibers of the
// thread of its stream. Memory of `cuMemAlloc_v2` can be opened by other processes. Modules are
// the real PTX: the fake looks up names in it, and does not execute it.
//
// The fake does not show:
// - the memory model of a GPU, its caches, and the order of writes over NVLink and PCIe;
// - the scheduling of a GPU: warps, hardware queues that several streams share, time slices of
//   several processes on one GPU. Only the registers of a device limit how many blocks run at a
//   time;
// - whether a kernel may reach memory of another device: it reaches all memory of its process,
//   also without peer access and in pools;
// - how long a free, or the load of a module, really waits: here for all work of the device, as the
//   manual allows, and with FAKE_CUDA_FREE_HOLDS no thread starts work meanwhile, as with real
//   drivers;
// - memory that is allocated and freed in a graph: the fake refuses to capture that;
// - speed, and how long a real driver compiles PTX.

#include "devices.h"
#include "leaks.h"

#include <atomic>
#include <pthread.h>

namespace fake {
namespace {

std::atomic<bool> started{false};
std::atomic<bool> forked{false};
thread_local const char* function_of_thread = "";

}

const char* current_function() { return function_of_thread; }

int check_start() { return started && !forked ? SUCCESS : NOT_INITIALIZED; }

int enter(const char* function, Needs needs) {
    function_of_thread = function;
    if (int planned = planned_failure(function)) return planned;
    if (needs == Needs::Nothing) return SUCCESS;
    if (int failed = check_start()) return failed;
    return needs == Needs::Context ? check_context() : SUCCESS;
}

}

using namespace fake;

API cuInit(unsigned flags) {
    ENTER(Needs::Nothing);
    if (flags != 0) return INVALID_VALUE;
    if (devices().empty()) return NO_DEVICE;
    // A child of a fork has no threads of streams. A real driver does not work there either.
    if (!started.exchange(true)) pthread_atfork(nullptr, nullptr, [] { forked = true; });
    return check_start();
}

API cuDriverGetVersion(int* version) {
    ENTER(Needs::Nothing);
    *version = settings().version;
    return SUCCESS;
}

// Runs when the process ends in an orderly way.
__attribute__((destructor)) static void at_exit() {
    if (started && !forked && settings().reports_leaks) report_leaks();
}
