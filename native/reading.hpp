// Numbers of every type read and written, and rows of them in the type that is computed in.
#pragma once

#include "call.hpp"
#include "vectors.hpp"

namespace REGARD_ISA {
namespace {

using namespace regard;

template <class T> constexpr int W = Vectors<T>::lanes;
constexpr double LOG2E = 1.4426950408889634074, LN2 = 0.69314718055994530942;
constexpr int GROUP = 4;  // blocks of queries that share a tile while it is in cache

#if VECTOR_BYTES == 64
constexpr int REACH = 8;  // keys of a register block
#else
constexpr int REACH = 6;
#endif

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

inline uint16_t narrow_bf16(float x) {
    uint32_t bits;
    std::memcpy(&bits, &x, 4);
    if ((bits & 0x7fffffff) > 0x7f800000) return (uint16_t)((bits >> 16) | 0x40);
    return (uint16_t)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
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
    const double limit = sizeof(T) == 4 ? 3.4028234663852886e38 : 1.7976931348623157e308;
    if (__builtin_isinf(x) || x != x) return (T)x;
    return (T)(x > limit ? limit : x < -limit ? -limit : x);
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

// As many numbers of a row as go into vectors; returns how many.
template <class T>
inline int64_t widen_row_f16([[maybe_unused]] const uint16_t *row, [[maybe_unused]] int64_t n,
                             [[maybe_unused]] T *to) {
    int64_t d = 0;
#if defined(__F16C__)
    if constexpr (sizeof(T) == 4)
        for (; d + 8 <= n; d += 8)
            _mm256_storeu_ps(to + d, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(row + d))));
#endif
    return d;
}

// Rows of keys or values in T with columns side by side: in place, or copied to `packed`.
template <class T> struct Rows {
    const T *data;
    int64_t stride;  // elements from row to row
};

template <class T> constexpr Type own() { return sizeof(T) == 4 ? Type::f32 : Type::f64; }

template <class T>
Rows<T> rows_of(const Array &a, const char *base, const int64_t *list, int64_t first, int64_t n,
                int64_t columns, T *packed) {
    if (!list && a.type == own<T>() && a.column == (int64_t)sizeof(T) && a.row % (int64_t)sizeof(T) == 0)
        return {(const T *)(base + first * a.row), a.row / (int64_t)sizeof(T)};
    for (int64_t j = 0; j < n; j++) {
        const char *row = base + (list ? list[j] : first + j) * a.row;
        T *to = packed + j * columns;
        const bool dense = a.column == size_of(a.type);
        int64_t d = 0;
        if (a.type == Type::f16 && dense) d = widen_row_f16((const uint16_t *)row, columns, to);
        if (a.type == Type::bf16 && dense)
            for (; d < columns; d++) to[d] = (T)widen_bf16(peek<uint16_t>(row + d * 2));
        for (; d < columns; d++) to[d] = read<T>(row + d * a.column, a.type);
    }
    return {packed, columns};
}

}  // namespace
}  // namespace REGARD_ISA
