#include "modules.h"
#include "streams.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>

namespace fake {
namespace {

// Two modules have kernels of the same names. A hash of its text identifies a module.
struct KnownModule {
    uint64_t hash;
    const char* name;
};

const KnownModule KNOWN[] = {
#include "modules.inc"
    {0, nullptr},
};

// FNV-1a with 64 bits, as the harness computes it.
uint64_t hash(const std::string& text) {
    uint64_t hash = 0xcbf29ce484222325;
    for (unsigned char byte : text) hash = (hash ^ byte) * 0x100000001b3;
    return hash;
}

const char* name_of(const Module& module) {
    uint64_t wanted = hash(module.text);
    for (const KnownModule& known : KNOWN) {
        if (known.name && known.hash == wanted) return known.name;
    }
    return "";
}

// PTX 8.1 is that of CUDA 12.1. A driver supports no later PTX than its own.
int check_version(const std::string& text) {
    size_t at = text.find(".version ");
    if (at == std::string::npos || text.find(".target ") == std::string::npos) return INVALID_PTX;
    int major = 0;
    int minor = 0;
    if (sscanf(text.c_str() + at, ".version %d.%d", &major, &minor) != 2) return INVALID_PTX;
    int newest = (settings().version / 1000 - 4) * 10 + settings().version % 1000 / 10;
    return major * 10 + minor > newest ? UNSUPPORTED_PTX_VERSION : SUCCESS;
}

int load(void** made, const std::string& text) {
    if (int failed = refuse_while_capturing()) return failed;
    if (int failed = check_version(text)) return failed;
    if (settings().load_waits) {
        if (int failed = synchronize_alone(current_device())) return failed;
    }
    auto module = std::make_shared<Module>();
    module->text = text;
    module->device = &current_device();
    *made = modules().add(module);
    return SUCCESS;
}

const Kernel* find_kernel(const Module& module, const char* name) {
    const char* of = name_of(module);
    for (const KernelTable* table = KernelTable::all; table; table = table->next) {
        for (const Kernel* kernel = table->first; kernel < table->first + table->count; kernel++) {
            bool is_in = !kernel->module || strcmp(kernel->module, of) == 0;
            if (is_in && strcmp(kernel->name, name) == 0) return kernel;
        }
    }
    return nullptr;
}

}

const KernelTable* KernelTable::all = nullptr;

Handles<Module>& modules() { return immortal<Handles<Module>>(); }
Handles<Function>& functions() { return immortal<Handles<Function>>(); }

int occupancy(const Kernel& kernel, unsigned threads, size_t shared_bytes) {
    if (threads == 0 || threads > MOST_THREADS) return 0;
    const unsigned most_threads = 2048;
    const size_t most_shared = 228 << 10;
    unsigned by_threads = most_threads / threads;
    unsigned by_registers = settings().registers / (threads * (unsigned)kernel.registers);
    size_t by_shared = most_shared / ((size_t)kernel.shared_bytes + shared_bytes + 1024);
    unsigned least = by_threads < by_registers ? by_threads : by_registers;
    return (int)(least < by_shared ? least : by_shared);
}

}

using namespace fake;

API cuModuleLoadData(void** made, const void* image) {
    ENTER(Needs::Context);
    if (!image) return INVALID_VALUE;
    return load(made, (const char*)image);
}

API cuModuleLoadDataEx(void** made, const void* image, unsigned, int*, void**) {
    return cuModuleLoadData(made, image);
}

API cuModuleLoad(void** made, const char* path) {
    ENTER(Needs::Context);
    std::ifstream file(path);
    if (!file) return FILE_NOT_FOUND;
    return load(made, std::string(std::istreambuf_iterator<char>(file), {}));
}

API cuModuleUnload(void* handle) {
    ENTER(Needs::Context);
    std::shared_ptr<Module> module = modules().remove(handle);
    if (!module) return INVALID_HANDLE;
    std::lock_guard<std::mutex> guard(module->lock);
    for (Function* function : module->functions) functions().remove(function);
    return SUCCESS;
}

API cuModuleGetFunction(void** made, void* handle, const char* name) {
    ENTER(Needs::Context);
    std::shared_ptr<Module> module = modules().find(handle);
    if (!module) return INVALID_HANDLE;
    std::string entry = std::string(".entry ") + name + "(";
    if (module->text.find(entry) == std::string::npos) return NOT_FOUND;
    const Kernel* kernel = find_kernel(*module, name);
    if (!kernel) {
        fprintf(stderr, "fake driver: kernel '%s' is not compiled for the CPU\n", name);
        return NOT_SUPPORTED;
    }
    auto function = std::make_shared<Function>(Function{kernel, module->device, handle});
    std::lock_guard<std::mutex> guard(module->lock);
    module->functions.push_back(functions().add(function));
    *made = function.get();
    return SUCCESS;
}

API cuModuleGetGlobal_v2(uintptr_t*, size_t*, void* handle, const char*) {
    ENTER(Needs::Context);
    return modules().find(handle) ? NOT_FOUND : INVALID_HANDLE;
}

API cuFuncGetModule(void** module, void* handle) {
    ENTER(Needs::Context);
    std::shared_ptr<Function> function = functions().find(handle);
    if (!function) return INVALID_HANDLE;
    *module = function->module;
    return SUCCESS;
}

API cuFuncGetAttribute(int* value, int attribute, void* handle) {
    ENTER(Needs::Context);
    std::shared_ptr<Function> function = functions().find(handle);
    if (!function) return INVALID_HANDLE;
    // In the order of `CUfunction_attribute`: threads, shared, constant and local bytes,
    // registers, versions of the PTX and of the code, cache mode, dynamic shared bytes.
    const int values[] = {(int)MOST_THREADS, function->kernel->shared_bytes, 0, 0,
                          function->kernel->registers, 70, 90, 0, 49152};
    if (attribute < 0 || attribute >= (int)(sizeof values / sizeof *values)) return INVALID_VALUE;
    *value = values[attribute];
    return SUCCESS;
}

API cuFuncSetAttribute(void* handle, int, int) {
    ENTER(Needs::Context);
    return functions().find(handle) ? SUCCESS : INVALID_HANDLE;
}

API cuFuncSetCacheConfig(void* handle, int) {
    ENTER(Needs::Context);
    return functions().find(handle) ? SUCCESS : INVALID_HANDLE;
}

API cuFuncLoad(void* handle) {
    ENTER(Needs::Context);
    return functions().find(handle) ? SUCCESS : INVALID_HANDLE;
}

API cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, void* handle, int threads,
                                                         size_t shared_bytes, unsigned) {
    ENTER(Needs::Context);
    std::shared_ptr<Function> function = functions().find(handle);
    if (!function) return INVALID_HANDLE;
    if (threads <= 0) return INVALID_VALUE;
    *blocks = occupancy(*function->kernel, (unsigned)threads, shared_bytes);
    return SUCCESS;
}

API cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, void* handle, int threads,
                                                size_t shared_bytes) {
    ENTER(Needs::Context);
    std::shared_ptr<Function> function = functions().find(handle);
    if (!function) return INVALID_HANDLE;
    if (threads <= 0) return INVALID_VALUE;
    *blocks = occupancy(*function->kernel, (unsigned)threads, shared_bytes);
    return SUCCESS;
}
