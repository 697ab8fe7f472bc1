// The bytes of a fold (`step.h`): all movers of a lane combine the sources and store the result.
#pragma once
#include "lane.h"

// `N` bytes of a source.
template <class T, int N> union Piece;
template <class T> union Piece<T, 8> {
    u64 bits;
    typename T::Stored elements[8 / sizeof(typename T::Stored)];
};
template <class T> union Piece<T, 16> {
    Sixteen bits;
    typename T::Stored elements[16 / sizeof(typename T::Stored)];
};

// The first `count` elements of `sum`, each combined with that of `next`.
template <class T, class Op, int N>
DEVICE void combine(Piece<T, N>& sum, const Piece<T, N>& next, u32 count) {
    for (u32 i = 0; i < count; i++) {
        typename T::Value a = T::load(sum.elements[i]);
        sum.elements[i] = T::store(Op::of(a, T::load(next.elements[i])));
    }
}

// Reads the eight bytes of a line of `peer`, as soon as it has arrived.
template <class Self>
DEVICE u64 await_line(const Self& self, u32 peer, const u64* line, u32 flag, u64& eight) {
    Patience patience = {peer, 0, 0, false};
    for (;;) {
        u64 low, high;
        load_line(line, low, high);
        u32 first = (u32)(low >> 32);
        u32 second = (u32)(high >> 32);
        if (first == flag && second == flag) {
            eight = (low & 0xffffffffull) | high << 32;
            return OK;
        }
        if (is_of_other_call(first, flag) || is_of_other_call(second, flag)) {
            return report_of(self, peer, MISMATCH);
        }
        u64 report = patience.look(self);
        if (report != OK) return report;
    }
}

// Writes eight bytes as a line.
DEVICE void store_eight(u64* line, u64 eight, u32 flag) {
    u64 above = (u64)flag << 32;
    store_line(line, (eight & 0xffffffffull) | above, eight >> 32 | above);
}

// Reads the eight bytes from `at` on from a line, as soon as it has arrived.
DEVICE u64 read_line(const Lane& self, const StepData& data, const Source& source, u32 nth, u64 at,
                     u64& eight) {
    const u64* line = (const u64*)(data.from[nth] + at * 2);
    u32 flag = flag_of(self.mark, data.number[nth] - 1);
    return await_line(self, source.peer, line, flag, eight);
}

// Reads the `count` elements from `at` on, which fit in eight bytes.
template <class T>
DEVICE u64 read(const Lane& self, const StepData& data, const Source& source, u32 nth, u64 at,
                u32 count, Piece<T, 8>& eight) {
    bool is_line = self.launch.protocol == LOW_LATENCY && source.place == BOARD;
    if (is_line) return read_line(self, data, source, nth, at, eight.bits);
    const typename T::Stored* from = (const typename T::Stored*)(data.from[nth] + at);
    for (u32 i = 0; i < count; i++) eight.elements[i] = from[i];
    return OK;
}

// Combines the bytes from `at` on of all sources, in their order, and stores the result where it
// belongs. Each mover takes eight bytes at a time, wherever they lie. `flag` marks the lines.
template <class T, class Op>
DEVICE u64 fold_eights(const Lane& self, const StepData& data, const Step& step, u64 at, u64 bytes,
                       u32 flag) {
    const u32 element = sizeof(typename T::Stored);
    const Source* sources = step.sources;
    for (at += (u64)threadIdx.x * 8; at < bytes; at += (u64)self.movers * 8) {
        u32 count = (u32)((bytes - at < 8 ? bytes - at : 8) / element);
        Piece<T, 8> sum, next;
        sum.bits = 0;
        next.bits = 0;
        u64 report = read<T>(self, data, sources[0], 0, at, count, sum);
        for (u32 nth = 1; nth < step.fold->count && report == OK; nth++) {
            report = read<T>(self, data, sources[nth], nth, at, count, next);
            combine<T, Op, 8>(sum, next, count);
        }
        if (report != OK) return report;
        if (data.into) {
            typename T::Stored* into = (typename T::Stored*)(data.into + at);
            for (u32 i = 0; i < count; i++) into[i] = sum.elements[i];
        }
        if (data.slot && self.launch.protocol == LOW_LATENCY) {
            store_eight((u64*)(data.slot + at * 2), sum.bits, flag);
        } else if (data.slot) {
            typename T::Stored* slot = (typename T::Stored*)(data.slot + at);
            for (u32 i = 0; i < count; i++) slot[i] = sum.elements[i];
        }
    }
    return OK;
}

// As `fold_eights`, `Rows` times sixteen bytes a thread, which are all on their way before the first
// one is needed.
template <class T, class Op, int Rows>
DEVICE void fold_rows(const StepData& data, u32 count, u64 at, u64 step) {
    Piece<T, 16> sum[Rows], next[Rows];
    const u32 elements = 16 / sizeof(typename T::Stored);
    UNROLL for (int row = 0; row < Rows; row++) {
        sum[row].bits = *(const Sixteen*)(data.from[0] + at + row * step);
    }
    for (u32 nth = 1; nth < count; nth++) {
        UNROLL for (int row = 0; row < Rows; row++) {
            next[row].bits = *(const Sixteen*)(data.from[nth] + at + row * step);
        }
        UNROLL for (int row = 0; row < Rows; row++) {
            combine<T, Op, 16>(sum[row], next[row], elements);
        }
    }
    UNROLL for (int row = 0; row < Rows; row++) {
        if (data.into) *(Sixteen*)(data.into + at + row * step) = sum[row].bits;
        if (data.slot) *(Sixteen*)(data.slot + at + row * step) = sum[row].bits;
    }
}

// True if everything that the fold reads and writes begins at a multiple of sixteen bytes.
DEVICE bool is_aligned(const StepData& data, u32 count) {
    u64 bits = (u64)data.into | (u64)data.slot;
    for (u32 nth = 0; nth < count; nth++) bits |= (u64)data.from[nth];
    return bits % 16 == 0;
}

// A publication without bytes is one line. A barrier has no others: whoever reads the line sees all that
// the writer, and those that it has read lines of, did before.
DEVICE u64 pass_empty_line(const Lane& self, const StepData& data, const Step& step, u32 flag) {
    for (u32 nth = 0; nth < step.fold->count; nth++) {
        if (step.sources[nth].place != BOARD) continue;
        u64 nothing;
        u64 report = read_line(self, data, step.sources[nth], nth, 0, nothing);
        if (report != OK) return report;
    }
    release();
    if (data.slot) store_eight((u64*)data.slot, 0, flag);
    return OK;
}

// Combines `bytes` bytes of all sources, in their order, and stores the result where it belongs.
template <class T, class Op>
DEVICE u64 execute(const Lane& self, const StepData& data, const Step& step, u64 bytes, u32 flag) {
    u32 count = step.fold->count;
    if (self.launch.protocol == LOW_LATENCY || !is_aligned(data, count)) {
        return fold_eights<T, Op>(self, data, step, 0, bytes, flag);
    }
    const int rows = 4;
    u64 whole = bytes / 16 * 16;
    u64 stride = (u64)self.movers * 16;
    u64 at = (u64)threadIdx.x * 16;
    for (; at + (rows - 1) * stride < whole; at += rows * stride) {
        fold_rows<T, Op, rows>(data, count, at, stride);
    }
    for (; at < whole; at += stride) fold_rows<T, Op, 1>(data, count, at, stride);
    return fold_eights<T, Op>(self, data, step, whole, bytes, flag);
}

// Removes all flags of the lane's piece of the slot.
DEVICE void wipe(const Lane& self, const StepData& data) {
    for (u64 at = (u64)threadIdx.x * 16; at < piece(self); at += (u64)self.movers * 16) {
        store_line((u64*)(data.slot + at), 0, 0);
    }
}
