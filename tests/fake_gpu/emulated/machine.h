// The machine of `machine.h` on a CPU: threads of the GPU are fibers, of which one runs at a time.
// This shows the logic and the protocol of the kernel, with orders of events drawn from a seed. It
// shows nothing of the memory model or the speed of a GPU.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>
#include "fibers.h"

#define DEVICE inline
#define threadIdx (fibers::current().thread)
#define blockIdx (fibers::current().block)
#define blockDim (fibers::current().threads)
#define gridDim (fibers::current().blocks)
#define __syncthreads() (COUNT(barriers, 1), fibers::await_block())
#define SHARED(type, name) type& name = *static_cast<type*>(fibers::shared_memory(sizeof(type)))
#define SHARED_WORDS(name, count) u64* name = (u64*)fibers::shared_memory(0) + 2048
#define UNROLL
#define PAUSE() fibers::pause()
#define BY_VALUE const

// A warp of the emulator is one thread.
enum { POSTERS = 1 };
#define MOVERS(self) ((u64)(self).movers)

// What the threads of this OS thread have done: bytes and lines, counters that were published, barriers, and how often
// a thread awaited what it loads together of the sources of a fold.
struct Counts {
    u64 read, written, lines_read, lines_written, flags, barriers, rounds;
};
inline thread_local Counts tally = {};
#define COUNT(what, amount) (tally.what += (amount))

DEVICE void wait_at(u32 barrier, u32 threads) {
    COUNT(barriers, 1);
    fibers::await_some(barrier, threads);
}
DEVICE void arrive_at(u32 barrier, u32 threads) {
    COUNT(barriers, 1);
    fibers::arrive(barrier, threads);
}

DEVICE Sixteen load_sixteen(const u8* from, bool is_there) {
    if (!is_there) return {};
    COUNT(read, 16);
    return *(const Sixteen*)from;
}

DEVICE void store_sixteen(u8* into, const Sixteen& sixteen) {
    COUNT(written, 16);
    *(Sixteen*)into = sixteen;
}

DEVICE u64 load_acquire(const u64* from) { return __atomic_load_n(from, __ATOMIC_ACQUIRE); }

// True from a release on until the next counter is published: ThreadSanitizer does not support
// fences.
inline thread_local bool is_released = false;

DEVICE void release() { is_released = true; }

DEVICE void publish(u64* to, u64 value) {
    COUNT(flags, 1);
    bool is_ordered = is_released;
    is_released = false;
    fibers::give_way();
    if (is_ordered) {
        __atomic_store_n(to, value, __ATOMIC_RELEASE);
    } else {
        __atomic_store_n(to, value, __ATOMIC_RELAXED);
    }
}

DEVICE u64 load_relaxed(const u64* from) { return __atomic_load_n(from, __ATOMIC_RELAXED); }
DEVICE void store_relaxed(u64* to, u64 value) {
    fibers::give_way();
    __atomic_store_n(to, value, __ATOMIC_RELAXED);
}

DEVICE u32 load_relaxed(const u32* from) { return __atomic_load_n(from, __ATOMIC_RELAXED); }
DEVICE void store_relaxed(u32* to, u32 value) { __atomic_store_n(to, value, __ATOMIC_RELAXED); }

DEVICE u64 take(u64* lock) {
    fibers::give_way();
    return __atomic_exchange_n(lock, 1, __ATOMIC_ACQUIRE);
}

DEVICE u64 set_once(u64* word, u64 value) {
    fibers::give_way();
    u64 old = 0;
    __atomic_compare_exchange_n(word, &old, value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
    // The operation takes long.
    for (int turns = 0; turns < 20; turns++) fibers::give_way();
    return old;
}

DEVICE void load_line(const u64* from, u64& low, u64& high) {
    low = __atomic_load_n(from, __ATOMIC_RELAXED);
    fibers::give_way_reading();
    high = __atomic_load_n(from + 1, __ATOMIC_RELAXED);
}

// The halves become visible apart, and the second one first.
DEVICE void store_line(u64* to, u64 low, u64 high) {
    __atomic_store_n(to + 1, high, __ATOMIC_RELAXED);
    fibers::give_way();
    __atomic_store_n(to, low, __ATOMIC_RELAXED);
}

DEVICE u64 now() { return fibers::now(); }

DEVICE u32 bits_of(float value) {
    u32 bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

DEVICE u64 bits_of(double value) {
    u64 bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

DEVICE float float_of(u32 bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

DEVICE double double_of(u64 bits) {
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

DEVICE float f16_to_f32(u16 half) {
    u32 sign = (u32)(half & 0x8000) << 16;
    u32 exponent = half >> 10 & 31;
    u32 fraction = half & 1023;
    if (exponent == 31) return float_of(sign | 0x7f800000u | fraction << 13);
    if (exponent) return float_of(sign | (exponent + 112) << 23 | fraction << 13);
    return std::copysign(std::ldexp((float)fraction, -24), float_of(sign | 0x3f800000u));
}

// To nearest, ties to even.
DEVICE u16 f32_to_f16(float value) {
    u32 bits = bits_of(value);
    u16 sign = (u16)(bits >> 16 & 0x8000);
    u32 size = bits & 0x7fffffff;
    if (size > 0x7f800000) return (u16)(sign | 0x7e00 | (size >> 13 & 0x3ff));
    if (size >= 0x477ff000) return (u16)(sign | 0x7c00);
    if (size >= 0x38800000) {
        u32 rounded = size + 0xfff + (size >> 13 & 1);
        return (u16)(sign | ((rounded >> 13) - (112 << 10)));
    }
    return (u16)(sign | (u32)std::nearbyint(std::ldexp(float_of(size), 24)));
}
