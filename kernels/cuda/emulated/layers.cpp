// A GPU that computes layers, on a CPU: the threads of a block are fibers. Reads commands from
// standard input, writes what `read` asks for to standard output. All numbers of a command are 64
// bits, little endian; `examples/trainer/tests/gpu_device/` writes them.
//
//   0 bytes            makes the memory this long; what it held stays
//   1 at bytes data    writes to the memory
//   2 at bytes         reads from the memory
//   3 type length-of-name name blocks threads words, and for each word: 1 if it is a place in the
//     memory, else 0; its bits
//
// The exit code is 2 if a command is wrong, and 3 if the threads of a block waited for one
// another.

#define EMULATED
#include "../layers/layer.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace single {
#define REAL float
#include "../layers/all.cu"
#undef REAL
}
namespace twice {
#define REAL double
#include "../layers/all.cu"
#undef REAL
}

namespace {

// Looks in a row, by all fibers together, after which nothing can come any more.
constexpr uint64_t PATIENCE = 1000;

typedef void (*Launch)(const std::vector<u64>&);

template <class T> T value_of(u64 word) {
    static_assert(sizeof(T) == 8, "every parameter takes eight bytes");
    T value;
    memcpy(&value, &word, sizeof value);
    return value;
}

template <auto Kernel> struct Call;
template <class... A, void (*Kernel)(A...)> struct Call<Kernel> {
    static void with(const std::vector<u64>& words) {
        if (words.size() != sizeof...(A)) exit(2);
        spread(words, std::index_sequence_for<A...>());
    }
    template <size_t... I>
    static void spread(const std::vector<u64>& words, std::index_sequence<I...>) {
        Kernel(value_of<A>(words[I])...);
    }
};

#define BOTH(name) {#name, {Call<single::name>::with, Call<twice::name>::with}}

const std::map<std::string, std::pair<Launch, Launch>> KERNELS = {
    BOTH(product),
    BOTH(bias),
    BOTH(bias_backward),
    BOTH(add),
    BOTH(layer_norm),
    BOTH(layer_norm_backward),
    BOTH(layer_norm_backward_weights),
    BOTH(rms_norm),
    BOTH(rms_norm_backward),
    BOTH(rms_norm_backward_weights),
    BOTH(turn),
    BOTH(causal_softmax),
    BOTH(softmax_backward),
    BOTH(gelu),
    BOTH(gelu_backward),
    BOTH(swiglu),
    BOTH(swiglu_backward),
    BOTH(embed),
    BOTH(embed_backward),
    BOTH(cross_entropy),
};

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
    if (found == KERNELS.end()) exit(2);
    Launch launch = type == 4 ? found->second.first : found->second.second;
    for (emulated_block = 0; emulated_block < blocks; emulated_block++) {
        auto body = [&] { launch(words); };
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
