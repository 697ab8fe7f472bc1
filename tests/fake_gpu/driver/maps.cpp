// `map.cu` for every type.
#define EMULATED
#include "map.cu"

#include "kernels.h"

namespace fake {
namespace {

const size_t DIVIDE[] = {8, 8, 8, 8};
const size_t SCALE[] = {8, 8, 8, 8, 8};

template <class T> void run_divide(void** parameters) {
    auto into = *(typename T::Stored**)parameters[0];
    auto from = *(const typename T::Stored**)parameters[1];
    divide<T>(into, from, *(u64*)parameters[2], *(u64*)parameters[3]);
}

template <class T> void run_scale(void** parameters) {
    auto into = *(typename T::Stored**)parameters[0];
    auto from = *(const typename T::Stored**)parameters[1];
    auto at = *(const typename T::Stored**)parameters[4];
    scale<T>(into, from, *(u64*)parameters[2], *(u64*)parameters[3], at);
}

#define MAP(module, type)                                                             \
    {"divide_elements", module, DIVIDE, 4, run_divide<type>, false, 24, 0},           \
    {"scale_elements", module, SCALE, 5, run_scale<type>, false, 24, 0},

const Kernel MAPS[] = {
    MAP("map_f16", F16) MAP("map_bf16", BF16) MAP("map_f32", F32) MAP("map_f64", F64)
    MAP("map_i8", I8) MAP("map_i16", I16) MAP("map_i32", I32) MAP("map_i64", I64)
    MAP("map_u8", U8) MAP("map_u16", U16) MAP("map_u32", U32) MAP("map_u64", U64)
};

const KernelTable TABLE(MAPS);

}
}
