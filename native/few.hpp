// Few queries against many keys, at the speed of memory: decoding.
//
// Lanes run along keys for the scores (parts of keys × depth are transposed in registers), or along a few
// queries of a few keys, and along columns for the output, so that each key and value is read once, from end
// to end, while the next are asked for. Each sum has the order of the block's, so the bits are the same.
#pragma once

#include "softmax.hpp"

namespace REGARD_ISA {
namespace {

constexpr int AHEAD = 16384;  // bytes that are asked for before they are read
constexpr int STRIP = 16;     // values that are added up in registers at a time

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

// Asks for rows to come, line by line in the order of memory and a few at a time: where several rows are read
// in turns the processor does not foresee the next, and it waits where many are asked for at once.
class Ahead {
    const Stream &rows_;
    int64_t row_, bytes_;
    const char *line_, *end_;

    void begin(int64_t row) { row_ = row, line_ = rows_[row], end_ = line_ + bytes_; }

  public:
    Ahead(const Stream &rows, int64_t bytes) : rows_(rows), bytes_(bytes) { begin(AHEAD / bytes); }
    [[gnu::always_inline]] void ask(int64_t lines) {
        for (; lines > 0; lines--) {
            __builtin_prefetch(line_, 0, 2);
            line_ += 64;
            if (line_ >= end_) begin(row_ + 1);
        }
    }
};

template <class T> struct Strip {  // what the few keep beside their block, lane by lane
    int64_t columns;               // Dv in whole vectors
    T *tile, *segment;             // FEW × columns each
    Factor<T> *q;                  // FEW × D: those of lanes that go together, depth by depth
    char *rest;                    // of keys, where they are fewer than a group

    Strip(const Call &c, char *room) : columns((c.Dv + W<T> - 1) / W<T> * W<T>) {
        tile = (T *)room, segment = tile + FEW<T> * columns, q = (Factor<T> *)(segment + FEW<T> * columns);
        rest = (char *)(q + FEW<T> * c.D);
    }
    static int64_t bytes(const Call &c) {
        return (2 * FEW<T> * (c.Dv + W<T>) + (FEW<T> + 2 * W<T>) * c.D) * (int64_t)sizeof(T);
    }
};

// Scores of Q queries, of which depth d of query i is q[d · Q + i], with N keys to rows of `s`. Lanes are keys;
// of as many queries as a part of a register has lanes, they are those queries in each part, and the parts keys.
template <class T, class X, int Q, int GROUPS>
void score_group(const Factor<T> *q, int64_t D, const char *keys, int64_t stride, T factor, T *s, Ahead &ahead,
                 int64_t each) {
    using F = Factor<T>;
    constexpr int P = 16 / sizeof(T), PARTS = W<T> / P;
    constexpr int A = Q == P ? P : Q;  // sums of a group
    constexpr auto all = std::make_index_sequence<W<T>>();
    const char *part[GROUPS][PARTS];
    for (int g = 0; g < GROUPS; g++)
        for (int n = 0; n < PARTS; n++) part[g][n] = keys + (g * W<T> + n * P) * stride;
    int64_t rows[4] = {0, stride, 2 * stride, 3 * stride};
    asm("" : "+r"(rows[3]));
    Vec<T> acc[GROUPS][A] = {};
    int64_t d = 0;
    for (; d + P <= D; d += P, q += P * Q) {
        ahead.ask(each);
        if constexpr (Q == P) {
            [&]<size_t... at>(std::index_sequence<at...>) {
                const Vec<F> queries[P] = {repeat(q + at * Q)...};
#pragma GCC unroll 2
                for (int g = 0; g < GROUPS; g++)
#pragma GCC unroll 4
                    for (int p = 0; p < P; p++) {
                        const Vec<F> x = wide_parts<F, X>(part[g], rows[p]);
                        ((acc[g][p] = fma(spread_part<at>(x, all), queries[at], acc[g][p])), ...);
                    }
            }(std::make_index_sequence<P>());
        } else {
#pragma GCC unroll 2
            for (int g = 0; g < GROUPS; g++) {
                Vec<F> x[P];
#pragma GCC unroll 4
                for (int p = 0; p < P; p++) x[p] = wide_parts<F, X>(part[g], rows[p]);
                transpose_parts<F>(x);
#pragma GCC unroll 4
                for (int p = 0; p < P; p++)
#pragma GCC unroll 4
                    for (int i = 0; i < Q; i++) acc[g][i] = fma(x[p], spread<Vec<F>>(q[p * Q + i]), acc[g][i]);
            }
        }
        for (int g = 0; g < GROUPS; g++)
            for (int n = 0; n < PARTS; n++) part[g][n] += P * sizeof(X);
    }
    for (; d < D; d++, q += Q)
        for (int g = 0; g < GROUPS; g++) {
            for (int a = 0; a < A; a++) {
                Vec<F> x;
                for (int w = 0; w < W<T>; w++)
                    x[w] = widen(peek<X>(part[g][w / P] + (Q == P ? a : w % P) * stride));
                acc[g][a] = fma(x, Q == P ? repeat(q) : spread<Vec<F>>(q[a]), acc[g][a]);
            }
            for (int n = 0; n < PARTS; n++) part[g][n] += sizeof(X);
        }
    for (int g = 0; g < GROUPS; g++) {
        if (Q == P) transpose_parts<T>(acc[g]);
        for (int i = 0; i < Q; i++) store(s + i * TILE + g * W<T>, rescaled(acc[g][i], factor));
    }
}

// Scores of Q queries from lane i on, by groups of keys; the last overlaps the one before.
template <class T, class X, int Q>
void score_lanes(const Call &c, const Block<T> &k, const Strip<T> &strip, int i, const Stream &keys) {
    constexpr int P = 16 / sizeof(T), GROUPS = 2, N = GROUPS * W<T>;
    const int64_t D = factors_of(c.D), bytes = D * (int64_t)sizeof(X), steps = most<int64_t>(1, D / P);
    const T factor = Units<T>(c).query;
    const int64_t each = ((bytes + 63) / 64 * N + steps - 1) / steps;
    Ahead ahead(keys, bytes);
    const char *data = keys.data;
    int64_t stride = keys.stride, n = keys.n;
    if (n < N) {  // nothing is read beyond the last key
        for (int64_t j = 0; j < N; j++) std::memcpy(strip.rest + j * bytes, keys[least(j, n - 1)], bytes);
        data = strip.rest, stride = bytes, n = N;
    }
    for (int64_t j = 0; j < n; j += N) {
        const int64_t from = least(j, n - N);
        score_group<T, X, Q, GROUPS>(strip.q + i * D, D, data + from * stride, stride, factor,
                                     k.s + i * TILE + from, ahead, each);
    }
}

// n rows of values, R vectors of columns of each, for Q queries: weights at p and sums, each query's apart by TILE and
// `columns`.
template <class T, class X, int Q, int R>
[[gnu::always_inline]] inline void carry_strip(const Factor<T> *p, const char *values, int64_t stride, int64_t n,
                                               int64_t rest, T *sums, int64_t columns, Ahead &ahead) {
    using F = Vec<Factor<T>>;
    constexpr int ROWS = rows_of_factor<X>, BYTES = ROWS * R * W<T> * sizeof(X), EVERY = BYTES < 64 ? 64 / BYTES : 1;
    Vec<T> acc[Q][R];
    for (int q = 0; q < Q; q++)
        for (int r = 0; r < R; r++) acc[q][r] = load<Vec<T>>(sums + q * columns + r * W<T>);
    for (int64_t t = 0; t < n; t += ROWS) {
        const X *row = (const X *)(values + t * stride);
        const X *next = t + 1 < n ? (const X *)(values + (t + 1) * stride) : nullptr;
        if (t % EVERY == 0) ahead.ask(most(1, BYTES / 64));
        F weight[Q];
#pragma GCC unroll 4
        for (int q = 0; q < Q; q++) weight[q] = spread<F>(p[q * TILE + t / ROWS]);
#pragma GCC unroll 8
        for (int r = 0; r < R; r++) {
            const F x = column_factors<T>(row + r * W<T>, next ? next + r * W<T> : nullptr, rest);
#pragma GCC unroll 4
            for (int q = 0; q < Q; q++) acc[q][r] = fma(x, weight[q], acc[q][r]);
        }
    }
    for (int q = 0; q < Q; q++)
        for (int r = 0; r < R; r++) store(sums + q * columns + r * W<T>, acc[q][r]);
}

template <class T, class X, int Q>
void carry_lanes(const Call &c, const Block<T> &k, const Strip<T> &strip, int i, const Stream &values) {
    constexpr int R = 8 / Q;
    const int64_t Dv = c.Dv, columns = strip.columns, stride = values.stride, all = values.n;
    // One row at a time is read as the processor foresees it, where memory and not its widening is waited for.
    const int64_t together = Dv <= R * W<T> ? all : Q == 1 && sizeof(X) > 2 ? 1 : STRIP;
    T *const sums = strip.tile + i * columns;
    const Factor<T> *p = k.p() + i * TILE;
    Ahead ahead(values, most<int64_t>(1, Dv * (int64_t)sizeof(X)));
    const char *row = values.data;
    for (int64_t j = 0; j < all; j += together, row += together * stride, p += together / rows_of_factor<X>) {
        const int64_t n = least(together, all - j);
        int64_t d = 0;
        for (; d + R * W<T> <= Dv; d += R * W<T>)
            carry_strip<T, X, Q, R>(p, row + d * sizeof(X), stride, n, W<T>, sums + d, columns, ahead);
        for (; d < Dv; d += W<T>)
            carry_strip<T, X, Q, 1>(p, row + d * sizeof(X), stride, n, Dv - d, sums + d, columns, ahead);
    }
}

// Calls f<Q>(i) for lanes i … i + Q - 1, which are all n.
template <class F> [[gnu::always_inline]] inline void by_lanes(int64_t n, const F &f) {
    int i = 0;
    for (; i + 2 < n; i += 4) f.template operator()<4>(i);  // of three, a fourth is worked out and left
    if (i + 2 == n) f.template operator()<2>(i), i += 2;
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
        for (int64_t j = keys.n; j % (EACH * W<T>); j++) s[j] = -infinity<T>();
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
        for (int64_t j = 0; j < factors_of(n) * EACH; j += W<T>) {
            T *p = k.s + i * TILE + j;
            store(p, units.power(load<Vec<T>>(p) - spread<Vec<T>>(shift[i])));
        }
    for (int64_t j = 0; j < n; j++)
        for (int i = 0; i < k.n; i++) sum[i] += k.s[i * TILE + j];
    for (int i = 0; PAIRS && i < k.n; i++) pair_along(k.s + i * TILE, n);
    for (int v = 0; v < V; v++) k.l[v] = fma(k.l[v], carry[v], load<Vec<T>>(sum + v * W<T>));
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
    by_lanes(k.n, [&]<int Q>(int i) { carry_lanes<T, Y, Q>(c, k, strip, i, value_rows); });
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
