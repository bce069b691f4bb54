// Numbers of every type read and written, and rows of them in the type that is computed in.
#pragma once

#include "call.hpp"
#include "vectors.hpp"

namespace REGARD_ISA {
namespace {

using namespace regard;

template <class T> constexpr int W = Vectors<T>::lanes;
constexpr double LOG2E = 1.4426950408889634074, LN2 = 0.69314718055994530942;

#if VECTOR_BYTES == 64
constexpr int REACH = 8;  // keys of a register block
#else
constexpr int REACH = 6;
#endif

template <class T> constexpr Type own() { return sizeof(T) == 4 ? Type::f32 : Type::f64; }
template <class T> T infinity() { return (T)__builtin_inf(); }
template <class T> T least(T a, T b) { return b < a ? b : a; }
template <class T> T most(T a, T b) { return b > a ? b : a; }

inline float widen_f16(uint16_t h) {
    const uint32_t sign = (uint32_t)(h & 0x8000) << 16, magnitude = h & 0x7fff;
    uint32_t bits;
    if (magnitude >= 0x7c00) {
        bits = 0x7f800000u | ((magnitude & 0x3ff) << 13);
    } else if (magnitude >= 0x400) {
        bits = (magnitude << 13) + 0x38000000u;
    } else {  // subnormal: exact in float
        const float value = (float)magnitude * 0x1p-24f;
        std::memcpy(&bits, &value, 4);
    }
    bits |= sign;
    float x;
    std::memcpy(&x, &bits, 4);
    return x;
}

inline float widen_bf16(uint16_t h) {
    const uint32_t bits = (uint32_t)h << 16;
    float x;
    std::memcpy(&x, &bits, 4);
    return x;
}

// The upper half of numbers, rounded to nearest even.
template <class B> B upper_half(B bits) { return (bits + 0x7fff + ((bits >> 16) & 1)) >> 16; }

inline uint16_t narrow_bf16(float x) {
    uint32_t bits;
    std::memcpy(&bits, &x, 4);
    if ((bits & 0x7fffffff) > 0x7f800000) return (uint16_t)((bits >> 16) | 0x40);
    return (uint16_t)upper_half(bits);
}

inline uint16_t narrow_f16(float x) {
    uint32_t bits;
    std::memcpy(&bits, &x, 4);
    const uint16_t sign = (uint16_t)((bits >> 16) & 0x8000);
    bits &= 0x7fffffff;
    if (bits > 0x7f800000) return sign | 0x7e00;
    if (bits >= 0x477ff000) return sign | 0x7c00;  // 65520 and above round to infinity
    if (bits < 0x38800000) {                       // subnormal: the adder rounds to nearest even
        float magnitude;
        std::memcpy(&magnitude, &bits, 4);
        magnitude += 0.5f;
        std::memcpy(&bits, &magnitude, 4);
        return sign | (uint16_t)(bits - 0x3f000000);
    }
    const uint32_t odd = (bits >> 13) & 1;
    return sign | (uint16_t)((bits - 0x38000000 + 0xfff + odd) >> 13);
}

template <class X> X peek(const char *p) {
    X x;
    std::memcpy(&x, p, sizeof x);
    return x;
}

template <class T> inline T read(const char *p, Type type) {
    switch (type) {
        case Type::f16: return (T)widen_f16(peek<uint16_t>(p));
        case Type::bf16: return (T)widen_bf16(peek<uint16_t>(p));
        case Type::f32: return (T)peek<float>(p);
        default: return (T)peek<double>(p);
    }
}

// A bias or sink in T: a finite one stays finite.
template <class T> inline T saturated(double x) {
    constexpr double limit = sizeof(T) == 4 ? 3.4028234663852886e38 : 1.7976931348623157e308;
    constexpr double infinite = __builtin_inf();
    return (T)(x > limit && x < infinite ? limit : x < -limit && x > -infinite ? -limit : x);
}

template <class T> inline void write(char *p, Type type, T x) {
    if (type == Type::f16 || type == Type::bf16) {
        const uint16_t h = type == Type::f16 ? narrow_f16((float)x) : narrow_bf16((float)x);
        std::memcpy(p, &h, 2);
    } else if (type == Type::f32) {
        const float f = (float)x;
        std::memcpy(p, &f, 4);
    } else {
        const double d = (double)x;
        std::memcpy(p, &d, 8);
    }
}

// A vector of numbers to where they lie side by side.
inline void write_all(char *p, Type, Vec<double> x) { store((double *)p, x); }
inline void write_all(char *p, Type type, Vec<float> x) {
    typedef uint16_t Bits __attribute__((vector_size(VECTOR_BYTES / 2)));
    if (type == Type::f32) {
        store((float *)p, x);
    } else if (type == Type::bf16) {
        const Words bits = (Words)x, quiet = (bits >> 16) | 0x40;
        store((uint16_t *)p, __builtin_convertvector(x == x ? upper_half(bits) : quiet, Bits));
    } else {
#if defined(__AVX512F__)
        store((uint16_t *)p, (Bits)_mm512_cvtps_ph((__m512)x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
#elif defined(__F16C__)
        store((uint16_t *)p, (Bits)_mm256_cvtps_ph((__m256)x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
#else
        for (int w = 0; w < W<float>; w++) write<float>(p + 2 * w, type, x[w]);
#endif
    }
}

// What keys and values are stored in, where it is not what is computed in.
struct Half {
    uint16_t bits;
};
struct Brain {  // bfloat16
    uint16_t bits;
};
template <class T> inline T widen(T x) { return x; }
inline float widen(Half x) { return widen_f16(x.bits); }
inline float widen(Brain x) { return widen_bf16(x.bits); }

// A vector of numbers that lie side by side.
inline Vec<float> wide(const float *p) { return load<Vec<float>>(p); }
inline Vec<double> wide(const double *p) { return load<Vec<double>>(p); }
inline Words wide(const uint32_t *p) { return load<Words>(p); }
inline Vec<float> wide(const Half *p) {
#if defined(__AVX512F__)
    return (Vec<float>)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p));
#elif defined(__F16C__)
    return (Vec<float>)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p));
#elif defined(__ARM_NEON)
    return (Vec<float>)vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16((const uint16_t *)p)));
#else
    Vec<float> x;
    for (int i = 0; i < W<float>; i++) x[i] = widen(p[i]);
    return x;
#endif
}
inline Vec<float> wide(const Brain *p) {
    typedef uint16_t Bits __attribute__((vector_size(VECTOR_BYTES / 2)));
    return (Vec<float>)(__builtin_convertvector(load<Bits>(p), Words) << 16);
}
// Which of the W bytes from p on are not 0.
inline auto set_bytes(const char *p, float) {
#if defined(__AVX512F__)
    return (Words)_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)p)) != Words{};
#elif defined(__AVX2__)
    return (Words)_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)p)) != Words{};
#else
    Words x;
    for (int i = 0; i < W<float>; i++) x[i] = (uint8_t)p[i];
    return x != Words{};
#endif
}
inline auto set_bytes(const char *p, double) {
    LongWords x;
    for (int i = 0; i < W<double>; i++) x[i] = (uint8_t)p[i];
    return x != LongWords{};
}
// Numbers that lie apart, as many to each part of 16 bytes of a vector of T: part n has those `offset` bytes
// from part[n].
template <class T, class X> [[gnu::always_inline]] inline Vec<T> wide_parts(const char *const *part, int64_t offset) {
    constexpr int P = 16 / sizeof(T), parts = W<T> / P;
    X numbers[W<T>];
#pragma GCC unroll 4
    for (int n = 0; n < parts; n++) std::memcpy(numbers + n * P, part[n] + offset, P * sizeof(X));
    return wide(numbers);
}
#if defined(__AVX2__) && !defined(__AVX512F__)
template <> inline Vec<float> wide_parts<float, float>(const char *const *part, int64_t offset) {
    const __m256 low = _mm256_castps128_ps256(_mm_loadu_ps((const float *)(part[0] + offset)));
    return (Vec<float>)_mm256_insertf128_ps(low, _mm_loadu_ps((const float *)(part[1] + offset)), 1);
}
inline __m128i halves(const void *a, const void *b) {  // 8 bytes of each
    int64_t low, high;
    std::memcpy(&low, a, 8), std::memcpy(&high, b, 8);
    return _mm_set_epi64x(high, low);
}
template <> inline Vec<float> wide_parts<float, Half>(const char *const *part, int64_t offset) {
    return (Vec<float>)_mm256_cvtph_ps(halves(part[0] + offset, part[1] + offset));
}
template <> inline Vec<float> wide_parts<float, Brain>(const char *const *part, int64_t offset) {
    return (Vec<float>)_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves(part[0] + offset, part[1] + offset)), 16);
}
#endif
#if defined(__AVX512F__)
// The even or the odd ones of pairs of numbers.
inline Vec<float> of_pairs(Vec<float> x, bool odd, Half) {
    const Words low = odd ? (Words)x >> 16 : (Words)x;
    return (Vec<float>)_mm512_cvtph_ps(_mm512_cvtepi32_epi16((__m512i)low));
}
inline Vec<float> of_pairs(Vec<float> x, bool odd, Brain) {
    return (Vec<float>)(odd ? (Words)x & 0xffff0000 : (Words)x << 16);
}
#endif
// The first n < W numbers of one, the others 0.
template <class T, class X> inline Vec<T> wide(const X *p, int64_t n) {
    Vec<T> x{};
    for (int64_t i = 0; i < n; i++) x[i] = widen(p[i]);
    return x;
}

template <class T, class X> void widen_row(const X *row, int64_t n, T *to) {
    int64_t i = 0;
    for (; i + W<T> <= n; i += W<T>) store(to + i, wide(row + i));
    for (; i < n; i++) to[i] = widen(row[i]);
}

[[gnu::always_inline]] inline bool dense(const Array &a) { return a.column == size_of(a.type); }

// n numbers of a row in T; a finite one stays finite.
template <class T> void read_row(const Array &a, const char *row, int64_t n, T *to) {
    if (dense(a) && a.type == own<T>())
        std::memcpy(to, row, n * sizeof(T));
    else if (sizeof(T) == 4 && dense(a) && a.type == Type::f16)
        widen_row((const Half *)row, n, (float *)to);
    else if (sizeof(T) == 4 && dense(a) && a.type == Type::bf16)
        widen_row((const Brain *)row, n, (float *)to);
    else
        for (int64_t d = 0; d < n; d++) to[d] = saturated<T>(read<double>(row + d * a.column, a.type));
}

}  // namespace
}  // namespace REGARD_ISA
