// What a processor does at most: multiply-adds that wait for nothing, and bytes read in order. The
// benchmarks hold the kernels against these. Compiled once for each instruction set; in that of pairs the
// multiply-adds are dot products of bfloat16.
#include <cstdint>

#include "vectors.hpp"

namespace REGARD_ISA {
namespace {

// So many that no multiply-add waits for the one before it, and that all are in registers.
constexpr int CHAINS = VECTOR_BYTES == 64 ? 16 : 10;

// Adds the product of what is in a and b, again and again.
template <class T, class F> double multiply_adds_of(int64_t steps, F a, F b) {
    Vec<T> sums[CHAINS];  // no two alike, or one would be worked out for both
    for (int i = 0; i < CHAINS; i++) sums[i] = spread<Vec<T>>(T(i));
    for (int64_t step = 0; step < steps; step++)
#pragma GCC unroll 16
        for (int i = 0; i < CHAINS; i++) sums[i] = fma(a, b, sums[i]);
    double total = 0;
    for (Vec<T> &sum : sums) total += sum[0];
    return total;
}

}  // namespace

// Runs `steps` steps; returns how many operations they were. `kept` is what they came to.
int64_t multiply_adds(int64_t steps, bool wide, double *kept) {
    const int64_t lanes = CHAINS * steps * (VECTOR_BYTES / (wide ? 8 : 4));
#if defined(REGARD_PAIRS)
    *kept = multiply_adds_of<float>(steps, spread<Words>(0x3f003f00u), spread<Words>(0x3e803e80u));
    return 4 * lanes;
#else
    *kept = wide ? multiply_adds_of<double>(steps, spread<Vec<double>>(0.5), spread<Vec<double>>(0.25))
                 : multiply_adds_of<float>(steps, spread<Vec<float>>(0.5f), spread<Vec<float>>(0.25f));
    return 2 * lanes;
#endif
}

// Reads whole blocks of vectors; what is left over at the end is none of its business.
uint32_t read(const char *bytes, int64_t n) {
    constexpr int WIDE = 8;
    Words sums[WIDE] = {};
    for (int64_t i = 0; i + WIDE * VECTOR_BYTES <= n; i += WIDE * VECTOR_BYTES)
        for (int k = 0; k < WIDE; k++) sums[k] ^= load<Words>(bytes + i + k * VECTOR_BYTES);
    uint32_t all = 0;
    for (Words &sum : sums) all ^= sum[0];
    return all;
}

}  // namespace REGARD_ISA
