// What the two products multiply: numbers in the type that is computed in, or, in the set that has dot
// products of bfloat16, pairs of such numbers as they lie, the first in the low half: two of a key's depth,
// or one column of two keys' values. A pair begins at an even depth or key; a last odd one goes with 0.
#pragma once

#include "reading.hpp"

namespace REGARD_ISA {
namespace {

#if defined(REGARD_PAIRS)
constexpr int64_t EACH = 2;  // numbers of a factor
template <class T> using Factor = uint32_t;
#else
constexpr int64_t EACH = 1;
template <class T> using Factor = T;
#endif
constexpr bool PAIRS = EACH == 2;

// Calls f<T> for the type that the call is computed in.
#if defined(REGARD_PAIRS)
#define REGARD_PICK(c, f, ...) f<float>(__VA_ARGS__)
#else
#define REGARD_PICK(c, f, ...) (c.query.type == Type::f64 ? f<double>(__VA_ARGS__) : f<float>(__VA_ARGS__))
#endif

inline int64_t factors_of(int64_t n) { return (n + EACH - 1) / EACH; }

// Factors of keys, each row its depth, or of values, each row one key's columns or those of two.
template <class T> struct Rows {
    const Factor<T> *data;
    int64_t stride;  // factors from row to row
};

// The type of numbers that are factors as they lie.
template <class T> constexpr Type stored() { return PAIRS ? Type::bf16 : own<T>(); }
template <class T> [[gnu::always_inline]] inline bool in_place(const Array &a, int64_t columns) {
    return dense(a) && a.type == stored<T>() && columns % EACH == 0;
}

#if defined(REGARD_PAIRS)

// Numbers d and d + 1 of a row of n.
inline uint32_t pair_of(const char *row, int64_t column, int64_t d, int64_t n) {
    const uint32_t low = peek<uint16_t>(row + d * column);
    return low | (d + 1 < n ? (uint32_t)peek<uint16_t>(row + (d + 1) * column) << 16 : 0);
}

template <class T>
Rows<T> key_rows(const Array &a, const char *base, const int64_t *list, int64_t first, int64_t n, int64_t columns,
                 uint32_t *packed) {
    const char *row = base + first * a.row;
    if (!list && in_place<T>(a, columns) && a.row % 4 == 0 && (uintptr_t)row % 4 == 0)
        return {(const uint32_t *)row, a.row / 4};
    const int64_t pairs = factors_of(columns);
    for (int64_t j = 0; j < n; j++) {
        row = base + (list ? list[j] : first + j) * a.row;
        for (int64_t d = 0; d < pairs; d++) packed[j * pairs + d] = pair_of(row, a.column, 2 * d, columns);
    }
    return {packed, pairs};
}

// Columns of two rows side by side; without a second row, beside 0.
typedef uint16_t Brains __attribute__((vector_size(VECTOR_BYTES)));
inline void interleave(const char *a, const char *b, Words &low, Words &high) {
    constexpr int N = VECTOR_BYTES / 2;
    constexpr auto all = std::make_index_sequence<N>();
    const Brains x = load<Brains>((const uint16_t *)a), y = b ? load<Brains>((const uint16_t *)b) : Brains{};
    low = (Words)pick(x, y, [](int l) { return l / 2 + l % 2 * N; }, all);
    high = (Words)pick(x, y, [](int l) { return (l + N) / 2 + l % 2 * N; }, all);
}

template <class T>
Rows<T> value_rows(const Array &a, const char *base, int64_t first, int64_t n, int64_t columns, uint32_t *packed) {
    constexpr int W2 = 2 * W<float>;
    for (int64_t j = 0; j < n; j += 2) {
        const char *x = base + (first + j) * a.row, *y = j + 1 < n ? x + a.row : nullptr;
        uint32_t *to = packed + j / 2 * columns;
        int64_t d = 0;
        for (; d + W2 <= columns && dense(a); d += W2) {
            Words low, high;
            interleave(x + 2 * d, y ? y + 2 * d : nullptr, low, high);
            store(to + d, low), store(to + d + W<float>, high);
        }
        for (; d < columns; d++)
            to[d] = peek<uint16_t>(x + d * a.column) | (y ? (uint32_t)peek<uint16_t>(y + d * a.column) << 16 : 0);
    }
    return {packed, columns};
}

// Queries as they lie: their scale is for the scores.
template <class T> uint32_t query_factor(const Array &a, const char *row, int64_t d, int64_t n, T) {
    return pair_of(row, a.column, 2 * d, n);
}
inline Words scaled(Words pairs, float) { return pairs; }
inline Vec<float> rescaled(Vec<float> score, float factor) { return score * factor; }

// Weights of two keys, rounded to nearest even, lane by lane.
inline Words pair_up(Vec<float> a, Vec<float> b) {
    const Brains rounded = (Brains)_mm512_cvtne2ps_pbh((__m512)b, (__m512)a);
    return (Words)pick(rounded, rounded, [](int l) { return l / 2 + l % 2 * W<float>; },
                       std::make_index_sequence<2 * W<float>>());
}

// n weights of one lane, key after key, in place.
inline void pair_along(float *p, int64_t n) {
    for (int64_t j = 0; j < n; j += 2 * W<float>) {
        const auto a = load<Vec<float>>(p + j), b = load<Vec<float>>(p + j + W<float>);
        store((uint32_t *)p + j / 2, (Words)_mm512_cvtne2ps_pbh((__m512)b, (__m512)a));
    }
}

// How many rows of values stored as X make a row of factors, and a vector of them from column `row` on, of which
// `rest` are there.
template <class X> constexpr int rows_of_factor = sizeof(X) == 2 ? 2 : 1;
template <class T>
[[gnu::always_inline]] inline Words column_factors(const uint32_t *row, const uint32_t *, int64_t rest) {
    return rest < W<T> ? wide<uint32_t>(row, rest) : load<Words>(row);
}
template <class T>
[[gnu::always_inline]] inline Words column_factors(const Brain *row, const Brain *next, int64_t rest) {
    const Words low = (Words)(rest < W<T> ? wide<T>(row, rest) : wide(row));
    if (!next) return low >> 16;
    return low >> 16 | (Words)(rest < W<T> ? wide<T>(next, rest) : wide(next));
}

// n vectors of weights, V to a key.
template <int V, int N> [[gnu::always_inline]] inline void keep_weights(uint32_t *to, const Vec<float> (&p)[N]) {
    for (int v = 0; v < V; v++) store(to + v * W<float>, pair_up(p[v], N > V ? p[V + v] : Vec<float>{}));
}

// A factor of values in each lane: what is not finite and hidden, of weight -0, counts as 0.
inline Words seen_only(uint32_t x, Words p) {
    Words seen = spread<Words>(x);
    for (uint32_t half : {0xffffu, 0xffff0000u}) {
        const bool ordinary = (x & half & 0x7f807f80u) != (half & 0x7f807f80u);
        if (!ordinary) seen = (p & half) == (half & 0x80008000u) ? seen & ~half : seen;
    }
    return seen;
}

#else

template <class T>
Rows<T> key_rows(const Array &a, const char *base, const int64_t *list, int64_t first, int64_t n, int64_t columns,
                 T *packed) {
    if (!list && in_place<T>(a, columns) && a.row % (int64_t)sizeof(T) == 0)
        return {(const T *)(base + first * a.row), a.row / (int64_t)sizeof(T)};
    for (int64_t j = 0; j < n; j++)
        read_row<T>(a, base + (list ? list[j] : first + j) * a.row, columns, packed + j * columns);
    return {packed, columns};
}
template <class T>
Rows<T> value_rows(const Array &a, const char *base, int64_t first, int64_t n, int64_t columns, T *packed) {
    return key_rows<T>(a, base, nullptr, first, n, columns, packed);
}

template <class T> T query_factor(const Array &a, const char *row, int64_t d, int64_t, T factor) {
    return factor * read<T>(row + d * a.column, a.type);
}
template <class T> Vec<T> scaled(Vec<T> query, T factor) { return query * factor; }
template <class T> Vec<T> rescaled(Vec<T> score, T) { return score; }

template <class T> void pair_along(T *, int64_t) {}
template <class X> constexpr int rows_of_factor = 1;
template <class T, class X> [[gnu::always_inline]] inline Vec<T> column_factors(const X *row, const X *, int64_t rest) {
    return rest < W<T> ? wide<T>(row, rest) : wide(row);
}

template <int V, class T, class X, int N> [[gnu::always_inline]] inline void keep_weights(T *to, const X (&p)[N]) {
    for (int i = 0; i < N; i++) store(to + i * W<T>, p[i]);
}

template <class T> Vec<T> seen_only(T x, Vec<T> p) {
    const Vec<T> seen = spread<Vec<T>>(x);
    if (x - x == 0) return seen;
    return (p == (T)0) & (1 / p < (T)0) ? Vec<T>{} : seen;
}

#endif

}  // namespace
}  // namespace REGARD_ISA
