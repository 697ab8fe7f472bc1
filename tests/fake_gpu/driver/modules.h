// Modules and their kernels.
#pragma once
#include "devices.h"
#include "kernels.h"

#include <vector>

namespace fake {

// A kernel of a loaded module. Its handle is the address of this.
struct Function {
    const Kernel* kernel;
    Device* device;
    void* module;
};

struct Module {
    std::string text;
    Device* device;
    std::mutex lock;
    std::vector<Function*> functions;
};

Handles<Module>& modules();
Handles<Function>& functions();

// Blocks of a kernel that fit on one multiprocessor at a time.
int occupancy(const Kernel& kernel, unsigned threads, size_t shared_bytes);

// The most threads of a block of any kernel of this project.
constexpr unsigned MOST_THREADS = 512;

}
