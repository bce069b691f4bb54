// Vectors of one instruction set: what the compiler's extensions lack.
//
// Compiled once for each set, within that set's own namespace (REGARD_ISA), with VECTOR_BYTES the
// width of a register.
#pragma once

#include <cstdint>
#include <cstring>
#include <utility>

#if defined(__AVX2__) || defined(__AVX512F__)
#include <immintrin.h>
#elif defined(__ARM_NEON)
#include <arm_neon.h>
#endif

namespace REGARD_ISA {

template <class T> struct Vectors {
    typedef T type __attribute__((vector_size(VECTOR_BYTES)));
    static constexpr int lanes = VECTOR_BYTES / sizeof(T);
};
template <class T> using Vec = typename Vectors<T>::type;
using Words = Vec<uint32_t>;  // of which sums and shifts may wrap
using LongWords = Vec<uint64_t>;

template <class V, class T> inline V spread(T x) { return x - V{}; }  // x in every lane

template <class V, class T> inline V load(const T *p) {
    V v;
    std::memcpy(&v, p, sizeof v);
    return v;
}

template <class V, class T> inline void store(T *p, V v) { std::memcpy(p, &v, sizeof v); }

// Whether a lane of a comparison is set.
template <class M> inline bool some(M mask) {
    uint64_t words[sizeof mask / 8], any = 0;
    std::memcpy(words, &mask, sizeof mask);
    for (uint64_t word : words) any |= word;
    return any != 0;
}

// Lanes of a and b by their numbers, those of b counted on from a's: f(i) is what lane i takes.
template <class V, class F, size_t... I>
[[gnu::always_inline]] inline V pick(V a, V b, F f, std::index_sequence<I...>) {
    return __builtin_shufflevector(a, b, f((int)I)...);
}

// The numbers of 16 bytes in each part of 16 bytes.
template <class T> [[gnu::always_inline]] inline Vec<T> repeat(const T *p) {
    Vec<T> x;
    for (int n = 0; n < VECTOR_BYTES; n += 16) std::memcpy((char *)&x + n, p, 16);
    return x;
}
#if defined(__AVX2__) && !defined(__AVX512F__)
template <> inline Vec<float> repeat(const float *p) { return (Vec<float>)_mm256_broadcast_ps((const __m128 *)p); }
template <> inline Vec<double> repeat(const double *p) { return (Vec<double>)_mm256_broadcast_pd((const __m128d *)p); }
#endif

// In each part its number `at`, throughout.
template <int at, class V, size_t... I> [[gnu::always_inline]] inline V spread_part(V x, std::index_sequence<I...>) {
    constexpr int P = 16 / sizeof x[0];
    return __builtin_shufflevector(x, x, (int)I / P * P + at...);
}

// Squares within each part of 16 bytes, which every set transposes by one instruction a vector and step:
// lane l of part n of a[i] and lane i of part n of a[l] change places.
template <class T, int P = 16 / sizeof(T)> [[gnu::always_inline]] inline void transpose_parts(Vec<T> *a) {
    constexpr int W = Vectors<T>::lanes;
    constexpr auto all = std::make_index_sequence<W>();
    for (int step = 1; step < P; step *= 2) {  // rows i and i + P/2 are interleaved
        Vec<T> b[P];
#pragma GCC unroll 2
        for (int r = 0; r < P / 2; r++) {
            const Vec<T> x = a[r], y = a[r + P / 2];
            b[2 * r] = pick(x, y, [](int l) { return l / P * P + l % P / 2 + l % 2 * W; }, all);
            b[2 * r + 1] = pick(x, y, [](int l) { return l / P * P + P / 2 + l % P / 2 + l % 2 * W; }, all);
        }
        for (int i = 0; i < P; i++) a[i] = b[i];
    }
}

// A vector, half of it from a and half from b.
template <class T> [[gnu::always_inline]] inline Vec<T> of_halves(const void *a, const void *b) {
#if defined(__AVX512F__)
    const __m512d low = _mm512_castpd256_pd512(_mm256_loadu_pd((const double *)a));
    return (Vec<T>)_mm512_mask_broadcast_f64x4(low, 0xf0, _mm256_loadu_pd((const double *)b));  // no shuffle
#else
    Vec<T> x;
    std::memcpy(&x, a, sizeof x / 2);
    std::memcpy((char *)&x + sizeof x / 2, b, sizeof x / 2);
    return x;
#endif
}

// Squares within each half of a vector of four parts.
template <class T> [[gnu::always_inline]] inline void transpose_halves(Vec<T> *a) {
    constexpr int W = Vectors<T>::lanes, P = 16 / sizeof(T);
    constexpr auto all = std::make_index_sequence<W>();
    transpose_parts<T>(a);
    transpose_parts<T>(a + P);
#pragma GCC unroll 4
    for (int r = 0; r < P; r++) {  // the second part of row r and the first of row r + P change places
        const Vec<T> x = a[r], y = a[r + P];
        a[r] = pick(x, y, [](int l) { return l / (2 * P) * 2 * P + l % P + l / P % 2 * W; }, all);
        a[r + P] = pick(x, y, [](int l) { return l / (2 * P) * 2 * P + P + l % P + l / P % 2 * W; }, all);
    }
}

// A square of W × W numbers, a row in each vector, becomes its transpose: within parts, then part by part.
template <class T> [[gnu::always_inline]] inline void transpose(Vec<T> (&a)[Vectors<T>::lanes]) {
    constexpr int W = Vectors<T>::lanes, P = 16 / sizeof(T);
    [[maybe_unused]] constexpr auto all = std::make_index_sequence<W>();
#pragma GCC unroll 4
    for (int i = 0; i < W; i += P) transpose_parts<T>(a + i);
    if constexpr (W == 2 * P) {
#pragma GCC unroll 4
        for (int r = 0; r < P; r++) {
            const Vec<T> x = a[r], y = a[r + P];
            a[r] = pick(x, y, [](int l) { return l % P + l / P * W; }, all);
            a[r + P] = pick(x, y, [](int l) { return P + l % P + l / P * W; }, all);
        }
    } else if constexpr (W == 4 * P) {
#pragma GCC unroll 4
        for (int r = 0; r < P; r++) {
            Vec<T> x[4], y[4];
            for (int g = 0; g < 4; g++) x[g] = a[r + g * P];
            for (int g = 0; g < 2; g++) {  // parts of rows g and g + 2, by twos
                y[g] = pick(x[g], x[g + 2], [](int l) { return l % (2 * P) + l / (2 * P) * W; }, all);
                y[g + 2] = pick(x[g], x[g + 2], [](int l) { return 2 * P + l % (2 * P) + l / (2 * P) * W; }, all);
            }
            for (int g = 0; g < 4; g += 2) {
                a[r + g * P] = pick(y[g], y[g + 1], [](int l) { return l / (2 * P) * 2 * P + l % P + l / P % 2 * W; }, all);
                a[r + (g + 1) * P] = pick(y[g], y[g + 1], [](int l) { return l / (2 * P) * 2 * P + P + l % P + l / P % 2 * W; }, all);
            }
        }
    }
}

// a·b + c, rounded once where the set has the instruction.
inline Vec<float> fma(Vec<float> a, Vec<float> b, Vec<float> c) {
#if defined(__AVX512F__)
    return (Vec<float>)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif defined(__FMA__)
    return (Vec<float>)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#elif defined(__ARM_NEON)
    return (Vec<float>)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
#else
    return a * b + c;
#endif
}

inline Vec<double> fma(Vec<double> a, Vec<double> b, Vec<double> c) {
#if defined(__AVX512F__)
    return (Vec<double>)_mm512_fmadd_pd((__m512d)a, (__m512d)b, (__m512d)c);
#elif defined(__FMA__)
    return (Vec<double>)_mm256_fmadd_pd((__m256d)a, (__m256d)b, (__m256d)c);
#elif defined(__ARM_NEON)
    return (Vec<double>)vfmaq_f64((float64x2_t)c, (float64x2_t)a, (float64x2_t)b);
#else
    return a * b + c;
#endif
}

#if defined(__AVX512BF16__)
// c + the products of two pairs of bfloat16, each rounded on its way; subnormal numbers count as 0.
inline Vec<float> fma(Words a, Words b, Vec<float> c) {
    return (Vec<float>)_mm512_dpbf16_ps((__m512)c, (__m512bh)a, (__m512bh)b);
}
#endif

// 2^y for y ≤ 0, of N vectors in step, so that none waits for its own last operation: at most 1 unit in
// the last place on [-126, 0] (-1022 for double), exactly 1 at 0, exactly 0 below, so also at -inf; a NaN
// comes back as a NaN, whatever its bits, since it is multiplied and never added to as a whole number.
// Rounds y to an integer r by adding 1.5·2^23 (2^52), evaluates a minimax polynomial of 2^(y - r) whose
// constant is exactly 1; the low bits of that sum, which hold r + 127 (1023), become the exponent of 2^r.
template <class T> struct Exp2;
template <> struct Exp2<float> {
    typedef Words Whole;
    static constexpr float magic = 12582912.0f, bias = 127, least = -126;
    static constexpr int mantissa = 23;
    static constexpr float c[] = {0.000153533617864f, 0.00133988743782f, 0.00961843735844f, 0.0555033247126f,
                                  0.240226479136f,    0.693147202855f,   1.0f};
};
template <> struct Exp2<double> {
    typedef LongWords Whole;
    static constexpr double magic = 6755399441055744.0, bias = 1023, least = -1022;
    static constexpr int mantissa = 52;
    static constexpr double c[] = {
        2.5625414612018138179e-11, 4.4565704928404563079e-10, 7.0549744827933673128e-9,
        1.0178051942061471994e-7,  1.3215486594899961499e-6,  0.000015252733854318075047,
        0.00015403530393640735465, 0.0013333558146392691022,  0.0096181291076283295561,
        0.055504108664821687112,   0.24022650695910071507,    0.69314718055994530855,   1.0,
    };
};

template <class T, int N> [[gnu::always_inline]] inline void exp2(Vec<T> (&y)[N]) {
    using E = Exp2<T>;
    const Vec<T> magic = spread<Vec<T>>(E::magic + E::bias);
    Vec<T> r[N], f[N], p[N];
#pragma GCC unroll 4
    for (int i = 0; i < N; i++) r[i] = y[i] + magic;
#pragma GCC unroll 4
    for (int i = 0; i < N; i++) f[i] = r[i] - magic;
#pragma GCC unroll 4
    for (int i = 0; i < N; i++) f[i] = y[i] - f[i];
#pragma GCC unroll 4
    for (int i = 0; i < N; i++) p[i] = spread<Vec<T>>(E::c[0]);
#pragma GCC unroll 12
    for (size_t k = 1; k < sizeof E::c / sizeof(T); k++)
#pragma GCC unroll 4
        for (int i = 0; i < N; i++) p[i] = fma(p[i], f[i], spread<Vec<T>>(E::c[k]));
#pragma GCC unroll 4
    for (int i = 0; i < N; i++) p[i] *= (Vec<T>)((typename E::Whole)r[i] << E::mantissa);
#pragma GCC unroll 4
    for (int i = 0; i < N; i++) y[i] = y[i] < E::least ? Vec<T>{} : p[i];
}

inline Vec<float> exp2(Vec<float> y) {
    Vec<float> x[1] = {y};
    exp2<float>(x);
    return x[0];
}
inline Vec<double> exp2(Vec<double> y) {
    Vec<double> x[1] = {y};
    exp2<double>(x);
    return x[0];
}

}  // namespace REGARD_ISA
