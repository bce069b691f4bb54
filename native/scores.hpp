// The micro-kernel, a block of queries, and the scores of a tile, complete with all that is done to them.
#pragma once

#include <cmath>

#include "reading.hpp"

namespace REGARD_ISA {
namespace {

// ------------------------------------------------------------------------- the micro-kernel

// acc[r] = Σ over t of a[r·rs + t·ts] · b[t], each sum in the order of t, from zero.
template <class T, int V, int R>
[[gnu::always_inline]] inline void multiply(const T *a, int64_t rs, int64_t ts, const T *b, int64_t n,
                                            Vec<T> (&acc)[R][V]) {
    for (int r = 0; r < R; r++)
        for (int v = 0; v < V; v++) acc[r][v] = Vec<T>{};
    for (int64_t t = 0; t < n; t++) {
        Vec<T> x[V];
        for (int v = 0; v < V; v++) x[v] = load<Vec<T>>(b + (t * V + v) * W<T>);
#pragma GCC unroll 12
        for (int r = 0; r < R; r++) {
            const Vec<T> k = spread<Vec<T>>(a[r * rs + t * ts]);
#pragma GCC unroll 2
            for (int v = 0; v < V; v++) acc[r][v] = fma(k, x[v], acc[r][v]);
        }
    }
}

template <class T, int V, int R>
[[gnu::noinline]] void score_rows(const T *k, int64_t stride, const T *q, int64_t D, T *s) {
    Vec<T> acc[R][V];
    multiply<T, V, R>(k, stride, 1, q, D, acc);
    for (int r = 0; r < R; r++)
        for (int v = 0; v < V; v++) store(s + (r * V + v) * W<T>, acc[r][v]);
}

template <class T, int V, int R>
[[gnu::noinline]] void carry_columns(const T *x, int64_t stride, const T *p, int64_t n, const Vec<T> *a,
                                     T *o) {
    Vec<T> acc[R][V];
    multiply<T, V, R>(x, 1, stride, p, n, acc);
    for (int r = 0; r < R; r++)
        for (int v = 0; v < V; v++) {
            T *place = o + (r * V + v) * W<T>;
            store(place, fma(load<Vec<T>>(place), a[v], acc[r][v]));
        }
}

template <class T, int V, int R>
void scores_down(const T *k, int64_t stride, const T *q, int64_t D, T *s, int64_t n) {
    for (; n >= R; n -= R, k += R * stride, s += R * V * W<T>) score_rows<T, V, R>(k, stride, q, D, s);
    if constexpr (R > 1)
        if (n) scores_down<T, V, R / 2>(k, stride, q, D, s, n);
}

template <class T, int V, int R>
void carry_down(const T *x, int64_t stride, const T *p, int64_t n, const Vec<T> *a, T *o, int64_t Dv) {
    for (; Dv >= R; Dv -= R, x += R, o += R * V * W<T>) carry_columns<T, V, R>(x, stride, p, n, a, o);
    if constexpr (R > 1)
        if (Dv) carry_down<T, V, R / 2>(x, stride, p, n, a, o, Dv);
}

// -------------------------------------------------------------------------------- elementwise

// tanh, at most 2 units in the last place: by its series near 0, else by (1 - e)/(1 + e).
inline Vec<float> tanh_(Vec<float> x) {
    const Vec<float> a = x < 0.0f ? -x : x, z = x * x;
    Vec<float> p = spread<Vec<float>>(-0.00570498677f);
    for (float c : {0.020639087f, -0.053739715f, 0.133314422f, -0.3333328194f}) p = fma(p, z, spread<Vec<float>>(c));
    const Vec<float> near = fma(x * z, p, x);
    const Vec<float> e = exp2(a * spread<Vec<float>>(-2.8853900817779268f));
    const Vec<float> far = (1.0f - e) / (1.0f + e);
    return a < 0.625f ? near : (x < 0.0f ? -far : far);
}

inline Vec<double> tanh_(Vec<double> x) {
    for (int i = 0; i < W<double>; i++) x[i] = std::tanh(x[i]);
    return x;
}

// ------------------------------------------------------------------------- a block of queries

template <class T, int V> struct Block {
    static constexpr int L = V * W<T>;
    int64_t b, kv, n;                       // lanes in use; the others repeat lane 0 and are not kept
    int64_t head[L], index[L], lo[L], hi[L];  // of each lane: query head, query, interval
    int64_t first, last, late_lo, early_hi;   // tiles lie in [first, last), all see [late_lo, early_hi)
    T *q, *s, *o, *total;                     // D × L, TILE × L, Dv × L (a segment's), Dv × L
    Vec<T> m[V], l[V], M[V], S[V];            // maximum and sum: of the segment, of all segments
};

// How a call's scores become weights: in base 2 unless something natural is added to them.
template <class T> struct Units {
    bool natural;
    T query, exponent;  // factor of the queries; of (score - maximum)

    explicit Units(const Call &c) : natural(c.natural) {
        query = natural ? (T)c.scale : (T)(c.scale * LOG2E);
        exponent = natural ? (T)LOG2E : (T)1;
    }
    Vec<T> power(Vec<T> difference) const { return exp2(natural ? difference * exponent : difference); }
};

template <class T, int V> int64_t block_bytes(const Call &c) {
    constexpr int64_t L = V * W<T>;
    return (c.D + TILE + 2 * c.Dv) * L * (int64_t)sizeof(T);
}

template <class T, int V>
void place_queries(const Call &c, Block<T, V> &k, const int64_t *head, const int64_t *index, int64_t n) {
    const Units<T> units(c);
    k.n = n;
    for (int i = 0; i < k.L; i++) {
        const int64_t lane = i < n ? i : 0;
        k.head[i] = head[lane];
        k.index[i] = index[lane];
        const char *row = c.at(c.query, k.b, k.head[i]) + k.index[i] * c.query.row;
        if (c.query.type == own<T>() && c.query.column == (int64_t)sizeof(T))
            for (int64_t d = 0; d < c.D; d++) k.q[d * k.L + i] = units.query * ((const T *)row)[d];
        else
            for (int64_t d = 0; d < c.D; d++)
                k.q[d * k.L + i] = units.query * read<T>(row + d * c.query.column, c.query.type);
        k.lo[i] = c.lo ? peek<int64_t>(c.at(c.lo, k.b, k.head[i]) + k.index[i] * c.lo.row) : 0;
        k.hi[i] = c.hi ? peek<int64_t>(c.at(c.hi, k.b, k.head[i]) + k.index[i] * c.hi.row) : c.Nk;
    }
    k.first = c.Nk, k.last = 0, k.late_lo = 0, k.early_hi = c.Nk;
    for (int i = 0; i < k.L; i++) {
        if (k.lo[i] < k.hi[i]) k.first = least(k.first, k.lo[i]), k.last = most(k.last, k.hi[i]);
        k.late_lo = most(k.late_lo, k.lo[i]), k.early_hi = least(k.early_hi, k.hi[i]);
    }
}

// --------------------------------------------------------- what is done to the scores of a tile

template <class T, int V> void bend(const Call &c, T *s, int64_t n) {
    const T cap = (T)c.softcap;
    for (int64_t i = 0; i < n * V; i++) {
        T *p = s + i * W<T>;
        store(p, cap * tanh_(load<Vec<T>>(p) / cap));
    }
}

template <class T, int V>
void add_bias(const Call &c, const Block<T, V> &k, T *s, const int64_t *list, int64_t j0, int64_t n) {
    for (int i = 0; i < k.L; i++) {
        const char *row = c.at(c.bias, k.b, k.head[i]) + k.index[i] * c.bias.row;
        for (int64_t j = 0; j < n; j++) {
            const char *p = row + (list ? list[j] : j0 + j) * c.bias.column;
            const T x = c.bias.type == own<T>() ? peek<T>(p) : saturated<T>(read<double>(p, c.bias.type));
            T &score = s[j * k.L + i];
            score = x == -infinity<T>() ? x : score + x;
        }
    }
}

template <class T, int V>
void add_alibi(const Call &c, const Block<T, V> &k, T *s, const int64_t *list, int64_t j0, int64_t n) {
    const int64_t start = peek<int64_t>(c.at(c.start, k.b, 0));
    for (int i = 0; i < k.L; i++) {
        const double slope = c.slopes[k.head[i]];
        for (int64_t j = 0; j < n; j++) {
            const int64_t distance = start + k.index[i] - (list ? list[j] : j0 + j);
            s[j * k.L + i] -= saturated<T>(slope * (double)(distance < 0 ? -distance : distance));
        }
    }
}

template <class T, int V>
void hide_by_mask(const Call &c, const Block<T, V> &k, T *s, const int64_t *list, int64_t j0, int64_t n) {
    for (int i = 0; i < k.L; i++) {
        const char *row = c.at(c.mask, k.b, k.head[i]) + k.index[i] * c.mask.row;
        for (int64_t j = 0; j < n; j++) {
            T &score = s[j * k.L + i];
            score = row[(list ? list[j] : j0 + j) * c.mask.column] ? score : -infinity<T>();
        }
    }
}

template <class T, int V> void hide_by_interval(const Block<T, V> &k, T *s, int64_t j0, int64_t n) {
    Vec<T> lo[V], hi[V];  // relative to the tile, small whole numbers
    for (int v = 0; v < V; v++)
        for (int i = 0; i < W<T>; i++) {
            lo[v][i] = (T)most<int64_t>(-1, least(k.lo[v * W<T> + i] - j0, n));
            hi[v][i] = (T)most<int64_t>(-1, least(k.hi[v * W<T> + i] - j0, n));
        }
    const Vec<T> hidden = spread<Vec<T>>(-infinity<T>());
    for (int64_t j = 0; j < n; j++)
        for (int v = 0; v < V; v++) {
            T *p = s + (j * V + v) * W<T>;
            const Vec<T> at = spread<Vec<T>>((T)j);
            store(p, (at >= lo[v]) & (at < hi[v]) ? load<Vec<T>>(p) : hidden);
        }
}

template <class T, int V>
void hide_listed(const Block<T, V> &k, T *s, const int64_t *list, int64_t n) {
    for (int64_t j = 0; j < n; j++)
        for (int i = 0; i < k.L; i++)
            if (list[j] < k.lo[i] || list[j] >= k.hi[i]) s[j * k.L + i] = -infinity<T>();
}

// Scores of n keys against the block, complete: -inf where a pair is hidden.
template <class T, int V>
void scores(const Call &c, const Block<T, V> &k, Rows<T> keys, const int64_t *list, int64_t j0, int64_t n) {
    scores_down<T, V, REACH * 2 / V>(keys.data, keys.stride, k.q, c.D, k.s, n);
    if (c.softcap != 0) bend<T, V>(c, k.s, n);
    if (c.bias) add_bias(c, k, k.s, list, j0, n);
    if (c.slopes) add_alibi(c, k, k.s, list, j0, n);
    if (c.mask) hide_by_mask(c, k, k.s, list, j0, n);
    if (list)
        hide_listed(k, k.s, list, n);
    else if (k.late_lo > j0 || k.early_hi < j0 + n)
        hide_by_interval(k, k.s, j0, n);
}

}  // namespace
}  // namespace REGARD_ISA
