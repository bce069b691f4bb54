// Products of few rows: the weights are read once, at the speed of memory, and widened in registers.
#pragma once

#include "widening.hpp"

namespace REGARD_ISA {
namespace {

constexpr int64_t FEW = 8;          // rows
constexpr int GROUP = 24;           // outputs that are folded together; a multiple of L and of each O
constexpr int64_t AHEAD = 1 << 12;  // bytes that memory is asked for before the rows that are next

// What lies so far ahead is asked for: all of the next rows is there when they are begun.
inline int64_t ahead(const Product &p, int outs) { return outs * p.stride + AHEAD; }

// Sums of R rows and O outputs over all depths. The rows of the weights are short, too short for the
// processor to see where the reading goes: so it is told.
template <class Kind, int R, int O>
[[gnu::always_inline]] inline void few_block(const Product &p, int64_t row, int64_t first, F *sums) {
    const char *w = p.weight + first * p.stride, *next = w + ahead(p, O);
    const float *rows = p.x + row * p.in;
    F a[R][O];
#pragma GCC unroll 4
    for (int r = 0; r < R; r++)
#pragma GCC unroll 8
        for (int o = 0; o < O; o++) a[r][o] = F{};
    const int64_t steps = p.in / STEP, rest = p.in % STEP;
    for (int64_t s = 0; s < steps; s++) {
        const char *from = w + s * Kind::block;
        const float *x = rows + s * STEP;
#pragma GCC unroll 16
        for (int line = 0; line < O * Kind::block; line += 64)
            __builtin_prefetch(next + s * O * Kind::block + line, 0, 2);
        if constexpr (R == 1) {
#pragma GCC unroll 8
            for (int o = 0; o < O; o++) {
                F wide[VECTORS];
                read_step<Kind>(from + o * p.stride, wide);
#pragma GCC unroll 8
                for (int v = 0; v < VECTORS; v++) a[0][o] = fma(wide[v], load<F>(x + v * L), a[0][o]);
            }
        } else {
            F wide[O][VECTORS];
            if constexpr (!Kind::array)
#pragma GCC unroll 4
                for (int o = 0; o < O; o++) Kind::read(from + o * p.stride, wide[o]);
#pragma GCC unroll 8
            for (int v = 0; v < VECTORS; v++) {
                if constexpr (Kind::array)
#pragma GCC unroll 4
                    for (int o = 0; o < O; o++) wide[o][v] = Kind::at(from + o * p.stride, v);
#pragma GCC unroll 4
                for (int r = 0; r < R; r++) {
                    const F c = load<F>(x + r * p.in + v * L);
#pragma GCC unroll 4
                    for (int o = 0; o < O; o++) a[r][o] = fma(wide[o][v], c, a[r][o]);
                }
            }
        }
    }
    if (rest) {
        for (int o = 0; o < O; o++) {
            F wide[VECTORS], narrow[VECTORS];
            read_end<Kind>(w + o * p.stride + steps * Kind::block, rest, wide);
            for (int r = 0; r < R; r++) {
                read_end<Floats>((const char *)(rows + r * p.in + steps * STEP), rest, narrow);
                for (int v = 0; v * L < rest; v++) a[r][o] = fma(wide[v], narrow[v], a[r][o]);
            }
        }
    }
    for (int r = 0; r < R; r++)
        for (int o = 0; o < O; o++) sums[r * GROUP + o] = a[r][o];
}

template <class Kind, int R> void few_group(const Product &p, int64_t row, int64_t first, int64_t n) {
    constexpr int O = R == 1 ? 8 : R == 2 ? 4 : 3;
    F sums[R * GROUP];
    int64_t o = 0;
    for (; o + O <= n; o += O) few_block<Kind, R, O>(p, row, first + o, sums + o);
    for (; o < n; o++) few_block<Kind, R, 1>(p, row, first + o, sums + o);
    for (; o < GROUP; o++)  // those that are not there
        for (int r = 0; r < R; r++) sums[r * GROUP + o] = F{};
    finish<R, GROUP>(p, sums, row, first, n);
}

// All rows of the outputs begin … end.
template <class Kind> void few(const Product &p, int64_t begin, int64_t end) {
    for (int64_t line = 0; line < least(ahead(p, 8), (end - begin) * p.stride); line += 64)
        __builtin_prefetch(p.weight + begin * p.stride + line, 0, 2);
    for (int64_t o = begin; o < end; o += GROUP) {
        const int64_t n = least<int64_t>(GROUP, end - o);
        for (int64_t row = 0; row < p.rows; row += 4) {
            switch (p.rows - row) {
                case 1: few_group<Kind, 1>(p, row, o, n); break;
                case 2: few_group<Kind, 2>(p, row, o, n); break;
                case 3: few_group<Kind, 3>(p, row, o, n); break;
                default: few_group<Kind, 4>(p, row, o, n);
            }
        }
    }
}

}  // namespace
}  // namespace REGARD_ISA
