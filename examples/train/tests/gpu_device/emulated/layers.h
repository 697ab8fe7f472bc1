// The kernels of layers for both types of numbers, and the arguments of a launch.
#pragma once
#include "layer.h"

#include <cstring>
#include <utility>

namespace layers {

namespace single {
#define REAL float
#include "all.cu"
#undef REAL
}
namespace twice {
#define REAL double
#include "all.cu"
#undef REAL
}

template <class T> T value_of(u64 word) {
    static_assert(sizeof(T) == 8, "every parameter takes eight bytes");
    T value;
    memcpy(&value, &word, sizeof value);
    return value;
}

// A kernel as a function of its parameters, eight bytes each.
template <auto Kernel> struct Call;
template <class... A, void (*Kernel)(A...)> struct Call<Kernel> {
    static constexpr size_t PARAMETERS = sizeof...(A);

    static void with(const u64* words) { spread(words, std::index_sequence_for<A...>()); }

  private:
    template <size_t... I> static void spread(const u64* words, std::index_sequence<I...>) {
        Kernel(value_of<A>(words[I])...);
    }
};

}

// Every kernel, as USE(name, waits): whether its threads wait for one another.
#define LAYER_KERNELS(USE) \
    USE(product, true) \
    USE(bias, false) \
    USE(bias_backward, true) \
    USE(add, false) \
    USE(layer_norm, true) \
    USE(layer_norm_backward, true) \
    USE(layer_norm_backward_weights, true) \
    USE(rms_norm, true) \
    USE(rms_norm_backward, true) \
    USE(rms_norm_backward_weights, true) \
    USE(turn, false) \
    USE(causal_softmax, true) \
    USE(softmax_backward, true) \
    USE(gelu, false) \
    USE(gelu_backward, false) \
    USE(swiglu, false) \
    USE(swiglu_backward, false) \
    USE(embed, false) \
    USE(embed_backward, false) \
    USE(cross_entropy, true)
