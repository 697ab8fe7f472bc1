// Launches of kernels.
#include "modules.h"
#include "streams.h"

#include <cstdio>
#include <cstring>

namespace fake {
namespace {

struct Dimensions {
    unsigned x;
    unsigned y;
    unsigned z;
    bool are_one_by_one() const { return y == 1 && z == 1; }
};

// Room for blocks in the registers of a device.
class RegisterSeats : public fibers::Seats {
  public:
    RegisterSeats(Registers& registers, long each) : registers(registers), each(each) {}
    bool take(unsigned blocks) override { return registers.take(each * (long)blocks); }
    void give() override { registers.give(each); }

  private:
    Registers& registers;
    const long each;
};

// The values of the parameters, which a launch copies.
class Arguments {
  public:
    Arguments(const Kernel& kernel, void** from) {
        for (size_t at = 0; at < kernel.parameter_count; at++) {
            // Whole words, so that each value has its type's alignment.
            std::vector<uint64_t> value((kernel.parameters[at] + 7) / 8);
            memcpy(value.data(), from[at], kernel.parameters[at]);
            values.push_back(std::move(value));
        }
        for (auto& value : values) addresses.push_back(value.data());
    }
    Arguments(const Arguments&) = delete;
    void** get() { return addresses.data(); }

  private:
    std::vector<std::vector<uint64_t>> values;
    std::vector<void*> addresses;
};

struct Request {
    void* function;
    Dimensions grid;
    Dimensions block;
    unsigned shared_bytes;
    void* stream;
    void** parameters;
    bool cooperative;
};

uint64_t next_seed() {
    static std::atomic<uint64_t> launches{0};
    return settings().seed * 1000003 + launches++;
}

void run(const Kernel& kernel, Device& device, const fibers::Grid& grid, long registers,
         Arguments& arguments) {
    if (int planned = planned_failure("kernel")) {
        device.error = planned;
        return;
    }
    auto thread = [&] { kernel.run(arguments.get()); };
    if (!kernel.waits) return fibers::run_in_turn(grid, thread);
    RegisterSeats seats(device.registers, registers);
    fibers::run_among_threads(grid, seats, thread);
}

int check(const Request& request, const Kernel& kernel) {
    if (!request.parameters || !request.grid.are_one_by_one()) return INVALID_VALUE;
    if (request.grid.x == 0 || request.block.x == 0) return INVALID_VALUE;
    if (!request.block.are_one_by_one()) return INVALID_VALUE;
    int fitting = occupancy(kernel, request.block.x, request.shared_bytes);
    if (fitting == 0) return LAUNCH_OUT_OF_RESOURCES;
    uint64_t most = (uint64_t)fitting * (uint64_t)settings().processors;
    bool too_large = request.cooperative && request.grid.x > most;
    return too_large ? COOPERATIVE_LAUNCH_TOO_LARGE : SUCCESS;
}

int launch(const Request& request) {
    std::shared_ptr<Function> function = functions().find(request.function);
    std::shared_ptr<Stream> stream = find_stream(request.stream);
    if (!function || !stream || function->device != &stream->device) return INVALID_HANDLE;
    const Kernel& kernel = *function->kernel;
    if (int failed = check(request, kernel)) return failed;
    int fitting = occupancy(kernel, request.block.x, request.shared_bytes);
    if (settings().traces_launches) fprintf(stderr, "launch %s %u\n", kernel.name, request.grid.x);
    long registers = (long)settings().registers / fitting;
    unsigned most = kernel.runs_whole_blocks ? request.block.x : (unsigned)settings().threads;
    unsigned threads = request.block.x < most ? request.block.x : most;
    fibers::Grid grid{request.grid.x, threads, next_seed(), request.cooperative};
    auto arguments = std::make_shared<Arguments>(kernel, request.parameters);
    Device& device = stream->device;
    std::shared_lock<std::shared_mutex> starts(device.starting);
    return enqueue(*stream, [=, &kernel, &device] {
        run(kernel, device, grid, registers, *arguments);
    });
}

// `CUlaunchConfig`.
struct LaunchConfig {
    Dimensions grid;
    Dimensions block;
    unsigned shared_bytes;
    void* stream;
    const void* attributes;
    unsigned attribute_count;
};

}
}

using namespace fake;

API cuLaunchKernel(void* function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                   unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                   void* stream, void** parameters, void** extra) {
    ENTER(Needs::Context);
    if (extra) return NOT_SUPPORTED;
    return launch(Request{function, {grid_x, grid_y, grid_z}, {block_x, block_y, block_z},
                          shared_bytes, stream, parameters, false});
}

API cuLaunchCooperativeKernel(void* function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                              unsigned block_x, unsigned block_y, unsigned block_z,
                              unsigned shared_bytes, void* stream, void** parameters) {
    ENTER(Needs::Context);
    return launch(Request{function, {grid_x, grid_y, grid_z}, {block_x, block_y, block_z},
                          shared_bytes, stream, parameters, true});
}

// Attributes of launches are not emulated.
API cuLaunchKernelEx(const LaunchConfig* config, void* function, void** parameters, void** extra) {
    ENTER(Needs::Context);
    if (extra || config->attribute_count > 0) return NOT_SUPPORTED;
    return launch(Request{function, config->grid, config->block, config->shared_bytes,
                          config->stream, parameters, false});
}
