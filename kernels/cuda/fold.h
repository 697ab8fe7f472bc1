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

// Places in a piece are constants, so that it lies in registers: loops over them are unrolled, and what is
// behind the elements that there are is left out.

// The first `count` elements of `sum`, each combined with that of `next`.
template <class T, class Op, int N>
DEVICE void combine(Piece<T, N>& sum, const Piece<T, N>& next, u32 count) {
    UNROLL for (u32 i = 0; i < N / sizeof(typename T::Stored); i++) {
        if (i >= count) continue;
        typename T::Value a = T::load(sum.elements[i]);
        sum.elements[i] = T::store(Op::of(a, T::load(next.elements[i])));
    }
}

template <class T> DEVICE Piece<T, 8> load_piece(const u8* from, u32 count) {
    Piece<T, 8> piece;
    piece.bits = 0;
    COUNT(read, count * sizeof(typename T::Stored));
    UNROLL for (u32 i = 0; i < 8 / sizeof(typename T::Stored); i++) {
        if (i < count) piece.elements[i] = ((const typename T::Stored*)from)[i];
    }
    return piece;
}

template <class T> DEVICE void store_piece(u8* into, const Piece<T, 8>& piece, u32 count) {
    COUNT(written, count * sizeof(typename T::Stored));
    UNROLL for (u32 i = 0; i < 8 / sizeof(typename T::Stored); i++) {
        if (i < count) ((typename T::Stored*)into)[i] = piece.elements[i];
    }
}

// Reads the eight bytes of each of the `lines` that `missing` has a bit of. All are on their way before the
// first one is looked at; those that have not arrived are on their way again, together.
template <int N, class Self, class Lines>
DEVICE u64 await_lines(const Self& self, const Lines& lines, u32 missing, u64 (&eights)[N]) {
    Patience patience = {0, 0, 0, false};
    while (missing != 0) {
        u64 low[N] = {}, high[N] = {};
        u32 looked = missing;
        UNROLL for (u32 nth = 0; nth < N; nth++) {
            if (looked >> nth & 1) load_line(lines.place(nth), low[nth], high[nth]);
        }
        UNROLL for (u32 nth = 0; nth < N; nth++) {
            if (!(looked >> nth & 1)) continue;
            u32 flag = lines.flag(nth);
            u32 first = (u32)(low[nth] >> 32);
            u32 second = (u32)(high[nth] >> 32);
            if (first == flag && second == flag) {
                COUNT(lines_read, 1);
                eights[nth] = (low[nth] & 0xffffffffull) | high[nth] << 32;
                missing &= ~(1u << nth);
            } else if (is_of_other_call(first, flag) || is_of_other_call(second, flag)) {
                return report_of(self, lines.peer(nth), MISMATCH);
            }
        }
        if (missing == 0) break;
        u32 nth = 0;
        while (!(missing >> nth & 1)) nth += 1;
        patience.await(lines.peer(nth));
        u64 report = patience.look(self);
        if (report != OK) return report;
    }
    return OK;
}

// Writes eight bytes as a line.
DEVICE void store_eight(u64* line, u64 eight, u32 flag) {
    COUNT(lines_written, 1);
    u64 above = (u64)flag << 32;
    store_line(line, (eight & 0xffffffffull) | above, eight >> 32 | above);
}

// The lines of the sources from `first` on of a fold, for its bytes from `at` on.
struct SourceLines {
    const Lane& self;
    const StepData& data;
    const Source* sources;
    u32 first;
    u64 at;

    DEVICE const u64* place(u32 nth) const { return (const u64*)(data.from[first + nth] + at * 2); }
    DEVICE u32 flag(u32 nth) const { return flag_of(self.mark, data.number[first + nth] - 1); }
    DEVICE u32 peer(u32 nth) const { return sources[first + nth].peer; }
};

// Reads the `count` elements from `at` on, which fit in eight bytes, of each of `left` sources. `Lines`:
// publications are lines.
template <class T, bool Lines>
DEVICE u64 read(const SourceLines& lines, u32 left, u32 count, u64 (&eights)[AT_A_TIME]) {
    u32 missing = 0;
    UNROLL for (u32 nth = 0; nth < AT_A_TIME; nth++) {
        eights[nth] = 0;
        if (nth >= left) continue;
        if (Lines && lines.sources[lines.first + nth].place == BOARD) {
            missing |= 1u << nth;
        } else {
            eights[nth] = load_piece<T>(lines.data.from[lines.first + nth] + lines.at, count).bits;
        }
    }
    return Lines ? await_lines(lines.self, lines, missing, eights) : (u64)OK;
}

// Combines the bytes from `at` on of all sources, in their order, and stores the result where it
// belongs. Each mover takes eight bytes at a time, wherever they lie. `flag` marks the lines.
template <class T, class Op, bool Lines>
DEVICE u64 fold_eights(const Lane& self, const StepData& data, const Step& step, u64 at, u64 bytes,
                       u32 flag) {
    const u32 element = sizeof(typename T::Stored);
    for (at += (u64)threadIdx.x * 8; at < bytes; at += (u64)self.movers * 8) {
        u32 count = (u32)((bytes - at < 8 ? bytes - at : 8) / element);
        Piece<T, 8> sum;
        sum.bits = 0;
        for (u32 first = 0; first < step.fold->count; first += AT_A_TIME) {
            u64 eights[AT_A_TIME];
            u32 left = step.fold->count - first;
            SourceLines lines = {self, data, step.sources, first, at};
            u64 report = read<T, Lines>(lines, left, count, eights);
            if (report != OK) return report;
            UNROLL for (u32 nth = 0; nth < AT_A_TIME; nth++) {
                if (nth >= left) continue;
                Piece<T, 8> next;
                next.bits = eights[nth];
                if (first + nth == 0) {
                    sum = next;
                } else {
                    combine<T, Op, 8>(sum, next, count);
                }
            }
        }
        if (data.into) store_piece<T>(data.into + at, sum, count);
        if (data.slot && Lines) {
            store_eight((u64*)(data.slot + at * 2), sum.bits, flag);
        } else if (data.slot) {
            store_piece<T>(data.slot + at, sum, count);
        }
    }
    return OK;
}

// `Rows` times sixteen bytes of a thread.
template <class T, int Rows> struct RowsOf {
    Piece<T, 16> of[Rows];

    // The first `rows` of them.
    DEVICE void load(const u8* from, u64 stride, int rows) {
        UNROLL for (int row = 0; row < Rows; row++) {
            of[row].bits = load_sixteen(from + row * stride, row < rows);
        }
    }

    DEVICE void store(u8* into, u64 stride, int rows) const {
        UNROLL for (int row = 0; row < Rows; row++) {
            if (row < rows) store_sixteen(into + row * stride, of[row].bits);
        }
    }

    // Combined where there is something to combine with. A choice of the result needs fewer registers than a branch.
    template <class Op> DEVICE void add(const RowsOf& next, bool is_there) {
        const u32 elements = 16 / sizeof(typename T::Stored);
        UNROLL for (int row = 0; row < Rows; row++) {
            Piece<T, 16> both = of[row];
            combine<T, Op, 16>(both, next.of[row], elements);
            of[row].bits.low = is_there ? both.bits.low : of[row].bits.low;
            of[row].bits.high = is_there ? both.bits.high : of[row].bits.high;
        }
    }
};

// As `fold_eights`, `rows` times sixteen bytes a thread, of at most `Rows`. The loads of up to `Most` sources are all
// under way before the first one is needed.
template <class T, class Op, int Rows, int Most>
DEVICE void fold_rows(const StepData& data, u32 count, u64 at, u64 stride, int rows) {
    RowsOf<T, Rows> next[Most];
    RowsOf<T, Rows>& sum = next[0];
    sum.load(data.from[0] + at, stride, rows);
    u32 first = 0;
    do {
        COUNT(rounds, 1);
        UNROLL for (u32 nth = 1; nth < Most; nth++) {
            next[nth].load(data.from[first + nth] + at, stride, first + nth < count ? rows : 0);
        }
        UNROLL for (u32 nth = 1; nth < Most; nth++) {
            sum.template add<Op>(next[nth], first + nth < count);
        }
        first += Most - 1;
    } while (Most == AT_A_TIME && first + 1 < count);
    if (data.into) sum.store(data.into + at, stride, rows);
    if (data.slot) sum.store(data.slot + at, stride, rows);
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
        u64 nothing[1];
        u64 report = await_lines(self, SourceLines{self, data, step.sources, nth, 0}, 1, nothing);
        if (report != OK) return report;
    }
    release();
    if (data.slot) store_eight((u64*)data.slot, 0, flag);
    return OK;
}

// Folds rows, from `at` on, while there are `Least` of them below `end`. Returns where it ends.
template <class T, class Op, int Rows, int Least, int Most>
DEVICE u64 fold_pieces(const Lane& self, const StepData& data, u32 count, u64 at, u64 end) {
    const u64 stride = MOVERS(self) * 16;
    for (; at + (Least - 1) * stride < end; at += Rows * stride) {
        int rows = Least;
        UNROLL for (int row = Least; row < Rows; row++) rows += at + row * stride < end;
        fold_rows<T, Op, Rows, Most>(data, count, at, stride, rows);
    }
    return at;
}

// Folds the sixteen bytes of each thread that begin below `end`.
template <class T, class Op>
DEVICE void fold_until(const Lane& self, const StepData& data, u32 count, u64 end) {
    u64 at = (u64)threadIdx.x * 16;
    // As many loads as there are registers for: short numbers are combined as numbers of 32 bits.
    const u32 element = sizeof(typename T::Stored);
    const int two = element == 1 ? 3 : element == 2 ? 5 : 8;
    const int few = element < 4 ? 2 : 4;
    const int many = element < 4 ? 1 : 2;
    if (count == 1) at = fold_pieces<T, Op, 8, 8, 1>(self, data, 1, at, end);
    if (count == 2) at = fold_pieces<T, Op, two, two, 2>(self, data, 2, at, end);
    if (count <= 4) {
        fold_pieces<T, Op, few, 1, 4>(self, data, count, at, end);
    } else {
        fold_pieces<T, Op, many, 1, AT_A_TIME>(self, data, count, at, end);
    }
}

// Combines `bytes` bytes of all sources, none of which is a line, in their order, and stores the result where
// it belongs.
template <class T, class Op>
DEVICE void execute(const Lane& self, const StepData& data, const Step& step, u64 bytes) {
    u32 count = step.fold->count;
    bool is_in_place = count == 1 && !data.slot && data.from[0] == data.into;
    if (is_in_place) return;
    u64 whole = is_aligned(data, count) ? bytes / 16 * 16 : 0;
    fold_until<T, Op>(self, data, count, whole);
    fold_eights<T, Op, false>(self, data, step, whole, bytes, 0);
}

// Removes all flags of the lane's piece of the slot.
DEVICE void wipe(const Lane& self, const StepData& data) {
    for (u64 at = (u64)threadIdx.x * 16; at < piece(self); at += (u64)self.movers * 16) {
        store_line((u64*)(data.slot + at), 0, 0);
    }
}
