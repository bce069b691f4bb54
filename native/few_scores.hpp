// Scores of few queries. Lanes run along keys, or along a few queries of a few keys, so that each key is read once,
// from end to end, while the next are asked for.
#pragma once

#include "softmax.hpp"

namespace REGARD_ISA {
namespace {

// Bytes that are asked for before they are read, and into which cache: the first-level one (3) where it has room for
// them beside what is read in turns, else the second-level one (2).
template <class X, int Q> constexpr int AHEAD = VECTOR_BYTES < 64 ? 16384 : Q == 1 && sizeof(X) > 2 ? 8192 : 12288;
constexpr int CACHE = VECTOR_BYTES == 64 ? 3 : 2;

// Whether a vector of keys takes halves of two, not parts of several.
constexpr bool HALVES = VECTOR_BYTES == 64;

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

// Asks for rows to come, line by line in the order of memory and as fast as rows are read: where several rows are read
// in turns the processor does not foresee the next, and it waits where many are asked for at once.
class Ahead {
    const Stream &rows_;
    int64_t bytes_, row_, due_;

  public:
    static constexpr int64_t ROW = 1 << 16;  // what a row counts
    Ahead(const Stream &rows, int64_t bytes, int64_t distance)
        : rows_(rows), bytes_(bytes), row_(distance / bytes), due_(row_ * ROW) {}
    [[gnu::always_inline]] void ask(int64_t share) {
        for (due_ += share; row_ * ROW < due_; row_++) {
            const char *line = rows_[row_], *const end = line + bytes_;
            for (; line < end; line += 64) {
                __builtin_prefetch(line, 0, CACHE);
                asm("" : "+r"(line));  // one by one: not all at once, each from an address of its own
            }
        }
    }
};

template <class T> struct Strip {  // what the few keep beside their block, lane by lane
    int64_t columns;               // Dv in whole vectors, at least one
    T *tile, *segment;             // FEW × columns each
    Factor<T> *q;                  // FEW × D: those of lanes that go together, depth by depth
    char *rest;                    // of keys, where they are fewer than a group

    Strip(const Call &c, char *room) : columns(most<int64_t>(1, (c.Dv + W<T> - 1) / W<T>) * W<T>) {
        tile = (T *)room, segment = tile + FEW<T> * columns, q = (Factor<T> *)(segment + FEW<T> * columns);
        rest = (char *)(q + FEW<T> * c.D);
    }
    static int64_t bytes(const Call &c) {
        return (2 * FEW<T> * (c.Dv + W<T>) + (FEW<T> + 2 * W<T>) * c.D) * (int64_t)sizeof(T);
    }
};

// Numbers of W keys, turned into C vectors of all keys' units, which are numbers of E depths. Where vectors take halves
// of keys, numbers of 16 bits are turned as pairs and widened afterwards; where they take parts, as they are read.
template <class T, class X> struct Turned {
    static constexpr int P = 16 / sizeof(T), C = HALVES ? 2 * P : P, E = HALVES ? sizeof(T) / sizeof(X) : 1;

    [[gnu::always_inline]] static void turn(const char *keys, int64_t stride, Vec<T> (&a)[C]) {
        asm("" : "+r"(keys));
        if constexpr (HALVES) {
#pragma GCC unroll 8
            for (int i = 0; i < C; i++) a[i] = of_halves<T>(keys + i * stride, keys + (i + C) * stride);
            transpose_halves<T>(a);
        } else {
            const char *part[W<T> / P];
            for (int n = 0; n < W<T> / P; n++) part[n] = keys + n * P * stride;
#pragma GCC unroll 4
            for (int i = 0; i < C; i++) a[i] = wide_parts<T, X>(part, i * stride);
            transpose_parts<T>(a);
        }
    }
    [[gnu::always_inline]] static Vec<Factor<T>> depth(Vec<T> unit, int e) {
        if constexpr (E == 1)
            return (Vec<Factor<T>>)unit;
        else
            return of_pairs(unit, e, X{});
    }
};

// Scores of Q queries, of which depth d of query i is q[d · Q + i], with N keys to rows of `s`. Lanes are keys.
template <class T, class X, int Q, int GROUPS>
[[gnu::noinline]] void score_group(const Factor<T> *q, int64_t D, const char *keys, int64_t stride, T factor, T *s,
                                   Ahead &ahead, int64_t share) {
    using Some = Turned<T, X>;
    using F = Vec<Factor<T>>;
    constexpr int C = Some::C, E = Some::E;
    Vec<T> acc[GROUPS][Q];
#pragma GCC unroll 2
    for (int g = 0; g < GROUPS; g++)
#pragma GCC unroll 4
        for (int i = 0; i < Q; i++) acc[g][i] = Vec<T>{};
    int64_t d = 0;
    for (; d + C * E <= D; d += C * E, q += C * E * Q) {
        ahead.ask(share);
        Vec<T> x[GROUPS][C];
#pragma GCC unroll 2
        for (int g = 0; g < GROUPS; g++) Some::turn(keys + g * W<T> * stride + d * sizeof(X), stride, x[g]);
#pragma GCC unroll 16
        for (int t = 0; t < C * E; t++) {
            F k[GROUPS];
#pragma GCC unroll 2
            for (int g = 0; g < GROUPS; g++) k[g] = Some::depth(x[g][t / E], t % E);
#pragma GCC unroll 4
            for (int i = 0; i < Q; i++)
#pragma GCC unroll 2
                for (int g = 0; g < GROUPS; g++) acc[g][i] = fma(k[g], spread<F>(q[t * Q + i]), acc[g][i]);
        }
    }
    for (; d < D; d++, q += Q)
        for (int g = 0; g < GROUPS; g++) {
            F k;
            for (int w = 0; w < W<T>; w++) k[w] = widen(peek<X>(keys + (g * W<T> + w) * stride + d * sizeof(X)));
            for (int i = 0; i < Q; i++) acc[g][i] = fma(k, spread<F>(q[i]), acc[g][i]);
        }
#pragma GCC unroll 2
    for (int g = 0; g < GROUPS; g++)
#pragma GCC unroll 4
        for (int i = 0; i < Q; i++) store(s + i * TILE + g * W<T>, rescaled(acc[g][i], factor));
}

// The same for as many queries as a part of a register has lanes: lanes are those queries in each part, and the parts
// keys. Where registers are few, this takes fewer.
template <class T, int GROUPS>
void score_parts(const T *q, int64_t D, const char *keys, int64_t stride, T *s, Ahead &ahead, int64_t share) {
    constexpr int P = 16 / sizeof(T), PARTS = W<T> / P;
    constexpr auto all = std::make_index_sequence<W<T>>();
    const char *part[GROUPS][PARTS];
    for (int g = 0; g < GROUPS; g++)
        for (int n = 0; n < PARTS; n++) part[g][n] = keys + (g * W<T> + n * P) * stride;
    int64_t rows[4] = {0, stride, 2 * stride, 3 * stride};
    asm("" : "+r"(rows[3]));
    Vec<T> acc[GROUPS][P] = {};
    int64_t d = 0;
    for (; d + P <= D; d += P, q += P * P) {
        ahead.ask(share);
        [&]<size_t... at>(std::index_sequence<at...>) {
            const Vec<T> queries[P] = {repeat(q + at * P)...};
#pragma GCC unroll 2
            for (int g = 0; g < GROUPS; g++)
#pragma GCC unroll 4
                for (int p = 0; p < P; p++) {
                    const Vec<T> x = wide_parts<T, T>(part[g], rows[p]);
                    ((acc[g][p] = fma(spread_part<at>(x, all), queries[at], acc[g][p])), ...);
                }
        }(std::make_index_sequence<P>());
        for (int g = 0; g < GROUPS; g++)
            for (int n = 0; n < PARTS; n++) part[g][n] += 16;
    }
    for (; d < D; d++, q += P)
        for (int g = 0; g < GROUPS; g++) {
            for (int p = 0; p < P; p++) {
                Vec<T> x;
                for (int w = 0; w < W<T>; w++) x[w] = peek<T>(part[g][w / P] + p * stride);
                acc[g][p] = fma(x, repeat(q), acc[g][p]);
            }
            for (int n = 0; n < PARTS; n++) part[g][n] += sizeof(T);
        }
    for (int g = 0; g < GROUPS; g++) {
        transpose_parts<T>(acc[g]);
        for (int p = 0; p < P; p++) store(s + p * TILE + g * W<T>, acc[g][p]);
    }
}

// Scores of Q queries from lane i on, by groups of keys; the last overlaps the one before.
template <class T, class X, int Q>
void score_lanes(const Call &c, const Block<T> &k, const Strip<T> &strip, int i, const Stream &keys) {
    constexpr bool parts = !HALVES && Q * sizeof(T) == 16 && sizeof(X) == sizeof(T);
    constexpr int DEPTHS = parts ? Q : Turned<T, X>::C * Turned<T, X>::E;
    constexpr int GROUPS = HALVES && sizeof(X) > 2 ? 1 : 2, N = GROUPS * W<T>;
    const int64_t D = factors_of(c.D), bytes = D * (int64_t)sizeof(X);
    const int64_t share = N * Ahead::ROW / most<int64_t>(1, D / DEPTHS);
    Ahead ahead(keys, bytes, AHEAD<X, Q>);
    const char *data = keys.data;
    int64_t stride = keys.stride, n = keys.n;
    if (n < N) {  // nothing is read beyond the last key
        for (int64_t j = 0; j < N; j++) std::memcpy(strip.rest + j * bytes, keys[least(j, n - 1)], bytes);
        data = strip.rest, stride = bytes, n = N;
    }
    for (int64_t j = 0; j < n; j += N) {
        const int64_t from = least(j, n - N);
        const Factor<T> *q = strip.q + i * D;
        T *s = k.s + i * TILE + from;
        if constexpr (parts)
            score_parts<T, GROUPS>(q, D, data + from * stride, stride, s, ahead, share);
        else
            score_group<T, X, Q, GROUPS>(q, D, data + from * stride, stride, Units<T>(c).query, s, ahead, share);
    }
}

}  // namespace
}  // namespace REGARD_ISA
