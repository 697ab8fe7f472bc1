/* Elements of all types, computed on the host without the library. */
#ifndef NUMBERS_H_
#define NUMBERS_H_

#include "rank.h"

#include <math.h>

static const size_t SIZES[ncclNumTypes] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
static const char *const TYPES[ncclNumTypes] = {"i8",  "u8",  "i32", "u32",  "i64",    "u64",
                                                "f16", "f32", "f64", "bf16", "f8e4m3", "f8e5m2"};
static const char *const OPS[] = {"sum", "prod", "max", "min", "avg"};

HELPER bool is_float(ncclDataType_t type) {
    return type == ncclFloat16 || type == ncclFloat32 || type == ncclFloat64 ||
           type == ncclBfloat16;
}

/* Types with 8 bits are moved, and not reduced. */
HELPER bool is_reduced(ncclDataType_t type) { return type < ncclFloat8e4m3; }

static bool is_signed(ncclDataType_t type) {
    return type == ncclInt8 || type == ncclInt32 || type == ncclInt64;
}

/* A number of 16 bits with so many bits of exponent and mantissa. */
static double from_small(uint16_t bits, int exponent_bits, int mantissa_bits) {
    int bias = (1 << (exponent_bits - 1)) - 1;
    int exponent = (bits >> mantissa_bits) & ((1 << exponent_bits) - 1);
    int mantissa = bits & ((1 << mantissa_bits) - 1);
    double sign = bits >> 15 ? -1 : 1;
    if (exponent == (1 << exponent_bits) - 1) return mantissa ? NAN : sign * INFINITY;
    if (exponent == 0) return sign * ldexp(mantissa, 1 - bias - mantissa_bits);
    return sign * ldexp(mantissa + (1 << mantissa_bits), exponent - bias - mantissa_bits);
}

/* The nearest number of 16 bits, the even one of two. */
static uint16_t to_small(double value, int exponent_bits, int mantissa_bits) {
    int bias = (1 << (exponent_bits - 1)) - 1;
    uint16_t sign = signbit(value) ? 0x8000 : 0;
    double size = fabs(value);
    uint16_t infinity = (uint16_t)(((1 << exponent_bits) - 1) << mantissa_bits);
    if (isnan(value)) return infinity | 1;
    int exponent;
    frexp(size, &exponent);
    if (size == 0 || exponent < 2 - bias) exponent = 2 - bias;
    double steps = rint(ldexp(size, mantissa_bits + 1 - exponent));
    /* A mantissa that is rounded up to the next power of two raises the exponent by the addition.
     */
    double bits = steps + ldexp(exponent - 2 + bias, mantissa_bits);
    return sign | (bits >= infinity ? infinity : (uint16_t)bits);
}

HELPER double get_float(ncclDataType_t type, const void *from) {
    uint16_t small;
    float single;
    double value;
    switch (type) {
        case ncclFloat16: memcpy(&small, from, 2); return from_small(small, 5, 10);
        case ncclBfloat16: memcpy(&small, from, 2); return from_small(small, 8, 7);
        case ncclFloat32: memcpy(&single, from, 4); return single;
        default: memcpy(&value, from, 8); return value;
    }
}

HELPER void put_float(ncclDataType_t type, void *into, double value) {
    uint16_t small = type == ncclFloat16 ? to_small(value, 5, 10) : to_small(value, 8, 7);
    float single = (float)value;
    switch (type) {
        case ncclFloat16:
        case ncclBfloat16: memcpy(into, &small, 2); break;
        case ncclFloat32: memcpy(into, &single, 4); break;
        default: memcpy(into, &value, 8);
    }
}

/* An integer, extended to 64 bits by the sign of its type. */
static uint64_t get_integer(ncclDataType_t type, const void *from) {
    uint64_t value = 0;
    memcpy(&value, from, SIZES[type]);
    unsigned shift = (unsigned)(64 - 8 * SIZES[type]);
    if (!is_signed(type)) return value;
    return (uint64_t)((int64_t)(value << shift) >> shift);
}

static void put_integer(ncclDataType_t type, void *into, uint64_t value) {
    memcpy(into, &value, SIZES[type]);
}

HELPER uint64_t mixed(uint64_t value) {
    value += 0x9e3779b97f4a7c15;
    value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9;
    value = (value ^ (value >> 27)) * 0x94d049bb133111eb;
    return value ^ (value >> 31);
}

/* The element `index` of the input of `rank` to the call `seed`. Floats are such that sums and
 * products of a few of them are exact in their type, in every order; all other types have any bits.
 */
HELPER void put_input(ncclDataType_t type, void *into, uint64_t seed, int rank, size_t index) {
    uint64_t drawn = mixed(mixed(seed * 64 + (uint64_t)rank) + index);
    if (is_float(type))
        put_float(type, into, (double)(drawn % 9) - 4);
    else
        put_integer(type, into, drawn);
}

/* Combines two integers with a built-in operation; `ncclAvg` is a sum until the end. */
static uint64_t combine_integers(ncclDataType_t type, ncclRedOp_t op, uint64_t a, uint64_t b) {
    bool is_less = is_signed(type) ? (int64_t)a < (int64_t)b : a < b;
    switch (op) {
        case ncclProd: return a * b;
        case ncclMax: return is_less ? b : a;
        case ncclMin: return is_less ? a : b;
        default: return a + b;
    }
}

static double combine_floats(ncclRedOp_t op, double a, double b) {
    switch (op) {
        case ncclProd: return a * b;
        case ncclMax: return a > b ? a : b;
        case ncclMin: return a < b ? a : b;
        default: return a + b;
    }
}

/* Reduces elements of `world` ranks, which lie one after another in `elements`, with a built-in
 * operation. */
HELPER void reduce_elements(ncclDataType_t type, ncclRedOp_t op, int world, const void *elements,
                            void *into) {
    const char *at = elements;
    size_t size = SIZES[type];
    if (is_float(type)) {
        double sum = get_float(type, at);
        for (int rank = 1; rank < world; rank++)
            sum = combine_floats(op, sum, get_float(type, at + (size_t)rank * size));
        put_float(type, into, op == ncclAvg ? sum / world : sum);
        return;
    }
    uint64_t sum = get_integer(type, at);
    for (int rank = 1; rank < world; rank++)
        sum = combine_integers(type, op, sum, get_integer(type, at + (size_t)rank * size));
    put_integer(type, into, sum);
    if (op != ncclAvg) return;
    /* The sum has the width of the type; the division truncates. */
    uint64_t whole = get_integer(type, into);
    if (is_signed(type))
        put_integer(type, into, (uint64_t)((int64_t)whole / world));
    else
        put_integer(type, into, whole / (uint64_t)world);
}

/* True if the elements are equal: all bits, but for the average of floats among ranks that are no
 * power of two, which the library may divide before or after. */
HELPER bool is_right(ncclDataType_t type, ncclRedOp_t op, int world, const void *is,
                     const void *right) {
    if (memcmp(is, right, SIZES[type]) == 0) return true;
    if (!is_float(type)) return false;
    double a = get_float(type, is), b = get_float(type, right);
    if (a == 0 && b == 0) return true;
    bool is_exact = op != ncclAvg || (world & (world - 1)) == 0;
    double unit = type == ncclFloat16 ? 0x1p-9 : type == ncclBfloat16 ? 0x1p-6 : 0x1p-20;
    return !is_exact && fabs(a - b) <= unit * (fabs(b) + 1);
}

#endif
