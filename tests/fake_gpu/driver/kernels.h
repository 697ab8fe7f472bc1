// The kernels of this project, compiled for the CPU.
#pragma once
#include <cstddef>

namespace fake {

struct Kernel {
    const char* name;
    // The module with which `name` makes a pair; null if the name is complete.
    const char* module;
    // Sizes of the parameters in bytes.
    const size_t* parameters;
    size_t parameter_count;
    // As one of the GPU's threads, with the addresses of its parameters.
    void (*run)(void** parameters);
    // True if threads wait for other blocks, other kernels or the host.
    bool waits;
    // The report of a GPU's compiler.
    int registers;
    int shared_bytes;
    // True if all threads of a block run, in spite of FAKE_CUDA_THREADS: the kernel is made for one
    // number of threads.
    bool runs_whole_blocks = false;
};

// The kernels of one file. The driver finds those of all files that are linked to it.
struct KernelTable {
    const Kernel* first;
    size_t count;
    const KernelTable* next;

    template <size_t N> explicit KernelTable(const Kernel (&kernels)[N])
        : first(kernels), count(N), next(all) {
        all = this;
    }

    static const KernelTable* all;
};

}
