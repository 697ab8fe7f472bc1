// The bytes of a fold (`walk.cu`): all threads of a lane combine the sources and store the result.
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
DEVICE u64 read_line(const Lane& self, const Source& source, u32 nth, u64 at, u64& eight) {
    const u64* line = (const u64*)(self.from[nth] + at * 2);
    u32 flag = flag_of(self.mark, self.number[nth] - 1);
    return await_line(self, source.peer, line, flag, eight);
}

// Reads the `count` elements from `at` on, which fit in eight bytes.
template <class T>
DEVICE u64 read(const Lane& self, const Source& source, u32 nth, u64 at, u32 count,
                Piece<T, 8>& eight) {
    bool is_line = self.launch.protocol == LOW_LATENCY && source.place == BOARD;
    if (is_line) return read_line(self, source, nth, at, eight.bits);
    const typename T::Stored* from = (const typename T::Stored*)(self.from[nth] + at);
    for (u32 i = 0; i < count; i++) eight.elements[i] = from[i];
    return OK;
}

// Combines the bytes from `at` on of all sources, in their order, and stores the result where it
// belongs. Each thread takes eight bytes at a time, wherever they lie. `flag` marks the lines.
template <class T, class Op>
DEVICE u64 fold_eights(const Lane& self, const Fold& fold, const Source* sources, u64 at, u64 bytes,
                       u32 flag) {
    const u32 element = sizeof(typename T::Stored);
    for (at += (u64)threadIdx.x * 8; at < bytes; at += (u64)blockDim.x * 8) {
        u32 count = (u32)((bytes - at < 8 ? bytes - at : 8) / element);
        Piece<T, 8> sum, next;
        sum.bits = 0;
        next.bits = 0;
        u64 report = read<T>(self, sources[0], 0, at, count, sum);
        for (u32 nth = 1; nth < fold.count && report == OK; nth++) {
            report = read<T>(self, sources[nth], nth, at, count, next);
            combine<T, Op, 8>(sum, next, count);
        }
        if (report != OK) return report;
        if (self.into) {
            typename T::Stored* into = (typename T::Stored*)(self.into + at);
            for (u32 i = 0; i < count; i++) into[i] = sum.elements[i];
        }
        if (self.slot && self.launch.protocol == LOW_LATENCY) {
            store_eight((u64*)(self.slot + at * 2), sum.bits, flag);
        } else if (self.slot) {
            typename T::Stored* slot = (typename T::Stored*)(self.slot + at);
            for (u32 i = 0; i < count; i++) slot[i] = sum.elements[i];
        }
    }
    return OK;
}

// As `fold_eights`, `Rows` times sixteen bytes a thread, which are all on their way before the first
// one is needed.
template <class T, class Op, int Rows>
DEVICE void fold_rows(const Lane& self, u32 count, u64 at, u64 step) {
    Piece<T, 16> sum[Rows], next[Rows];
    const u32 elements = 16 / sizeof(typename T::Stored);
    UNROLL for (int row = 0; row < Rows; row++) {
        sum[row].bits = *(const Sixteen*)(self.from[0] + at + row * step);
    }
    for (u32 nth = 1; nth < count; nth++) {
        UNROLL for (int row = 0; row < Rows; row++) {
            next[row].bits = *(const Sixteen*)(self.from[nth] + at + row * step);
        }
        UNROLL for (int row = 0; row < Rows; row++) {
            combine<T, Op, 16>(sum[row], next[row], elements);
        }
    }
    UNROLL for (int row = 0; row < Rows; row++) {
        if (self.into) *(Sixteen*)(self.into + at + row * step) = sum[row].bits;
        if (self.slot) *(Sixteen*)(self.slot + at + row * step) = sum[row].bits;
    }
}

// True if everything that the fold reads and writes begins at a multiple of sixteen bytes.
DEVICE bool is_aligned(const Lane& self, u32 count) {
    u64 bits = (u64)self.into | (u64)self.slot;
    for (u32 nth = 0; nth < count; nth++) bits |= (u64)self.from[nth];
    return bits % 16 == 0;
}

// A publication without bytes is one line. A barrier has no others: whoever reads the line sees all that
// the writer, and those that it has read lines of, did before.
DEVICE u64 pass_empty_line(const Lane& self, const Fold& fold, const Source* sources, u32 flag) {
    for (u32 nth = 0; nth < fold.count; nth++) {
        if (sources[nth].place != BOARD) continue;
        u64 nothing;
        u64 report = read_line(self, sources[nth], nth, 0, nothing);
        if (report != OK) return report;
    }
    release();
    if (self.slot) store_eight((u64*)self.slot, 0, flag);
    return OK;
}

// Combines `bytes` bytes of all sources, in their order, and stores the result where it belongs.
template <class T, class Op>
DEVICE u64 execute(const Lane& self, const Fold& fold, const Source* sources, u64 bytes, u32 flag) {
    if (self.launch.protocol == LOW_LATENCY || !is_aligned(self, fold.count)) {
        return fold_eights<T, Op>(self, fold, sources, 0, bytes, flag);
    }
    const int rows = 4;
    u64 whole = bytes / 16 * 16;
    u64 step = (u64)blockDim.x * 16;
    u64 at = (u64)threadIdx.x * 16;
    for (; at + (rows - 1) * step < whole; at += rows * step) {
        fold_rows<T, Op, rows>(self, fold.count, at, step);
    }
    for (; at < whole; at += step) fold_rows<T, Op, 1>(self, fold.count, at, step);
    return fold_eights<T, Op>(self, fold, sources, whole, bytes, flag);
}

// Removes all flags of the lane's piece of the slot.
DEVICE void wipe(const Lane& self) {
    for (u64 at = (u64)threadIdx.x * 16; at < piece(self); at += (u64)blockDim.x * 16) {
        store_line((u64*)(self.slot + at), 0, 0);
    }
}
