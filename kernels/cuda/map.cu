// Element by element: the quotients and products of `kernels/src/cpu/scaling.rs`, with its rounding.

#include "numbers.h"

// Quotients truncate toward zero. Magnitudes are divided, because `by` may be larger than the type
// can hold.
DEVICE int quotient(int value, u64 by) {
    u64 size = (value < 0 ? 0u - (u32)value : (u32)value) / by;
    return (int)(value < 0 ? 0u - (u32)size : (u32)size);
}
DEVICE long long quotient(long long value, u64 by) {
    u64 size = (value < 0 ? 0ull - (u64)value : (u64)value) / by;
    return (long long)(value < 0 ? 0ull - size : size);
}
DEVICE u32 quotient(u32 value, u64 by) { return (u32)(value / by); }
DEVICE u64 quotient(u64 value, u64 by) { return value / by; }
DEVICE float quotient(float value, u64 by) { return value / (float)by; }
DEVICE double quotient(double value, u64 by) { return value / (double)by; }

// Divides each of the `count` elements of `from`, which may be `into`.
template <class T>
DEVICE void divide(typename T::Stored* into, const typename T::Stored* from, u64 count, u64 by) {
    u64 step = (u64)gridDim.x * blockDim.x;
    for (u64 at = (u64)blockIdx.x * blockDim.x + threadIdx.x; at < count; at += step) {
        into[at] = T::store(quotient(T::load(from[at]), by));
    }
}

// Multiplies each of the `count` elements of `from` by the element at `at`, or, if that is null, by the
// element whose bits are `factor`.
template <class T>
DEVICE void scale(typename T::Stored* into, const typename T::Stored* from, u64 count, u64 factor,
                  const typename T::Stored* at) {
    typename T::Value by = T::load(at ? *at : *(const typename T::Stored*)&factor);
    u64 step = (u64)gridDim.x * blockDim.x;
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) {
        into[i] = T::store(multiply(T::load(from[i]), by));
    }
}

#ifndef EMULATED
// A module has two kernels: -DTYPE=F32.
KERNEL(divide_elements)(TYPE::Stored* into, const TYPE::Stored* from, u64 count, u64 by) {
    divide<TYPE>(into, from, count, by);
}
KERNEL(scale_elements)(TYPE::Stored* into, const TYPE::Stored* from, u64 count, u64 factor,
                       const TYPE::Stored* at) {
    scale<TYPE>(into, from, count, factor, at);
}
#endif
