// Products of many rows, which share a panel of the weights, widened and laid out as it is read.
#pragma once

#include "widening.hpp"

namespace REGARD_ISA {
namespace {

constexpr int ROWS = 4;  // of a register block
constexpr int OUTS = VECTOR_BYTES == 64 ? 6 : 3;
constexpr int TILES = 4;              // register blocks of a panel
constexpr int PANEL = TILES * OUTS;   // outputs that share a reading of x
constexpr int64_t DEPTH = 384;        // of a panel, which then stays in the first-level cache
constexpr int64_t CHUNK = 1 << 19;    // bytes of x that stay in the second-level cache
constexpr int64_t TOGETHER = 48;      // rows that go through a part of the panel before the next part

constexpr int64_t whole(int64_t depth) { return (depth + L - 1) / L; }  // vectors of a row
constexpr int64_t pieces(int64_t n, int64_t size) { return (n + size - 1) / size; }

// A panel's weights as they are read: OUTS by OUTS outputs, vector by vector, those that are not there 0.
template <class Kind> void lay_out(const Product &p, int64_t first, int64_t n, F *panel) {
    const int64_t vectors = whole(p.in);
    for (int64_t o = 0; o < PANEL; o++) {
        F *to = panel + o / OUTS * OUTS * vectors + o % OUTS;
        if (o >= n) {
            for (int64_t v = 0; v < vectors; v++) to[v * OUTS] = F{};
            continue;
        }
        const char *row = p.weight + (first + o) * p.stride;
        for (int64_t s = 0; s * STEP < p.in; s++) {
            F wide[VECTORS];
            const int64_t left = p.in - s * STEP;
            if (left < STEP)
                read_end<Kind>(row + s * Kind::block, left, wide);
            else
                read_step<Kind>(row + s * Kind::block, wide);
            for (int64_t v = 0; v < VECTORS && s * VECTORS + v < vectors; v++)
                to[(s * VECTORS + v) * OUTS] = wide[v];
        }
    }
}

// Sums of R rows and OUTS outputs over n vectors of the depth, carried on from `before`, or begun.
template <int R>
[[gnu::always_inline]] inline void carry_block(const float *const *x, const F *w, int64_t n, const F *before, F *sums) {
    F a[R][OUTS];
    for (int r = 0; r < R; r++)
        for (int o = 0; o < OUTS; o++) a[r][o] = before ? before[r * PANEL + o] : F{};
#pragma GCC unroll 4
    for (int64_t v = 0; v < n; v++) {
        F b[OUTS];
#pragma GCC unroll 8
        for (int o = 0; o < OUTS; o++) b[o] = w[v * OUTS + o];
#pragma GCC unroll 4
        for (int r = 0; r < R; r++) {
            const F c = load<F>(x[r] + v * L);
#pragma GCC unroll 8
            for (int o = 0; o < OUTS; o++) a[r][o] = fma(b[o], c, a[r][o]);
        }
    }
    for (int r = 0; r < R; r++)
        for (int o = 0; o < OUTS; o++) sums[r * PANEL + o] = a[r][o];
}

// A part of a product: n outputs from `first` on, the vectors begin … end of the depth.
struct Part {
    const Product &p;
    const F *panel;
    int64_t first, n, begin, end;
};

// R rows' sums of a part, carried on; after the last vector they are folded, and y is written.
template <int R> [[gnu::noinline]] void carry(const Part &part, int64_t row, F *sums) {
    const Product &p = part.p;
    const int64_t vectors = whole(p.in), full = p.in / L, end = part.end;
    const float *x[R], *last[R];
    F ends[R];
    for (int r = 0; r < R; r++) {
        x[r] = p.x + (row + r) * p.in + part.begin * L;
        last[r] = (const float *)&ends[r];
        if (end > full) ends[r] = wide<float>(p.x + (row + r) * p.in + full * L, p.in - full * L);
    }
    F here[(R * PANEL + L - 1) / L * L];
    for (int i = R * PANEL; i % L; i++) here[i] = F{};
    F *to = end == vectors ? here : sums;
    for (int t = 0; t < TILES; t++) {
        const F *w = part.panel + (t * vectors + part.begin) * OUTS;
        F *place = to + t * OUTS;
        carry_block<R>(x, w, least(end, full) - part.begin, part.begin ? sums + t * OUTS : nullptr, place);
        if (end > full) carry_block<R>(last, w + (full - part.begin) * OUTS, 1, place, place);
    }
    if (to == here) finish<R, PANEL>(p, here, row, part.first, part.n);
}

// Some rows and a panel's outputs.
inline void many(Part part, int64_t row, int64_t rows, F *sums) {
    const int64_t vectors = whole(part.p.in), parts = most<int64_t>(1, pieces(vectors, DEPTH / L));
    do {
        part.begin = part.end, part.end = least(vectors, part.begin + pieces(vectors, parts));
        int64_t r = 0;
        for (; r + ROWS <= rows; r += ROWS) carry<ROWS>(part, row + r, sums + r * PANEL);
        for (; r < rows; r++) carry<1>(part, row + r, sums + r * PANEL);
    } while (part.end < vectors);
}

// Rows that an item takes.
inline int64_t chunk(const Product &p) {
    return TOGETHER * most<int64_t>(1, CHUNK / (TOGETHER * most<int64_t>(1, p.in) * (int64_t)sizeof(float)));
}

inline int64_t room_for_many(const Product &p) {
    return 64 + (whole(p.in) + least(p.rows, TOGETHER)) * PANEL * (int64_t)sizeof(F);
}

// Rows top … bottom of the outputs begin … end.
template <class Kind>
void many(const Product &p, int64_t top, int64_t bottom, int64_t begin, int64_t end, char *room) {
    F *panel = (F *)(((uintptr_t)room + 63) & ~(uintptr_t)63);
    F *sums = panel + whole(p.in) * PANEL;
    for (int64_t o = begin; o < end; o += PANEL) {
        const int64_t n = least<int64_t>(PANEL, end - o);
        lay_out<Kind>(p, o, n, panel);
        for (int64_t r = top; r < bottom; r += TOGETHER)
            many({p, panel, o, n, 0, 0}, r, least(TOGETHER, bottom - r), sums);
    }
}

}  // namespace
}  // namespace REGARD_ISA
