// The micro-kernel, a block of queries, and the scores of a tile, complete with all that is done to them.
#pragma once

#include <cmath>

#include "factors.hpp"

namespace REGARD_ISA {
namespace {

constexpr int V = 2;  // vectors of queries in a block

// ------------------------------------------------------------------------- the micro-kernel

// acc[r][v] += Σ over t in [from, to) of a[r·rs + t·ts] · b[t], each sum in the order of t, for vectors F and on.
template <class T, int F, int R>
[[gnu::always_inline]] inline void multiply(const Factor<T> *a, int64_t rs, int64_t ts, const Factor<T> *b,
                                            int64_t from, int64_t to, Vec<T> (&acc)[R][V]) {
    using X = Vec<Factor<T>>;
    for (int64_t t = from; t < to; t++) {
        X x[V];
#pragma GCC unroll 2
        for (int v = F; v < V; v++) x[v] = load<X>(b + (t * V + v) * W<T>);
#pragma GCC unroll 12
        for (int r = 0; r < R; r++) {
            const X k = spread<X>(a[r * rs + t * ts]);
#pragma GCC unroll 2
            for (int v = F; v < V; v++) acc[r][v] = fma(k, x[v], acc[r][v]);
        }
    }
}

template <class T, int R> [[gnu::always_inline]] inline void begin_sums(Vec<T> (&acc)[R][V]) {
#pragma GCC unroll 12
    for (int r = 0; r < R; r++)
#pragma GCC unroll 2
        for (int v = 0; v < V; v++) acc[r][v] = Vec<T>{};
}

template <class T, int F, int R>
[[gnu::noinline]] void score_rows(const Factor<T> *k, int64_t stride, const Factor<T> *q, int64_t n, T factor, T *s) {
    Vec<T> acc[R][V];
    begin_sums<T, R>(acc);
    multiply<T, F, R>(k, stride, 1, q, 0, n, acc);
#pragma GCC unroll 12
    for (int r = 0; r < R; r++)
#pragma GCC unroll 2
        for (int v = F; v < V; v++) store(s + (r * V + v) * W<T>, rescaled(acc[r][v], factor));
}

// Of n keys' factors the first vector sees `early`. To o · a, or to nothing where o is `fresh`.
template <class T, int R>
[[gnu::noinline]] void carry_columns(const Factor<T> *x, int64_t stride, const Factor<T> *p, int64_t early, int64_t n,
                                     const Vec<T> *a, bool fresh, T *o) {
    Vec<T> acc[R][V];
    begin_sums<T, R>(acc);
    multiply<T, 0, R>(x, 1, stride, p, 0, early, acc);
    multiply<T, 1, R>(x, 1, stride, p, early, n, acc);
    const Vec<T> nothing{};
    const T *before = fresh ? (const T *)&nothing : o;
    const int64_t step = fresh ? 0 : W<T>;
#pragma GCC unroll 12
    for (int r = 0; r < R; r++)
#pragma GCC unroll 2
        for (int v = 0; v < V; v++) {
            const int i = r * V + v;
            store(o + i * W<T>, fma(load<Vec<T>>(before + i * step), a[v], acc[r][v]));
        }
}

// Calls f<R>(i) for blocks i … i + R - 1 of all n: of REACH, and the last ones cut so that each still has
// enough sums under way to fill the multipliers, 8 as 4 + 4 and not 6 + 2.
template <int R, class F> [[gnu::always_inline]] inline void of_size(int64_t n, int64_t i, const F &f) {
    if constexpr (R > 0) {
        if (n == R)
            f.template operator()<R>(i);
        else
            of_size<R - 1>(n, i, f);
    }
}
template <class F> [[gnu::always_inline]] inline void in_blocks(int64_t n, const F &f) {
    int64_t i = 0;
    for (; n - i >= REACH * 3 / 2 || n - i == REACH; i += REACH) f.template operator()<REACH>(i);
    const int64_t first = n - i > REACH ? (n - i + 1) / 2 : 0;
    of_size<REACH>(first, i, f);
    of_size<REACH>(n - i - first, i + first, f);
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

template <class T> struct Block {
    static constexpr int L = V * W<T>;
    int64_t head[L], index[L], lo[L], hi[L];  // of each lane: query head, query, interval
    int64_t b, kv, n;                         // lanes in use; the others repeat lane 0 and are not kept
    int64_t first, last, late_lo, early_hi;   // keys lie in [first, last), all see [late_lo, early_hi)
    int64_t early_last;                       // keys that the first vector sees lie before it
    bool fresh;                               // no tile has been added to o, which holds nothing yet
    Factor<T> *q;                             // D × L
    T *s, *o, *total;                         // TILE × L, Dv × L (a segment's), Dv × L
    T *added;                                 // L × TILE, lane by lane, where something is added
    Vec<T> m[V], l[V], M[V], S[V];            // maximum and sum: of the segment, of all segments

    Factor<T> *p() const { return (Factor<T> *)s; }  // the weights that a tile's scores become
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

[[gnu::always_inline]] inline bool adds(const Call &c) { return c.bias || c.slopes || c.mask; }

template <class T> int64_t block_bytes(const Call &c) {
    const int64_t columns = c.D + 2 * c.Dv + TILE * (adds(c) ? 2 : 1);
    return columns * Block<T>::L * (int64_t)sizeof(T);
}

// Where a block's arrays lie; returns what comes after them.
template <class T> char *lay_out(const Call &c, Block<T> &k, char *room) {
    k.q = (Factor<T> *)room;
    k.s = (T *)room + c.D * k.L, k.o = k.s + TILE * k.L, k.total = k.o + c.Dv * k.L;
    k.added = k.total + c.Dv * k.L;
    return room + block_bytes<T>(c);
}

// The row of a lane, in an array of the block's batch element that begins at `base`.
template <class T> const char *row_of(const Array &a, const char *base, const Block<T> &k, int64_t lane) {
    return base + k.head[lane] * a.head + k.index[lane] * a.row;
}

template <class T> void transpose_queries(const Call &c, Block<T> &k, T factor, int first) {
    const char *base = c.at(c.query, k.b, 0), *row[W<T>];
    for (int w = 0; w < W<T>; w++) row[w] = row_of(c.query, base, k, first + w);
    int64_t d = 0;
    const auto squares = [&]<class X>(X) {
        for (; d + W<T> <= c.D / EACH && dense(c.query); d += W<T>) {
            Vec<Factor<T>> x[W<T>];
            for (int w = 0; w < W<T>; w++) x[w] = scaled(wide((const X *)row[w] + d), factor);
            transpose<Factor<T>>(x);
            for (int w = 0; w < W<T>; w++) store(k.q + (d + w) * k.L + first, x[w]);
        }
    };
    if (c.query.type == stored<T>()) squares(Factor<T>{});
    if constexpr (sizeof(T) == 4 && !PAIRS) {
        if (c.query.type == Type::f16) squares(Half{});
        if (c.query.type == Type::bf16) squares(Brain{});
    }
    for (; d < factors_of(c.D); d++)
        for (int w = 0; w < W<T>; w++) k.q[d * k.L + first + w] = query_factor(c.query, row[w], d, c.D, factor);
}

// The interval of each lane, and what they come to together.
template <class T> void place_intervals(const Call &c, Block<T> &k) {
    const char *lo = c.lo ? c.at(c.lo, k.b, 0) : nullptr, *hi = c.hi ? c.at(c.hi, k.b, 0) : nullptr;
    for (int i = 0; i < k.L; i++) k.lo[i] = lo ? peek<int64_t>(row_of(c.lo, lo, k, i)) : 0;
    for (int i = 0; i < k.L; i++) k.hi[i] = hi ? peek<int64_t>(row_of(c.hi, hi, k, i)) : c.Nk;
    int64_t first = lo || hi ? c.Nk : 0, last = c.Nk - first, late = 0, early = c.Nk;
    k.early_last = c.Nk;
    for (int i = 0; i < k.L && (lo || hi); i++) {
        const int64_t from = k.lo[i], to = k.hi[i];
        if (from < to) first = least(first, from), last = most(last, to);
        late = most(late, from), early = least(early, to);
        if (i + 1 == W<T>) k.early_last = last;
    }
    k.first = first, k.last = last, k.late_lo = late, k.early_hi = early;
}

// The queries that the first n lanes name, each by its head and its index.
template <class T> void place_queries(const Call &c, Block<T> &k, int64_t n) {
    k.n = n;
    for (int64_t i = n; i < k.L; i++) k.head[i] = k.head[0], k.index[i] = k.index[0];
    place_intervals(c, k);
    for (int i = 0; i < k.L; i += W<T>) transpose_queries(c, k, Units<T>(c).query, i);
}

// --------------------------------------------------------- what is done to the scores of a tile

// Which keys a tile has: n from j0 on, or those that a list names.
struct Keys {
    int64_t j0, n;
    const int64_t *list = nullptr;
    int64_t operator[](int64_t j) const { return list ? list[j] : j0 + j; }
};

template <class T> void bend(const Call &c, T *s, int64_t n) {
    const T cap = (T)c.softcap;
    for (int64_t i = 0; i < n; i += W<T>) store(s + i, cap * tanh_(load<Vec<T>>(s + i) / cap));
}

// alibi's bias of one lane: -slope · distance, worked out in double.
template <class T> void alibi_of(const Call &c, const Block<T> &k, int i, Keys keys, T *to) {
    const double slope = c.slopes[k.head[i]];
    const int64_t position = peek<int64_t>(c.at(c.start, k.b, 0)) + k.index[i], ahead = position - keys.j0;
    const auto bias = [&](auto distance) {
        return saturated<T>(-slope * (double)(distance < 0 ? -distance : distance));
    };
    if (!keys.list && ahead < INT32_MAX && ahead > INT32_MIN + TILE)
        for (int32_t j = 0; j < (int32_t)keys.n; j++) to[j] = bias((int32_t)ahead - j);
    else
        for (int64_t j = 0; j < keys.n; j++) to[j] = bias(position - keys[j]);
}

// -inf to where the mask hides from one lane; elsewhere what is there, or 0 if nothing is yet.
template <class T> void mask_of(const Call &c, const char *row, Keys keys, bool first, T *to) {
    int64_t j = 0;
    const Vec<T> hidden = spread<Vec<T>>(-infinity<T>());
    if (!keys.list && dense(c.mask))
        for (; j + W<T> <= keys.n; j += W<T>)
            store(to + j, set_bytes(row + keys.j0 + j, T{}) ? (first ? Vec<T>{} : load<Vec<T>>(to + j)) : hidden);
    for (; j < keys.n; j++)
        to[j] = !row[keys[j] * c.mask.column] ? -infinity<T>() : first ? (T)0 : to[j];
}

// What is added to the scores of one lane: its bias, and -inf where the mask hides. Past the keys, up to
// whole vectors, all is hidden.
template <class T>
void addends_of(const Call &c, const Block<T> &k, int i, Keys keys, const char *bias, const char *mask, T *to) {
    if (bias && !keys.list)
        read_row<T>(c.bias, row_of(c.bias, bias, k, i) + keys.j0 * c.bias.column, keys.n, to);
    else if (bias)
        for (int64_t j = 0; j < keys.n; j++)
            read_row<T>(c.bias, row_of(c.bias, bias, k, i) + keys[j] * c.bias.column, 1, to + j);
    if (c.slopes) alibi_of(c, k, i, keys, to);
    if (mask) mask_of(c, row_of(c.mask, mask, k, i), keys, !bias && !c.slopes, to);
    for (int64_t j = keys.n; j % W<T>; j++) to[j] = -infinity<T>();
}

// Asks for the numbers of a lane that the next tile will read: rows lie far apart, and no prefetcher knows.
inline void ask_for_next(const Array &a, const char *row, Keys keys) {
    if (!dense(a)) return;
    const char *next = row + (keys.j0 + keys.n) * a.column;
    for (int64_t byte = 0; byte < TILE * a.column; byte += 64) __builtin_prefetch(next + byte);
}

template <class T> bool some_seen(const T *added, int64_t n) {
    auto seen = Vec<T>{} != Vec<T>{};
    for (int64_t j = 0; j < n; j += W<T>) seen |= load<Vec<T>>(added + j) != -infinity<T>();
    return some(seen);
}

// What is added to the scores of all lanes, lane by lane. Returns whether a pair is left.
template <class T> bool addends(const Call &c, const Block<T> &k, Keys keys) {
    const char *bias = c.bias ? c.at(c.bias, k.b, 0) : nullptr, *mask = c.mask ? c.at(c.mask, k.b, 0) : nullptr;
    bool any = false;
    for (int i = 0; i < k.n; i++) {
        T *to = k.added + i * TILE;
        addends_of(c, k, i, keys, bias, mask, to);
        if (bias && !keys.list) ask_for_next(c.bias, row_of(c.bias, bias, k, i), keys);
        if (mask && !keys.list) ask_for_next(c.mask, row_of(c.mask, mask, k, i), keys);
        any = any || some_seen(to, keys.n);
    }
    for (int i = k.n; i < k.L; i++) std::memcpy(k.added + i * TILE, k.added, TILE * sizeof(T));
    return any;
}

template <class T> Vec<T> plus(Vec<T> score, Vec<T> x) { return x == -infinity<T>() ? x : score + x; }

template <class T> void add(const Block<T> &k, int64_t n) {
    for (int64_t j = 0; j < n; j += W<T>)
        for (int i = 0; i < k.L; i += W<T>) {
            Vec<T> x[W<T>];
#pragma GCC unroll 16
            for (int w = 0; w < W<T>; w++) x[w] = load<Vec<T>>(k.added + (i + w) * TILE + j);
            transpose<T>(x);
#pragma GCC unroll 16
            for (int w = 0; w < W<T>; w++) {
                T *s = k.s + (j + w) * k.L + i;
                store(s, plus<T>(load<Vec<T>>(s), x[w]));
            }
        }
}

template <class T> void hide_by_interval(const Block<T> &k, Keys keys) {
    T lo[Block<T>::L], hi[Block<T>::L];  // relative to the tile, small whole numbers
    for (int i = 0; i < k.L; i++) lo[i] = (T)most<int64_t>(-1, least(k.lo[i] - keys.j0, keys.n));
    for (int i = 0; i < k.L; i++) hi[i] = (T)most<int64_t>(-1, least(k.hi[i] - keys.j0, keys.n));
    const Vec<T> hidden = spread<Vec<T>>(-infinity<T>());
    const int64_t all_from = most<int64_t>(0, k.late_lo - keys.j0), all_to = k.early_hi - keys.j0;
    for (int64_t j = 0; j < keys.n; j++) {
        if (j == all_from && all_from < all_to) j = least(all_to, keys.n);  // all see those between
        for (int v = 0; v < V && j < keys.n; v++) {
            T *p = k.s + (j * V + v) * W<T>;
            const Vec<T> at = spread<Vec<T>>((T)j);
            const Vec<T> from = load<Vec<T>>(lo + v * W<T>), to = load<Vec<T>>(hi + v * W<T>);
            store(p, (at >= from) & (at < to) ? load<Vec<T>>(p) : hidden);
        }
    }
}

template <class T> void hide_listed(const Block<T> &k, Keys keys) {
    for (int64_t j = 0; j < keys.n; j++)
        for (int i = 0; i < k.L; i++)
            if (keys[j] < k.lo[i] || keys[j] >= k.hi[i]) k.s[j * k.L + i] = -infinity<T>();
}

// How many of the keys, the first ones, the first vector may see. It is spared the rest, which is hidden from it.
template <class T> int64_t early_of(const Block<T> &k, Keys keys) {
    return keys.list ? keys.n : most<int64_t>(0, least(keys.n, k.early_last - keys.j0));
}

// Scores of the keys against the block, complete: -inf where a pair is hidden. False, and none, where
// the mask or the bias hides all of them.
template <class T> bool scores(const Call &c, const Block<T> &k, Rows<T> rows, Keys keys) {
    if (adds(c) && !addends(c, k, keys)) return false;
    const T factor = Units<T>(c).query;
    const int64_t early = early_of(k, keys), D = factors_of(c.D);
    in_blocks(early, [&]<int R>(int64_t j) {
        score_rows<T, 0, R>(rows.data + j * rows.stride, rows.stride, k.q, D, factor, k.s + j * k.L);
    });
    in_blocks(keys.n - early, [&]<int R>(int64_t i) {
        const int64_t j = early + i;
        score_rows<T, 1, R>(rows.data + j * rows.stride, rows.stride, k.q, D, factor, k.s + j * k.L);
    });
    if (c.softcap != 0) bend(c, k.s, keys.n * k.L);
    if (adds(c)) add(k, keys.n);
    if (keys.list)
        hide_listed(k, keys);
    else if (k.late_lo > keys.j0 || k.early_hi < keys.j0 + keys.n)
        hide_by_interval(k, keys);
    return true;
}

}  // namespace
}  // namespace REGARD_ISA
