// Few queries against many keys, at the speed of memory: decoding.
//
// Lanes run along keys for the scores (parts of keys × depth are transposed in registers) and along
// columns for the output, so that each key and value is read once, from end to end, while the next are
// asked for. Each sum has the order of the block's, so the bits are the same.
#pragma once

#include "softmax.hpp"

namespace REGARD_ISA {
namespace {

constexpr int AHEAD = 16384;  // bytes that are asked for, into the second cache, before they are read
constexpr int STRIP = 8;     // values that are added up in registers at a time

template <class T> constexpr int FEW = Block<T>::L < 8 ? Block<T>::L : 8;  // queries, at most
template <class T> bool are_few(const Call &c) { return c.rows() <= FEW<T>; }

// Rows of one tile as they lie in memory, and those that are read after them.
struct Stream {
    const char *data;
    int64_t stride, n;
    const char *then;
    int64_t then_stride;

    const char *operator[](int64_t j) const {
        return j < n ? data + j * stride : then + (j - n) * then_stride;
    }
};

template <class T> struct Strip {  // what the few keep beside their block, lane by lane
    int64_t columns;               // Dv in whole vectors
    T *tile, *segment;             // FEW × columns each

    Strip(const Call &c, char *room) : columns((c.Dv + W<T> - 1) / W<T> * W<T>) {
        tile = (T *)room, segment = tile + FEW<T> * columns;
    }
    static int64_t bytes(const Call &c) { return 2 * FEW<T> * (c.Dv + W<T>) * (int64_t)sizeof(T); }
};

// Scores of Q queries from lane i on, B vectors of keys at a time.
template <class T, class X, int Q, int B>
void score_lanes(const Call &c, const Block<T> &k, int i, const Stream &keys) {
    constexpr int P = 16 / sizeof(T);  // depths that are transposed together
    const int64_t ahead = AHEAD / (c.D * (int64_t)sizeof(X)) / (B * W<T>) * B * W<T> + B * W<T>;
    for (int64_t j = 0; j < keys.n; j += B * W<T>) {
        const X *row[B * W<T>], *soon[B * W<T>];
        for (int w = 0; w < B * W<T>; w++) {
            row[w] = (const X *)(keys.data + least<int64_t>(j + w, keys.n - 1) * keys.stride);
            soon[w] = (const X *)keys[j + ahead + w];
        }
        Vec<T> acc[B][Q] = {};
        int64_t d = 0;
        for (; d + P <= c.D; d += P) {
            if (d * (int64_t)sizeof(X) % 64 == 0)
                for (int w = 0; w < B * W<T>; w++) __builtin_prefetch(soon[w] + d, 0, 2);
#pragma GCC unroll 4
            for (int b = 0; b < B; b++) {
                Vec<T> x[P];
#pragma GCC unroll 4
                for (int p = 0; p < P; p++) x[p] = wide_parts<T>(row + b * W<T> + p, P, d);
                transpose_parts<T>(x);
#pragma GCC unroll 4
                for (int p = 0; p < P; p++)
#pragma GCC unroll 4
                    for (int q = 0; q < Q; q++)
                        acc[b][q] = fma(x[p], spread<Vec<T>>(k.q[(d + p) * k.L + i + q]), acc[b][q]);
            }
        }
        for (; d < c.D; d++)
            for (int b = 0; b < B; b++) {
                Vec<T> x;
                for (int w = 0; w < W<T>; w++) x[w] = widen(row[b * W<T> + w][d]);
                for (int q = 0; q < Q; q++)
                    acc[b][q] = fma(x, spread<Vec<T>>(k.q[d * k.L + i + q]), acc[b][q]);
            }
        for (int b = 0; b < B; b++)
            for (int q = 0; q < Q; q++) store(k.s + (i + q) * TILE + j + b * W<T>, acc[b][q]);
    }
}

// The sums of a strip of values for Q queries from lane i on, R vectors of columns from d on.
template <class T, class X, int Q, int R>
[[gnu::always_inline]] inline void carry_strip(const Block<T> &k, const Strip<T> &strip, int i, const X *const *row,
                                               int64_t j, int64_t n, int64_t d, int64_t rest) {
    Vec<T> acc[Q][R];
    for (int q = 0; q < Q; q++)
        for (int r = 0; r < R; r++) acc[q][r] = load<Vec<T>>(strip.tile + (i + q) * strip.columns + d + r * W<T>);
    for (int64_t t = 0; t < n; t++) {
        Vec<T> x[R];
        for (int r = 0; r < R; r++) x[r] = rest < W<T> ? wide<T>(row[t] + d, rest) : wide(row[t] + d + r * W<T>);
#pragma GCC unroll 4
        for (int q = 0; q < Q; q++) {
            const Vec<T> p = spread<Vec<T>>(k.s[(i + q) * TILE + j + t]);
#pragma GCC unroll 8
            for (int r = 0; r < R; r++) acc[q][r] = fma(x[r], p, acc[q][r]);
        }
    }
    for (int q = 0; q < Q; q++)
        for (int r = 0; r < R; r++) store(strip.tile + (i + q) * strip.columns + d + r * W<T>, acc[q][r]);
}

template <class T, class X, int Q>
void carry_lanes(const Call &c, const Block<T> &k, const Strip<T> &strip, int i, const Stream &values) {
    constexpr int R = 8 / Q;
    const int64_t ahead = AHEAD / (c.Dv * (int64_t)sizeof(X) + 1) / STRIP * STRIP + STRIP;
    for (int64_t j = 0; j < values.n; j += STRIP) {
        const int64_t n = least<int64_t>(STRIP, values.n - j);
        const X *row[STRIP];
        for (int64_t t = 0; t < n; t++) row[t] = (const X *)values[j + t];
        for (int64_t t = 0; t < STRIP; t++)
            for (int64_t byte = 0; byte < c.Dv * (int64_t)sizeof(X); byte += 64)
                __builtin_prefetch(values[j + ahead + t] + byte, 0, 2);
        int64_t d = 0;
        for (; d + R * W<T> <= c.Dv; d += R * W<T>) carry_strip<T, X, Q, R>(k, strip, i, row, j, n, d, W<T>);
        for (; d < c.Dv; d += W<T>) carry_strip<T, X, Q, 1>(k, strip, i, row, j, n, d, c.Dv - d);
    }
}

// Calls f<Q>(i) for lanes i … i + Q - 1 of all n.
template <class F> [[gnu::always_inline]] inline void by_lanes(int64_t n, const F &f) {
    int i = 0;
    for (; i + 4 <= n; i += 4) f.template operator()<4>(i);
    if (i + 2 <= n) f.template operator()<2>(i), i += 2;
    if (i < n) f.template operator()<1>(i);
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
        for (int64_t j = keys.n; j % W<T>; j++) s[j] = -infinity<T>();
    }
}

template <class T>
void exponentials_of_lanes(const Units<T> &units, Block<T> &k, int64_t n, Vec<T> (&carry)[V]) {
    T top[Block<T>::L] = {}, shift[Block<T>::L], sum[Block<T>::L] = {};
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
        for (int64_t j = 0; j < n; j += W<T>) {
            T *p = k.s + i * TILE + j;
            store(p, units.power(load<Vec<T>>(p) - spread<Vec<T>>(shift[i])));
        }
    for (int64_t j = 0; j < n; j++)
        for (int i = 0; i < k.n; i++) sum[i] += k.s[i * TILE + j];
    for (int v = 0; v < V; v++) k.l[v] = fma(k.l[v], carry[v], load<Vec<T>>(sum + v * W<T>));
}

// One tile, of keys and values stored as X, for a block of few queries.
template <class T, class X>
void few_through_tile(const Call &c, const Units<T> &units, Block<T> &k, const Strip<T> &strip, Keys keys,
                      const Stream &key_rows, const Stream &value_rows) {
    if (adds(c) && !addends(c, k, keys)) return;
    by_lanes(k.n, [&]<int Q>(int i) { score_lanes<T, X, Q, 4 / Q>(c, k, i, key_rows); });
    decorate_lanes(c, k, keys);
    Vec<T> carry[V];
    exponentials_of_lanes(units, k, keys.n, carry);
    std::memset(strip.tile, 0, k.n * strip.columns * sizeof(T));
    by_lanes(k.n, [&]<int Q>(int i) { carry_lanes<T, X, Q>(c, k, strip, i, value_rows); });
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
    T *packed = (T *)(scratch + (Strip<T>::bytes(c) + 63) / 64 * 64);
    std::memset(strip.segment, 0, k.n * strip.columns * sizeof(T));
    const char *all_keys = c.at(c.key, k.b, k.kv), *all_values = c.at(c.value, k.b, k.kv);
    const bool in_place = dense(c.key) && dense(c.value);
    for (int64_t j0 = first, end; j0 < last && !watch.stopped(); j0 = end) {
        end = least(last, (j0 / TILE + 1) * TILE);
        const Keys keys{j0, end - j0};
        const auto tile = [&]<class X>(X) {
            const char *x = all_keys + j0 * c.key.row, *y = all_values + j0 * c.value.row;
            const Stream key_rows{x, c.key.row, keys.n, y, c.value.row};
            const Stream value_rows{y, c.value.row, keys.n, x + keys.n * c.key.row, c.key.row};
            few_through_tile<T, X>(c, units, k, strip, keys, key_rows, value_rows);
        };
        if (in_place && c.key.type == own<T>()) {
            tile(T{});
        } else if (sizeof(T) == 4 && in_place) {
            if constexpr (sizeof(T) == 4) c.key.type == Type::f16 ? tile(Half{}) : tile(Brain{});
        } else {
            const Rows<T> x = rows_of<T>(c.key, all_keys, nullptr, j0, keys.n, c.D, packed);
            const Rows<T> y = rows_of<T>(c.value, all_values, nullptr, j0, keys.n, c.Dv, packed + TILE * c.D);
            const auto stream = [&](Rows<T> r) {
                const int64_t stride = r.stride * (int64_t)sizeof(T);
                return Stream{(const char *)r.data, stride, keys.n, (const char *)r.data, stride};
            };
            few_through_tile<T, T>(c, units, k, strip, keys, stream(x), stream(y));
        }
    }
    for (int i = 0; i < k.n; i++)
        for (int64_t d = 0; d < c.Dv; d++) k.o[d * k.L + i] = strip.segment[i * strip.columns + d];
}

}  // namespace
}  // namespace REGARD_ISA
