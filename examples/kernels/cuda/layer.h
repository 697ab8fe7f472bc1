// What the kernels of layers ask of the machine, on a GPU and on the CPU that stands in for one.
//
// REAL is the type of numbers: float or double. Every parameter of a kernel takes eight bytes: a
// pointer, a u64 or a double. A grid has blocks and threads along one dimension. No kernel adds
// numbers by atomics, and every sum has one order, so the same call gives the same bits.
#pragma once

#ifdef EMULATED
#include <cmath>
#include "emulated/fibers.h"

#define DEVICE static inline
#define KERNEL(name, threads) static void name
#define THREAD ((u64)fibers::current().thread.x)
#define THREADS ((u64)fibers::current().threads.x)
#define BLOCK (emulated_block + fibers::current().block.x)
#define BARRIER() fibers::await_block()
#define SHARED(type, name, count) type* name = (type*)fibers::shared_memory(sizeof(type) * (count))
#define UNROLL
#else
#define DEVICE static __device__ __forceinline__
#define KERNEL(name, threads) extern "C" __global__ void __launch_bounds__(threads) name
#define THREAD ((u64)threadIdx.x)
#define THREADS ((u64)blockDim.x)
#define BLOCK ((u64)blockIdx.x)
#define BARRIER() __syncthreads()
#define SHARED(type, name, count) __shared__ __align__(16) type name[count]
#define UNROLL _Pragma("unroll")
#endif

typedef unsigned int u32;
typedef unsigned long long u64;

#ifdef EMULATED
// The first block of the grid that the fibers are. Blocks of a layer never wait for one another, so
// one may run after the other.
static u64 emulated_block = 0;
#endif

DEVICE float exponential(float x) { return expf(x); }
DEVICE double exponential(double x) { return exp(x); }
DEVICE float root(float x) { return sqrtf(x); }
DEVICE double root(double x) { return sqrt(x); }
// a * b + c, rounded once.
DEVICE float multiply_add(float a, float b, float c) { return fmaf(a, b, c); }
DEVICE double multiply_add(double a, double b, double c) { return fma(a, b, c); }

// The number of the thread in the grid: the element that an element-wise kernel computes.
DEVICE u64 element() { return BLOCK * THREADS + THREAD; }
