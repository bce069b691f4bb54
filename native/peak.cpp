// What a processor does at most: multiply-adds that wait for nothing, and bytes read in order. The
// benchmarks hold the kernels against these. Compiled once for each instruction set.
#include <cstdint>

#include "vectors.hpp"

namespace REGARD_ISA {
namespace {

constexpr int CHAINS = 10;  // enough that no multiply-add waits for the one before it

template <class T> double multiply_adds_of(int64_t steps) {
    using V = Vec<T>;
    const V factor = spread<V>(T(0.5)), term = spread<V>(T(1));
    V sums[CHAINS];
    for (int i = 0; i < CHAINS; i++) sums[i] = spread<V>(T(i));
    for (int64_t step = 0; step < steps; step++)
#pragma GCC unroll 10
        for (int i = 0; i < CHAINS; i++) sums[i] = fma(sums[i], factor, term);
    double total = 0;
    for (V &sum : sums) total += sum[0];
    return total;
}

}  // namespace

// Runs `steps` steps; returns how many operations they were. `kept` is what they came to.
int64_t multiply_adds(int64_t steps, bool wide, double *kept) {
    *kept = wide ? multiply_adds_of<double>(steps) : multiply_adds_of<float>(steps);
    return 2 * CHAINS * steps * (VECTOR_BYTES / (wide ? 8 : 4));
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
