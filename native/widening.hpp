// Weights as they are held, widened exactly, 32 at a time.
#pragma once

#include "layers.hpp"
#include "reading.hpp"

namespace REGARD_ISA {
namespace {

using F = Vec<float>;
typedef int32_t Ints __attribute__((vector_size(VECTOR_BYTES)));
constexpr int L = W<float>;
constexpr int STEP = 32, VECTORS = STEP / L;  // depths that are read together

// A kind of weights says how many bytes hold STEP of them, and widens those at p: `at` a vector of
// them, where the numbers of an array lie there, or `read` all.
struct Floats {
    static constexpr bool array = true;
    static constexpr int block = 4 * STEP;
    static F at(const char *p, int v) { return load<F>((const float *)p + v * L); }
};

template <class X> struct Narrow {
    static constexpr bool array = true;
    static constexpr int block = 2 * STEP;
    static F at(const char *p, int v) { return wide((const X *)p + v * L); }
};

// L bytes, or L signed bytes, as whole numbers.
template <class B> inline Ints bytes(const B *p) {
#if defined(__AVX512F__)
    const __m128i b = _mm_loadu_si128((const __m128i *)p);
    return (Ints)(B(-1) < B(0) ? _mm512_cvtepi8_epi32(b) : _mm512_cvtepu8_epi32(b));
#elif defined(__AVX2__)
    const __m128i b = _mm_loadl_epi64((const __m128i *)p);
    return (Ints)(B(-1) < B(0) ? _mm256_cvtepi8_epi32(b) : _mm256_cvtepu8_epi32(b));
#else
    typedef B Some __attribute__((vector_size(L)));
    return __builtin_convertvector(load<Some>(p), Ints);
#endif
}

inline F numbers(Ints x) { return __builtin_convertvector(x, F); }

inline F half_at(const char *p) {
#if defined(__AVX512F__)
    return (F)_mm512_cvtph_ps(_mm256_set1_epi16(peek<int16_t>(p)));
#elif defined(__F16C__)
    return (F)_mm256_cvtph_ps(_mm_set1_epi16(peek<int16_t>(p)));
#else
    return spread<F>(widen_f16(peek<uint16_t>(p)));
#endif
}

// Two float16 that follow each other, each in all lanes.
inline void two_halves_at(const char *p, F &first, F &second) {
#if defined(__AVX512F__)
    const __m512 both = _mm512_cvtph_ps(_mm256_set1_epi32(peek<int32_t>(p)));
    first = (F)_mm512_moveldup_ps(both), second = (F)_mm512_movehdup_ps(both);
#elif defined(__F16C__)
    const __m256 both = _mm256_cvtph_ps(_mm_set1_epi32(peek<int32_t>(p)));
    first = (F)_mm256_moveldup_ps(both), second = (F)_mm256_movehdup_ps(both);
#else
    first = half_at(p), second = half_at(p + 2);
#endif
}

// 16 bytes' low halves, then their high ones, each times a scale, plus the least weight, rounded once:
// the product is exact, 11 bits times 4.
inline void nibbles(const char *p, F scale, F lowest, F *to) {
    for (int v = 0; v < VECTORS / 2; v++) {
        const Ints b = bytes((const uint8_t *)p + v * L);
        to[v] = fma(numbers(b & 15), scale, lowest);
        to[v + VECTORS / 2] = fma(numbers(b >> 4), scale, lowest);
    }
}

struct Q40 {
    static constexpr bool array = false;
    static constexpr int block = 18;
    static void read(const char *p, F *to) {
        const F scale = half_at(p);
        nibbles(p + 2, scale, scale * -8.0f, to);
    }
};

struct Q41 {
    static constexpr bool array = false;
    static constexpr int block = 20;
    static void read(const char *p, F *to) {
        F scale, lowest;
        two_halves_at(p, scale, lowest);
        nibbles(p + 4, scale, lowest, to);
    }
};

struct Q80 {
    static constexpr bool array = false;
    static constexpr int block = 34;
    static void read(const char *p, F *to) {
        const F scale = half_at(p);
        for (int v = 0; v < VECTORS; v++) to[v] = numbers(bytes((const int8_t *)p + 2 + v * L)) * scale;
    }
};

template <class Kind> [[gnu::always_inline]] inline void read_step(const char *p, F *to) {
    if constexpr (Kind::array)
        for (int v = 0; v < VECTORS; v++) to[v] = Kind::at(p, v);
    else
        Kind::read(p, to);
}

// What is left of a row after whole steps: n < STEP numbers of an array, then zeros. Blocks leave none.
template <class Kind> void read_end(const char *p, int64_t n, F *to) {
    char whole[Kind::block] = {};
    std::memcpy(whole, p, n * (Kind::block / STEP));
    read_step<Kind>(whole, to);
}

// The sums of L vectors' lanes, in order, each by the same tree: halves, then quarters …
template <int H = L / 2> [[gnu::always_inline]] inline F folded(F *a) {
    constexpr auto all = std::make_index_sequence<L>();
    auto lower = [](int l) { return l / (2 * H) * 2 * H + l % H + (l % (2 * H) < H ? 0 : L); };
    for (int i = 0; i < H; i++) {
        const F x = a[i], y = a[i + H];
        a[i] = pick(x, y, lower, all) + pick(x, y, [=](int l) { return lower(l) + H; }, all);
    }
    if constexpr (H == 1)
        return a[0];
    else
        return folded<H / 2>(a);
}

// R rows' sums of N outputs, row after row, folded, with the bias, to the first n of the rows' outputs.
// `sums` has whole vectors' worth of L.
template <int R, int N>
[[gnu::always_inline]] inline void finish(const Product &p, F *sums, int64_t row, int64_t first, int64_t n) {
    constexpr int all = (R * N + L - 1) / L * L;
    float totals[all];
    for (int i = 0; i < all; i += L) store(totals + i, folded(sums + i));
    for (int r = 0; r < R; r++) {
        const float *from = totals + r * N, *bias = p.bias ? p.bias + first : nullptr;
        float *y = p.y + (row + r) * p.out + first;
        for (int64_t o = 0; o < n; o++) y[o] = bias ? from[o] + bias[o] : from[o];
    }
}

}  // namespace
}  // namespace REGARD_ISA
