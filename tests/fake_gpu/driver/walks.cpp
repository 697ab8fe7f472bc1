// `walk.cu` for every type and operation that has a module.
#define EMULATED
#include "walk.cu"

#include "kernels.h"

namespace fake {
namespace {

const size_t PARAMETERS[] = {sizeof(Launches)};

template <class T, class Op> void run(void** parameters) {
    walk<T, Op>(*(const Launches*)parameters[0]);
}

const size_t SHORT_PARAMETERS[] = {sizeof(ShortLaunch)};

template <class T, class Op> void run_short_call(void** parameters) {
    run_short<T, Op>(*(const ShortLaunch*)parameters[0]);
}

#define WALK(name, type, operation)                                                \
    {name, nullptr, PARAMETERS, 1, run<type, operation>, true, 128, \
     (int)(sizeof(Lane) + SHORT_PROGRAM)}, \
    {"short_call", name, SHORT_PARAMETERS, 1, run_short_call<type, operation>, true, 80, \
     (int)sizeof(ShortCall), true},
#define ORDER(name, type) WALK("walk_" name "_min", type, Min) WALK("walk_" name "_max", type, Max)
#define NUMBER(name, type)                    \
    WALK("walk_" name "_sum", type, Sum)      \
    WALK("walk_" name "_product", type, Product) \
    ORDER(name, type)
#define UNSIGNED(name, type)              \
    NUMBER(name, type)                    \
    WALK("walk_" name "_and", type, And)  \
    WALK("walk_" name "_or", type, Or)    \
    WALK("walk_" name "_xor", type, Xor)

const Kernel WALKS[] = {
    NUMBER("f32", F32)
#ifndef FEW_KERNELS
    NUMBER("f16", F16)
    NUMBER("bf16", BF16)
    NUMBER("f64", F64)
    ORDER("i8", I8)
    ORDER("i16", I16)
    ORDER("i32", I32)
    ORDER("i64", I64)
    UNSIGNED("u8", U8)
    UNSIGNED("u16", U16)
    UNSIGNED("u32", U32)
    UNSIGNED("u64", U64)
#endif
};

const KernelTable TABLE(WALKS);

}
}
