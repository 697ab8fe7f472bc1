// A GPU that computes layers, on a CPU: the threads of a block are fibers. Reads commands from
// standard input, writes the bytes of `read` to standard output. All numbers of a command are 64
// bits, little endian; `examples/trainer/tests/gpu_device/` writes them.
//
//   0 bytes            resizes the memory; its content stays
//   1 at bytes data    writes to the memory
//   2 at bytes         reads from the memory
//   3 type length-of-name name blocks threads words, and for each word: 1 if it is a place in the
//     memory, else 0; its bits
//
// The exit code is 2 if a command is wrong, and 3 if the threads of a block waited for one
// another.

#define EMULATED
#include "layers.h"

#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

namespace {

// Looks in a row, by all fibers together, after which nothing can come any more.
constexpr uint64_t PATIENCE = 1000;

// A kernel for floats and for doubles.
struct Kernel {
    size_t parameters;
    void (*single)(const u64*);
    void (*twice)(const u64*);
};

#define ENTRY(name, waits)                            \
    {#name,                                           \
     {layers::Call<layers::single::name>::PARAMETERS, \
      layers::Call<layers::single::name>::with,       \
      layers::Call<layers::twice::name>::with}},

const std::map<std::string, Kernel> KERNELS = {LAYER_KERNELS(ENTRY)};

void read(void* into, size_t bytes) {
    if (bytes > 0 && fread(into, 1, bytes, stdin) != bytes) exit(2);
}

u64 read_number() {
    u64 number;
    read(&number, sizeof number);
    return number;
}

void run(char* memory) {
    u64 type = read_number();
    std::string name(read_number(), ' ');
    read(&name[0], name.size());
    u64 blocks = read_number();
    unsigned threads = (unsigned)read_number();
    std::vector<u64> words(read_number());
    for (u64& word : words) {
        u64 is_place = read_number();
        word = read_number() + (is_place ? (u64)memory : 0);
    }
    auto found = KERNELS.find(name);
    if (found == KERNELS.end() || words.size() != found->second.parameters) exit(2);
    auto launch = type == 4 ? found->second.single : found->second.twice;
    for (emulated_block = 0; emulated_block < blocks; emulated_block++) {
        auto body = [&] { launch(words.data()); };
        if (!fibers::run(1, threads, emulated_block + 1, PATIENCE, body)) exit(3);
    }
}

}

int main() {
    std::vector<double> memory;
    for (;;) {
        u64 command;
        if (fread(&command, 1, sizeof command, stdin) != sizeof command) return 0;
        if (command == 0) {
            memory.resize(read_number() / sizeof(double) + 1);
            continue;
        }
        char* start = (char*)memory.data();
        if (command == 3) {
            run(start);
            continue;
        }
        u64 at = read_number();
        u64 bytes = read_number();
        if (at + bytes > memory.size() * sizeof(double)) return 2;
        if (command == 1) read(start + at, bytes);
        if (command == 2 && (fwrite(start + at, 1, bytes, stdout) != bytes || fflush(stdout))) {
            return 2;
        }
    }
}
