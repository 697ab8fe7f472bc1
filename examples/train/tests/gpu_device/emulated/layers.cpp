// The kernels of layers, for the fake driver of `tests/fake_gpu/driver/`.
#define EMULATED
#include "layers.h"

#include "driver/kernels.h"

namespace fake {
namespace {

// As many parameters as any kernel has.
constexpr size_t MOST = 20;
const size_t EIGHT[MOST] = {8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8};

template <auto Kernel> constexpr size_t parameters() {
    constexpr size_t count = layers::Call<Kernel>::PARAMETERS;
    static_assert(count <= MOST, "a size for each parameter");
    return count;
}

template <auto Kernel> void run(void** addresses) {
    u64 words[MOST];
    for (size_t at = 0; at < parameters<Kernel>(); at++) words[at] = *(u64*)addresses[at];
    layers::Call<Kernel>::with(words);
}

#define SINGLE(name, waits) LAYER("layers_f32", single, name, waits)
#define TWICE(name, waits) LAYER("layers_f64", twice, name, waits)
#define LAYER(module, type, name, waits)                                                  \
    {#name, module, EIGHT, parameters<layers::type::name>(), run<layers::type::name>, waits, \
     64, 20000, true},

const Kernel LAYERS[] = {LAYER_KERNELS(SINGLE) LAYER_KERNELS(TWICE)};

const KernelTable TABLE(LAYERS);

}
}
