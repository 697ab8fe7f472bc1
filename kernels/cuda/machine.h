// What the kernel asks of the machine: loads and stores that other ranks see in order.
#pragma once
#include "program.h"

// Sixteen bytes that are read or written at once.
struct alignas(16) Sixteen {
    u64 low;
    u64 high;
};

#ifdef EMULATED
#include "emulated/machine.h"
#else

#define DEVICE __device__ __forceinline__
#define SHARED(type, name) __shared__ type name
#define SHARED_WORDS(name, count) __shared__ u64 name[count]
#define UNROLL _Pragma("unroll")
#define PAUSE() do {} while (0)
// Adds to a count of the emulator.
#define COUNT(what, amount) do {} while (0)

// Threads of a block of a walk, and those of them that post (`step.h`). The barriers below count warps, so these
// are a whole one.
enum { WALK_THREADS = 512, POSTERS = 32 };

// Threads that move bytes beside posters. A constant: distances between the loads of a thread are immediate then,
// and need no registers.
#define MOVERS(self) ((u64)(WALK_THREADS - POSTERS))

// Waits at a barrier until `threads` threads of the block are or have been there. Whoever waited sees what
// all of them did before.
DEVICE void wait_at(u32 barrier, u32 threads) {
    __syncwarp();
    asm volatile("bar.sync %0, %1;" :: "r"(barrier), "r"(threads) : "memory");
}

// As `wait_at`, without waiting, and without seeing anything.
DEVICE void arrive_at(u32 barrier, u32 threads) {
    __syncwarp();
    asm volatile("bar.arrive %0, %1;" :: "r"(barrier), "r"(threads) : "memory");
}

DEVICE u64 load_acquire(const u64* from) {
    u64 value;
    asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(from) : "memory");
    return value;
}

// Whoever sees a counter that is published after this sees all that the block did before its last
// barrier.
DEVICE void release() { asm volatile("fence.acq_rel.sys;" ::: "memory"); }

DEVICE void publish(u64* to, u64 value) {
    asm volatile("st.relaxed.sys.global.u64 [%0], %1;" :: "l"(to), "l"(value) : "memory");
}

DEVICE u64 load_relaxed(const u64* from) {
    u64 value;
    asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(from) : "memory");
    return value;
}

DEVICE u32 load_relaxed(const u32* from) {
    u32 value;
    asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
    return value;
}

DEVICE void store_relaxed(u32* to, u32 value) {
    asm volatile("st.relaxed.sys.global.u32 [%0], %1;" :: "l"(to), "r"(value) : "memory");
}

DEVICE void store_relaxed(u64* to, u64 value) {
    asm volatile("st.relaxed.sys.global.u64 [%0], %1;" :: "l"(to), "l"(value) : "memory");
}

// Takes a lock that nobody waits for. Returns what it was: zero if it was free.
DEVICE u64 take(u64* lock) {
    u64 value;
    asm volatile("atom.acquire.gpu.global.exch.b64 %0, [%1], 1;" : "=l"(value) : "l"(lock) : "memory");
    return value;
}

// Writes `value` if the word is zero. Returns what it was.
DEVICE u64 set_once(u64* word, u64 value) {
    u64 old;
    asm volatile("atom.relaxed.sys.global.cas.b64 %0, [%1], 0, %2;"
                 : "=l"(old) : "l"(word), "l"(value) : "memory");
    return old;
}

// Zeros if there is nothing to load. A branch around each load would keep more registers than there are.
DEVICE Sixteen load_sixteen(const u8* from, bool is_there) {
    Sixteen value;
    asm volatile("{.reg .pred p; setp.ne.u32 p, %3, 0; mov.u64 %0, 0; mov.u64 %1, 0;"
                 "@p ld.global.v2.u64 {%0, %1}, [%2];}"
                 : "=&l"(value.low), "=&l"(value.high) : "l"(from), "r"((u32)is_there) : "memory");
    return value;
}

DEVICE void store_sixteen(u8* into, const Sixteen& sixteen) { *(Sixteen*)into = sixteen; }

// Nanoseconds since some point in time.
DEVICE u64 now() {
    u64 time;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(time));
    return time;
}

// Both halves of a line. Each is read or written at once, but not the two together.
DEVICE void load_line(const u64* from, u64& low, u64& high) {
    asm volatile("ld.relaxed.sys.global.v2.u64 {%0, %1}, [%2];"
                 : "=l"(low), "=l"(high) : "l"(from) : "memory");
}

DEVICE void store_line(u64* to, u64 low, u64 high) {
    asm volatile("st.relaxed.sys.global.v2.u64 [%0], {%1, %2};"
                 :: "l"(to), "l"(low), "l"(high) : "memory");
}

DEVICE float f16_to_f32(u16 half) {
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(half));
    return value;
}

DEVICE u16 f32_to_f16(float value) {
    u16 half;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(half) : "f"(value));
    return half;
}

DEVICE u32 bits_of(float value) { return __float_as_uint(value); }
DEVICE u64 bits_of(double value) { return (u64)__double_as_longlong(value); }
DEVICE float float_of(u32 bits) { return __uint_as_float(bits); }
DEVICE double double_of(u64 bits) { return __longlong_as_double((long long)bits); }

#define BY_VALUE const __grid_constant__
#define KERNEL(name) extern "C" __global__ void __launch_bounds__(WALK_THREADS, 1) name

#endif
