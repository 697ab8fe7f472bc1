// Types of elements and operations on two of them, with the rounding of the CPU kernels
// (`kernels/src/cpu/portable.rs`): 16-bit floats are combined as f32 and rounded once for each
// operation. Compile without contraction (`--fmad=false`), so that no product is kept unrounded.
#pragma once
#include "machine.h"

// ---- Types: the bits in memory, and the value that is computed with

template <class Bits, class Number> struct Plain {
    typedef Bits Stored;
    typedef Number Value;
    static DEVICE Value load(Stored bits) { return (Value)bits; }
    static DEVICE Stored store(Value value) { return (Stored)value; }
};

typedef Plain<signed char, int> I8;
typedef Plain<short, int> I16;
typedef Plain<int, int> I32;
typedef Plain<long long, long long> I64;
typedef Plain<u8, u32> U8;
typedef Plain<u16, u32> U16;
typedef Plain<u32, u32> U32;
typedef Plain<u64, u64> U64;
typedef Plain<float, float> F32;
typedef Plain<double, double> F64;

struct F16 {
    typedef u16 Stored;
    typedef float Value;
    static DEVICE Value load(Stored bits) { return f16_to_f32(bits); }
    static DEVICE Stored store(Value value) { return f32_to_f16(value); }
};

struct BF16 {
    typedef u16 Stored;
    typedef float Value;
    static DEVICE Value load(Stored bits) { return float_of((u32)bits << 16); }
    // Rounds to nearest, ties to even. A NaN is truncated and made quiet: rounding could make a
    // number of it.
    static DEVICE Stored store(Value value) {
        u32 bits = bits_of(value);
        if (value != value) return (u16)((bits | 0x00400000u) >> 16);
        return (u16)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
    }
};

// ---- Operations

// Integers wrap. Signed ones are computed as unsigned, because C++ gives overflow no meaning.
DEVICE int add(int a, int b) { return (int)((u32)a + (u32)b); }
DEVICE long long add(long long a, long long b) { return (long long)((u64)a + (u64)b); }
DEVICE u32 add(u32 a, u32 b) { return a + b; }
DEVICE u64 add(u64 a, u64 b) { return a + b; }
DEVICE float add(float a, float b) { return a + b; }
DEVICE double add(double a, double b) { return a + b; }

DEVICE int multiply(int a, int b) { return (int)((u32)a * (u32)b); }
DEVICE long long multiply(long long a, long long b) { return (long long)((u64)a * (u64)b); }
DEVICE u32 multiply(u32 a, u32 b) { return a * b; }
DEVICE u64 multiply(u64 a, u64 b) { return a * b; }
DEVICE float multiply(float a, float b) { return a * b; }
DEVICE double multiply(double a, double b) { return a * b; }

// Of zeros with both signs, -0 is the least. A NaN wins.
template <class V> DEVICE V least(V a, V b) { return a < b ? a : b; }
DEVICE float least(float a, float b) {
    if (a < b) return a;
    if (b < a) return b;
    return a == b ? float_of(bits_of(a) | bits_of(b)) : float_of(0x7fc00000u);
}
DEVICE double least(double a, double b) {
    if (a < b) return a;
    if (b < a) return b;
    return a == b ? double_of(bits_of(a) | bits_of(b)) : double_of(0x7ff8000000000000ull);
}

template <class V> DEVICE V greatest(V a, V b) { return a > b ? a : b; }
DEVICE float greatest(float a, float b) {
    if (a > b) return a;
    if (b > a) return b;
    return a == b ? float_of(bits_of(a) & bits_of(b)) : float_of(0x7fc00000u);
}
DEVICE double greatest(double a, double b) {
    if (a > b) return a;
    if (b > a) return b;
    return a == b ? double_of(bits_of(a) & bits_of(b)) : double_of(0x7ff8000000000000ull);
}

struct Sum { template <class V> static DEVICE V of(V a, V b) { return add(a, b); } };
struct Product { template <class V> static DEVICE V of(V a, V b) { return multiply(a, b); } };
struct Min { template <class V> static DEVICE V of(V a, V b) { return least(a, b); } };
struct Max { template <class V> static DEVICE V of(V a, V b) { return greatest(a, b); } };
struct And { template <class V> static DEVICE V of(V a, V b) { return a & b; } };
struct Or { template <class V> static DEVICE V of(V a, V b) { return a | b; } };
struct Xor { template <class V> static DEVICE V of(V a, V b) { return a ^ b; } };
