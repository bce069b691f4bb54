// The online softmax: a tile's weights and sums, a segment's, all segments', and the finished row.
#pragma once

#include "scores.hpp"

namespace REGARD_ISA {
namespace {

template <class T> Vec<T> shift_of(Vec<T> m) { return m == -infinity<T>() ? Vec<T>{} : m; }

// Scores of each lane become exp(score - shift), are added to `sum` in order, and kept as factors. With care, that
// of a hidden pair is -0, which no exponential is.
template <class T, bool natural, int N>
[[gnu::always_inline]] inline void exponentials_of(const T *s, T exponent, const Vec<T> (&shift)[V], bool care,
                                                   Vec<T> (&sum)[V], Factor<T> *to) {
    Vec<T> p[N];
#pragma GCC unroll 4
    for (int i = 0; i < N; i++) p[i] = load<Vec<T>>(s + i * W<T>) - shift[i % V];
#pragma GCC unroll 4
    for (int i = 0; natural && i < N; i++) p[i] *= exponent;
    exp2<T>(p);
#pragma GCC unroll 4
    for (int i = 0; i < N; i++) {
        sum[i % V] += p[i];
        if (care) p[i] = load<Vec<T>>(s + i * W<T>) == -infinity<T>() ? -Vec<T>{} : p[i];
    }
    keep_weights<V>(to, p);
}

template <class T, bool natural>
[[gnu::always_inline]] inline void exponentials_down(const Block<T> &k, int64_t n, T exponent, const Vec<T> (&shift)[V],
                                                     bool care, Vec<T> (&sum)[V]) {
    const T *s = k.s;
    Factor<T> *to = k.p();  // in place: what is written has been read
    for (; n >= 2; n -= 2, s += 2 * k.L, to += 2 / EACH * k.L)
        exponentials_of<T, natural, 2 * V>(s, exponent, shift, care, sum, to);
    if (n > 0) exponentials_of<T, natural, V>(s, exponent, shift, care, sum, to);
}

// The maximum of each lane, in two chains that do not wait for each other. Of zeros the first one stays.
template <class T> [[gnu::always_inline]] inline void highest(const Block<T> &k, int64_t n, Vec<T> (&top)[V]) {
    Vec<T> late[V];
#pragma GCC unroll 2
    for (int v = 0; v < V; v++) top[v] = k.m[v], late[v] = spread<Vec<T>>(-infinity<T>());
    const auto rise = [](Vec<T> &top, const T *s) {
        const Vec<T> x = load<Vec<T>>(s);
        top = x > top ? x : top;
    };
    const T *first = k.s, *second = k.s + n / 2 * k.L;
    for (int64_t j = 0; j < n / 2; j++, first += k.L, second += k.L)
#pragma GCC unroll 2
        for (int v = 0; v < V; v++) rise(top[v], first + v * W<T>), rise(late[v], second + v * W<T>);
#pragma GCC unroll 2
    for (int v = 0; v < V; v++) {
        if (n % 2) rise(late[v], second + v * W<T>);
        top[v] = late[v] > top[v] ? late[v] : top[v];
    }
}

// Scores become exp(score - maximum); the sums are carried over.
template <class T>
void exponentials(const Units<T> &units, Block<T> &k, int64_t n, bool care, Vec<T> (&carry)[V]) {
    Vec<T> top[V], shift[V], sum[V];
    highest(k, n, top);
#pragma GCC unroll 2
    for (int v = 0; v < V; v++) {
        sum[v] = Vec<T>{};
        shift[v] = shift_of<T>(top[v]);
        carry[v] = units.power(k.m[v] - shift[v]);
    }
    if (units.natural)
        exponentials_down<T, true>(k, n, units.exponent, shift, care, sum);
    else
        exponentials_down<T, false>(k, n, units.exponent, shift, care, sum);
#pragma GCC unroll 2
    for (int v = 0; v < V; v++) k.l[v] = fma(k.l[v], carry[v], sum[v]), k.m[v] = top[v];
}

template <class T>
void carry_all(const Block<T> &k, Rows<T> values, Keys keys, const Vec<T> (&carry)[V], int64_t Dv) {
    const int64_t early = factors_of(early_of(k, keys));
    in_blocks(Dv, [&]<int R>(int64_t d) {
        carry_columns<T, R>(values.data + d, values.stride, k.p(), early, factors_of(keys.n), carry, k.fresh,
                            k.o + d * k.L);
    });
}

// The same sums pair by pair: a value that is not finite counts where it is seen.
template <class T>
void carry_seen(const Block<T> &k, Rows<T> values, int64_t n, const Vec<T> (&carry)[V], int64_t Dv) {
    for (int64_t d = 0; d < Dv; d++)
        for (int v = 0; v < V; v++) {
            Vec<T> acc{};
            for (int64_t t = 0; t < factors_of(n); t++) {
                const auto p = load<Vec<Factor<T>>>(k.p() + t * k.L + v * W<T>);
                acc = fma(seen_only(values.data[t * values.stride + d], p), p, acc);
            }
            T *place = k.o + d * k.L + v * W<T>;
            store(place, fma(k.fresh ? Vec<T>{} : load<Vec<T>>(place), carry[v], acc));
        }
}

// n is a whole number of pairs of vectors. What is finite leaves 0 when it is taken from itself.
template <class T> bool all_finite(const T *x, int64_t n) {
    typedef decltype(Vec<T>{} != Vec<T>{}) Bits;
    Bits left[2] = {};
    for (int64_t i = 0; i < n; i += 2 * W<T>)
#pragma GCC unroll 2
        for (int v = 0; v < 2; v++) {
            const Vec<T> y = load<Vec<T>>(x + i + v * W<T>);
            left[v] |= (Bits)(y - y);
        }
    int64_t parts[VECTOR_BYTES / 8], all = 0;
    store(parts, left[0] | left[1]);
    for (int64_t part : parts) all |= part;
    return all == 0;
}

template <class T> void begin_segment(Block<T> &k) {
    for (int v = 0; v < V; v++) k.m[v] = spread<Vec<T>>(-infinity<T>()), k.l[v] = Vec<T>{};
    k.fresh = true;
}

// Zeros, where no tile has been added.
template <class T> void settle_segment(const Call &c, Block<T> &k) {
    if (k.fresh) std::memset(k.o, 0, c.Dv * k.L * sizeof(T));
    k.fresh = false;
}

template <class T> void begin(const Call &c, Block<T> &k) {
    for (int v = 0; v < V; v++) k.M[v] = spread<Vec<T>>(-infinity<T>()), k.S[v] = Vec<T>{};
    std::memset(k.total, 0, c.Dv * k.L * sizeof(T));
}

// The first segment is all there is as yet.
template <class T> void adopt_segment(Block<T> &k) {
    for (int v = 0; v < V; v++) k.M[v] = k.m[v], k.S[v] = k.l[v];
    std::swap(k.o, k.total);
}

// (M, S, total) and a segment's (m, l, o) become one.
template <class T>
void merge_segment(const Units<T> &units, const Call &c, Block<T> &k, const Vec<T> *m, const Vec<T> *l,
                   const T *o) {
    for (int v = 0; v < V; v++) {
        const Vec<T> top = m[v] > k.M[v] ? m[v] : k.M[v], shift = shift_of<T>(top);
        const Vec<T> a = units.power(k.M[v] - shift), b = units.power(m[v] - shift);
        k.S[v] = fma(l[v], b, k.S[v] * a);
        k.M[v] = top;
        for (int64_t d = 0; d < c.Dv && o; d++) {
            T *place = k.total + d * k.L + v * W<T>;
            store(place, fma(load<Vec<T>>(o + d * k.L + v * W<T>), b, load<Vec<T>>(place) * a));
        }
        for (int64_t d = 0; d < c.Dv && !o; d++) {  // the sink has no value
            T *place = k.total + d * k.L + v * W<T>;
            store(place, load<Vec<T>>(place) * a);
        }
    }
}

template <class T> void merge_sinks(const Call &c, Block<T> &k) {
    const Units<T> units(c);
    Vec<T> sink[V], one[V];
    for (int i = 0; i < k.L; i++) {
        const double x = c.sinks[k.head[i]];
        sink[i / W<T>][i % W<T>] = saturated<T>(x);  // scores are natural where there are sinks
        one[i / W<T>][i % W<T>] = x == -__builtin_inf() ? (T)0 : (T)1;
    }
    merge_segment<T>(units, c, k, sink, one, nullptr);
}

// Each lane's totals · r + 0 to its row of the output.
template <class T> void write_rows(const Call &c, const Block<T> &k, const Vec<T> (&r)[V]) {
    char *row[Block<T>::L];
    const char *base = c.at(c.output, k.b, 0);
    for (int64_t i = 0; i < k.n; i++) row[i] = (char *)row_of(c.output, base, k, i);
    int64_t d = 0;
    for (; d + W<T> <= c.Dv && dense(c.output); d += W<T>)
        for (int v = 0; v < V && v * W<T> < k.n; v++) {
            Vec<T> x[W<T>];
            for (int w = 0; w < W<T>; w++) x[w] = load<Vec<T>>(k.total + (d + w) * k.L + v * W<T>) * r[v] + Vec<T>{};
            transpose<T>(x);
            for (int w = 0; w < W<T> && v * W<T> + w < k.n; w++)
                write_all(row[v * W<T> + w] + d * c.output.column, c.output.type, x[w]);
        }
    for (; d < c.Dv; d++)
        for (int64_t i = 0; i < k.n; i++)
            write<T>(row[i] + d * c.output.column, c.output.type,
                     k.total[d * k.L + i] * r[i / W<T>][i % W<T>] + 0);
}

// `finite`: the totals are known to be.
template <class T> void finish(const Call &c, Block<T> &k, bool finite) {
    if (c.sinks) merge_sinks(c, k);
    if (c.strange && !finite && !all_finite(k.total, c.Dv * k.L)) c.strange->store(true, std::memory_order_relaxed);
    Vec<T> r[V];
    for (int v = 0; v < V; v++) r[v] = k.S[v] == (T)0 ? Vec<T>{} : (T)1 / k.S[v];
    write_rows(c, k, r);
    if (!c.maximum) return;
    for (int64_t i = 0; i < k.n; i++) {
        const int64_t at = (k.b * c.H + k.head[i]) * c.Nq + k.index[i];
        ((T *)c.maximum)[at] = k.M[i / W<T>][i % W<T>];
        ((T *)c.reciprocal)[at] = r[i / W<T>][i % W<T>];
    }
}

}  // namespace
}  // namespace REGARD_ISA
