// Products of many rows, which share a panel of the weights, widened and laid out as it is read.
//
// Here the lanes of a vector are outputs. What is a lane of the sums elsewhere, the depths l, l + W, l + 2W …,
// is a chain of its own, gone through for some rows and outputs at once; then the chains are added as a
// vector's lanes are: the same sums, the same bits, and nothing to shuffle.
#pragma once

#include "widening.hpp"

namespace REGARD_ISA {
namespace {

constexpr int ROWS = VECTOR_BYTES == 64 ? 12 : 6;  // of a register block
constexpr int OUTS = 2;                            // its vectors of outputs
constexpr int PANEL = OUTS * L;                    // outputs that share a reading of x
constexpr int64_t DEPTH = 384 / L;                 // vectors of the depth that are laid out together, and
                                                   // with a block's rows fill the first-level cache
constexpr int64_t CHUNK = 1 << 19;                 // bytes of x that stay in the second-level cache
constexpr int PANELS = 6;                          // that a chunk of rows goes through
constexpr int64_t LEAST_ROWS = 144;                // for which a panel is worth laying out

constexpr int64_t pieces(int64_t n, int64_t size) { return (n + size - 1) / size; }
inline int64_t vectors_of(const Product &p) { return pieces(p.in, L); }

// A panel's outputs, the vectors begin … end of the depth: chain after chain, in each depth after depth.
// Those that are not there are 0.
template <class Kind> void lay_out(const Product &p, int64_t first, int64_t begin, int64_t end, F *panel) {
    const int64_t n = end - begin;
    for (int g = 0; g < OUTS; g++) {
        for (int64_t v = begin; v < end;) {
            const int64_t step = v * L / STEP, left = p.in - step * STEP;
            F wide[L][VECTORS];
            for (int o = 0; o < L; o++) {
                const int64_t out = first + g * L + o;
                const char *from = p.weight + out * p.stride + step * Kind::block;
                if (out >= p.out)
                    for (int i = 0; i < VECTORS; i++) wide[o][i] = F{};
                else if (left < STEP)
                    read_end<Kind>(from, left, wide[o]);
                else
                    read_step<Kind>(from, wide[o]);
            }
            for (int64_t i = v % VECTORS; i < VECTORS && v < end; i++, v++) {
                F square[L];
                for (int o = 0; o < L; o++) square[o] = wide[o][i];
                transpose<float>(square);
                for (int l = 0; l < L; l++) panel[(l * n + v - begin) * OUTS + g] = square[l];
            }
        }
    }
}

// R rows' chain over n depths that lie L apart, carried on.
template <int R>
[[gnu::always_inline]] inline void carry(const float *const (&x)[R], const F *w, int64_t n, F (&a)[R][OUTS]) {
#pragma GCC unroll 2
    for (int64_t k = 0; k < n; k++) {
        F b[OUTS];
#pragma GCC unroll 2
        for (int g = 0; g < OUTS; g++) b[g] = w[k * OUTS + g];
#pragma GCC unroll 12
        for (int r = 0; r < R; r++) {
            const F c = spread<F>(x[r][k * L]);
#pragma GCC unroll 2
            for (int g = 0; g < OUTS; g++) a[r][g] = fma(b[g], c, a[r][g]);
        }
    }
}

// A part of a product: a panel from an output on, the vectors begin … end of the depth.
struct Part {
    const Product &p;
    const F *panel;
    int64_t first, begin, end;
};

template <int R> void write(const Part &part, int64_t row, const F (&a)[R][OUTS]) {
    const Product &p = part.p;
    for (int r = 0; r < R; r++) {
        for (int g = 0; g < OUTS; g++) {
            const int64_t first = part.first + g * L, n = p.out - first;
            float *y = p.y + (row + r) * p.out + first;
            if (n >= L)
                store(y, p.bias ? a[r][g] + load<F>(p.bias + first) : a[r][g]);
            else
                for (int64_t l = 0; l < n; l++) y[l] = p.bias ? a[r][g][l] + p.bias[first + l] : a[r][g][l];
        }
    }
}

constexpr int reversed(int i) {  // its bits
    int l = 0;
    for (int bit = 1; bit < L; bit *= 2) l = 2 * l + (i / bit & 1);
    return l;
}

// R rows of a part. All chains are carried on in `sums`; those that end here are added two by two, which by
// reversed numbers are neighbours, and y is written.
template <int R> [[gnu::noinline]] void block(const Part &part, int64_t row, F *sums) {
    const Product &p = part.p;
    const int64_t n = part.end - part.begin, full = least(p.in / L, part.end) - part.begin;
    const bool ends = part.end == vectors_of(p);
    F last[R], waiting[L][R][OUTS], a[R][OUTS];
    if (full < n)
        for (int r = 0; r < R; r++) last[r] = wide<float>(p.x + (row + r) * p.in + p.in / L * L, p.in % L);
    int depth = 0;  // of sums that wait for their neighbours
    for (int i = 0; i < L; i++) {
        const int l = reversed(i);
        const F *w = part.panel + l * n * OUTS;
        F *kept = sums + l * R * OUTS;
        const float *x[R], *rest[R];
        for (int r = 0; r < R; r++) {
            x[r] = p.x + (row + r) * p.in + part.begin * L + l, rest[r] = (const float *)&last[r] + l;
            for (int g = 0; g < OUTS; g++) a[r][g] = part.begin ? kept[r * OUTS + g] : F{};
        }
        carry<R>(x, w, full, a);
        if (full < n) carry<R>(rest, w + full * OUTS, 1, a);
        for (int j = i; ends && j & 1; j /= 2) {
            depth--;
            for (int r = 0; r < R; r++)
                for (int g = 0; g < OUTS; g++) a[r][g] += waiting[depth][r][g];
        }
        F *to = ends ? &waiting[depth++][0][0] : kept;
        for (int r = 0; r < R; r++)
            for (int g = 0; g < OUTS; g++) to[r * OUTS + g] = a[r][g];
    }
    if (ends) write<R>(part, row, a);
}

template <int R = ROWS> void block_of(int64_t rows, const Part &part, int64_t row, F *sums) {
    if constexpr (R > 1)
        if (rows < R) return block_of<R - 1>(rows, part, row, sums);
    block<R>(part, row, sums);
}

// Rows that an item takes, all about as many.
inline int64_t chunk(const Product &p) {
    const int64_t most_rows = most(LEAST_ROWS, CHUNK / (4 * most<int64_t>(1, p.in)));
    return ROWS * pieces(pieces(p.rows, pieces(p.rows, most_rows)), ROWS);
}

// Vectors of the depth that go together.
inline int64_t reach(const Product &p) {
    const int64_t n = most<int64_t>(1, vectors_of(p)), parts = pieces(n, DEPTH);
    return pieces(pieces(n, parts), VECTORS) * VECTORS;
}

inline int64_t panel_size(const Product &p) { return reach(p) * L * OUTS; }
inline int64_t sums_size(const Product &p) { return least(p.rows, chunk(p) + ROWS) * L * OUTS; }  // of a panel

inline int64_t room_for_many(const Product &p) {
    const bool parts = reach(p) < vectors_of(p);
    return 64 + PANELS * (panel_size(p) + (parts ? sums_size(p) : 0)) * (int64_t)sizeof(F);
}

// Rows top … bottom of the outputs begin … end. Some rows go through all panels, so that what is written
// of a row lies together.
template <class Kind>
void many(const Product &p, int64_t top, int64_t bottom, int64_t begin, int64_t end, char *room) {
    F *panels = (F *)(((uintptr_t)room + 63) & ~(uintptr_t)63), *sums = panels + PANELS * panel_size(p);
    const int64_t vectors = vectors_of(p), n = pieces(end - begin, PANEL);
    Part part = {p, panels, begin, 0, 0};
    do {
        part.begin = part.end, part.end = least(vectors, part.begin + reach(p));
        for (int64_t i = 0; i < n; i++)
            lay_out<Kind>(p, begin + i * PANEL, part.begin, part.end, panels + i * panel_size(p));
        for (int64_t r = top; r < bottom; r += ROWS)
            for (int64_t i = 0; i < n; i++) {
                part.panel = panels + i * panel_size(p), part.first = begin + i * PANEL;
                block_of(bottom - r, part, r, sums + i * sums_size(p) + (r - top) * L * OUTS);
            }
    } while (part.end < vectors);
}

}  // namespace
}  // namespace REGARD_ISA
