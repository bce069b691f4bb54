// Few queries against many keys, at the speed of memory: decoding.
//
// The scores' lanes run along keys, or along a few queries of a few keys, the output's along columns, so that each key
// and value is read once, from end to end, while the next are asked for. Each sum has the order of the block's, so
// the bits are the same.
#pragma once

#include "few_scores.hpp"

namespace REGARD_ISA {
namespace {

constexpr int STRIP = 8192;                        // bytes of values that are added up in registers at a time
constexpr int SUMS = VECTOR_BYTES == 64 ? 16 : 8;  // vectors of sums, by the registers there are

// Calls f<Q>(i) for lanes i … i + Q - 1, which are all n.
template <class F> [[gnu::always_inline]] inline void by_lanes(int64_t n, const F &f) {
    int i = 0;
    for (; i + 2 < n; i += 4) f.template operator()<4>(i);  // of three, a fourth is worked out and left
    if (i + 2 == n) f.template operator()<2>(i), i += 2;
    if (i < n) f.template operator()<1>(i);
}

// n rows of values, R vectors of columns of each, for Q queries: weights at p and sums, each query's apart by TILE and
// `columns`. The weights are added up on the way where `totals` are given.
template <class T, class X, int Q, int R>
[[gnu::always_inline]] inline void carry_strip(const Factor<T> *p, const char *values, int64_t stride, int64_t n,
                                               int64_t rest, T *sums, int64_t columns, T *totals, Ahead &ahead,
                                               int64_t share) {
    using F = Vec<Factor<T>>;
    constexpr int ROWS = rows_of_factor<X>;
    Vec<T> acc[Q][R], total[Q];
#pragma GCC unroll 4
    for (int q = 0; q < Q; q++) {
        total[q] = spread<Vec<T>>(totals ? totals[q] : 0);
#pragma GCC unroll 8
        for (int r = 0; r < R; r++) acc[q][r] = load<Vec<T>>(sums + q * columns + r * W<T>);
    }
    for (int64_t t = 0; t < n; t += ROWS) {
        const X *row = (const X *)(values + t * stride);
        const X *next = t + 1 < n ? (const X *)(values + (t + 1) * stride) : nullptr;
        ahead.ask(ROWS * share);
        F weight[Q];
#pragma GCC unroll 4
        for (int q = 0; q < Q; q++) {
            weight[q] = spread<F>(p[q * TILE + t / ROWS]);
            if (totals) total[q] += (Vec<T>)weight[q];
        }
#pragma GCC unroll 8
        for (int r = 0; r < R; r++) {
            const F x = column_factors<T>(row + r * W<T>, next ? next + r * W<T> : nullptr, R == 1 ? rest : W<T>);
#pragma GCC unroll 4
            for (int q = 0; q < Q; q++) acc[q][r] = fma(x, weight[q], acc[q][r]);
        }
    }
#pragma GCC unroll 4
    for (int q = 0; q < Q; q++) {
        if (totals) totals[q] = total[q][0];
#pragma GCC unroll 8
        for (int r = 0; r < R; r++) store(sums + q * columns + r * W<T>, acc[q][r]);
    }
}

template <class T, class X, int Q>
void carry_lanes(const Call &c, const Block<T> &k, const Strip<T> &strip, int i, const Stream &values, T *totals) {
    constexpr int R = SUMS / Q < 8 ? SUMS / Q : 8, ROWS = rows_of_factor<X>;
    const int64_t Dv = c.Dv, columns = strip.columns, stride = values.stride, all = values.n;
    const int64_t some_columns = most<int64_t>(1, Dv), bytes = some_columns * sizeof(X);
    // One row at a time is read as the processor foresees it, where memory and not its widening is waited for.
    const bool by_rows = Q == 1 && sizeof(X) > 2;
    const int64_t together = Dv <= R * W<T> ? all : by_rows ? 1 : most<int64_t>(1, STRIP / bytes / ROWS) * ROWS;
    const int64_t share = Ahead::ROW / some_columns;
    Ahead ahead(values, bytes, AHEAD<X, Q>);
    for (int64_t j = 0; j < all; j += together) {
        const int64_t n = least(together, all - j);
        const char *rows = values.data + j * stride;
        T *const sums = strip.tile + i * columns;
        const Factor<T> *const p = k.p() + i * TILE + j / ROWS;
        const auto some = [&]<int N>(int64_t d, int64_t wide) {
            carry_strip<T, X, Q, N>(p, rows + d * sizeof(X), stride, n, wide, sums + d, columns, d ? nullptr : totals,
                                    ahead, wide * share);
        };
        int64_t d = 0;
        for (; d + R * W<T> <= Dv; d += R * W<T>) some.template operator()<R>(d, R * W<T>);
        for (; d < some_columns; d += W<T>) some.template operator()<1>(d, least<int64_t>(W<T>, Dv - d));
    }
}

// Sums of n weights of Q queries, where there are no registers for them beside the values'.
template <class T, int Q> void add_up(const T *p, int64_t n, T *sums) {
    T sum[Q] = {};
    for (int64_t j = 0; j < n; j++)
#pragma GCC unroll 4
        for (int q = 0; q < Q; q++) sum[q] += p[q * TILE + j];
    for (int q = 0; q < Q; q++) sums[q] = sum[q];
}

// What `scores` does to a block's, here lane by lane.
template <class T> void decorate_lanes(const Call &c, const Block<T> &k, Keys keys) {
    for (int i = 0; i < k.n; i++) {
        T *s = k.s + i * TILE;
        if (c.softcap != 0) bend(c, s, keys.n);
        for (int64_t j = 0; adds(c) && j < keys.n; j += W<T>)
            store(s + j, plus<T>(load<Vec<T>>(s + j), load<Vec<T>>(k.added + i * TILE + j)));
        for (int64_t j = 0; j < keys.n && keys.j0 + j < k.lo[i]; j++) s[j] = -infinity<T>();
        for (int64_t j = most<int64_t>(0, k.hi[i] - keys.j0); j < keys.n; j++) s[j] = -infinity<T>();
        for (int64_t j = keys.n; j % (EACH * W<T>); j++) s[j] = -infinity<T>();
    }
}

template <class T>
void exponentials_of_lanes(const Units<T> &units, Block<T> &k, int64_t n, Vec<T> (&carry)[V]) {
    T top[Block<T>::L] = {}, shift[Block<T>::L];
    for (int i = 0; i < k.n; i++) {
        Vec<T> most_of = spread<Vec<T>>((T)k.m[i / W<T>][i % W<T>]);
        for (int64_t j = 0; j < n; j += W<T>) {
            const Vec<T> x = load<Vec<T>>(k.s + i * TILE + j);
            most_of = x > most_of ? x : most_of;
        }
        top[i] = most_of[0];
        for (int w = 1; w < W<T>; w++) top[i] = most(top[i], (T)most_of[w]);
    }
    for (int v = 0; v < V; v++) {
        const Vec<T> m = load<Vec<T>>(top + v * W<T>);
        store(shift + v * W<T>, shift_of<T>(m));
        carry[v] = units.power(k.m[v] - shift_of<T>(m));
        k.m[v] = m;
    }
    for (int i = 0; i < k.n; i++)
        for (int64_t j = 0; j < factors_of(n) * EACH; j += W<T>) {
            T *p = k.s + i * TILE + j;
            store(p, units.power(load<Vec<T>>(p) - spread<Vec<T>>(shift[i])));
        }
}

// One tile, of keys stored as X and values as Y, for a block of few queries.
template <class T, class X, class Y>
void few_through_tile(const Call &c, const Units<T> &units, Block<T> &k, const Strip<T> &strip, Keys keys,
                      const Stream &key_rows, const Stream &value_rows) {
    if (adds(c) && !addends(c, k, keys)) return;
    by_lanes(k.n, [&]<int Q>(int i) { score_lanes<T, X, Q>(c, k, strip, i, key_rows); });
    decorate_lanes(c, k, keys);
    Vec<T> carry[V];
    exponentials_of_lanes(units, k, keys.n, carry);
    std::memset(strip.tile, 0, FEW<T> * strip.columns * sizeof(T));
    constexpr bool beside = SUMS > 8 && !PAIRS;
    T totals[Block<T>::L] = {};
    by_lanes(k.n, [&]<int Q>(int i) {
        if (!beside) add_up<T, Q>(k.s + i * TILE, keys.n, totals + i);
        for (int q = i; PAIRS && q < i + Q; q++) pair_along(k.s + q * TILE, keys.n);
        carry_lanes<T, Y, Q>(c, k, strip, i, value_rows, beside ? totals + i : nullptr);
    });
    for (int v = 0; v < V; v++) k.l[v] = fma(k.l[v], carry[v], load<Vec<T>>(totals + v * W<T>));
    for (int i = 0; i < k.n; i++) {
        const Vec<T> a = spread<Vec<T>>((T)carry[i / W<T>][i % W<T>]);
        for (int64_t d = i * strip.columns; d < (i + 1) * strip.columns; d += W<T>)
            store(strip.segment + d, fma(load<Vec<T>>(strip.segment + d), a, load<Vec<T>>(strip.tile + d)));
    }
}

// The sums of the keys [first, last) of one segment, from nothing.
template <class T>
void few_through_segment(const Call &c, const Units<T> &units, Block<T> &k, int64_t first, int64_t last,
                         char *scratch, Watch &watch) {
    const Strip<T> strip(c, scratch);
    Factor<T> *packed = (Factor<T> *)(scratch + (Strip<T>::bytes(c) + 63) / 64 * 64);
    std::memset(strip.segment, 0, k.n * strip.columns * sizeof(T));
    by_lanes(k.n, [&]<int Q>(int i) {
        for (int64_t d = 0; d < factors_of(c.D); d++)
            for (int q = 0; q < Q; q++) strip.q[i * factors_of(c.D) + d * Q + q] = k.q[d * k.L + i + q];
    });
    const char *all_keys = c.at(c.key, k.b, k.kv), *all_values = c.at(c.value, k.b, k.kv);
    const bool whole = dense(c.key) && dense(c.value) && c.D % EACH == 0;
    for (int64_t j0 = first / EACH * EACH, end; j0 < last && !watch.stopped(); j0 = end) {
        end = least(least(c.Nk, factors_of(last) * EACH), (j0 / TILE + 1) * TILE);
        const Keys keys{j0, end - j0};
        const auto tile = [&]<class X, class Y>(X, Y) {
            const char *x = all_keys + j0 * c.key.row, *y = all_values + j0 * c.value.row;
            const Stream to_score{x, c.key.row, keys.n, y, c.value.row};
            const Stream to_carry{y, c.value.row, keys.n, x + keys.n * c.key.row, c.key.row};
            few_through_tile<T, X, Y>(c, units, k, strip, keys, to_score, to_carry);
        };
        if (whole) {
            if constexpr (PAIRS)
                tile(Factor<T>{}, Brain{});
            else if constexpr (sizeof(T) == 8)
                tile(T{}, T{});
            else if (c.key.type == own<T>())
                tile(T{}, T{});
            else
                c.key.type == Type::f16 ? tile(Half{}, Half{}) : tile(Brain{}, Brain{});
        } else {
            const Rows<T> x = key_rows<T>(c.key, all_keys, nullptr, j0, keys.n, c.D, packed);
            const Rows<T> y = value_rows<T>(c.value, all_values, j0, keys.n, c.Dv, packed + TILE * c.D);
            const auto stream = [&](Rows<T> r, int64_t n) {
                const int64_t stride = r.stride * (int64_t)sizeof(T);
                return Stream{(const char *)r.data, stride, n, (const char *)r.data, stride};
            };
            few_through_tile<T, Factor<T>, Factor<T>>(c, units, k, strip, keys, stream(x, keys.n),
                                                      stream(y, factors_of(keys.n)));
        }
    }
    for (int i = 0; i < k.n; i++)
        for (int64_t d = 0; d < c.Dv; d++) k.o[d * k.L + i] = strip.segment[i * strip.columns + d];
}

}  // namespace
}  // namespace REGARD_ISA
