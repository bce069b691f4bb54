// The steps of a model beside attention, as the kernels see them: raw pointers and sizes. No Python.
#pragma once

#include <cstdint>

namespace regard {

// How weights are held. Blocks are those of GGUF: 32 weights after a scale, and for q4_1 a least value.
enum class Held : int { f16, bf16, f32, q4_0, q4_1, q8_0 };

// y (rows, out) = x (rows, in) · weightᵀ + bias, all of float but the weight.
struct Product {
    const float *x = nullptr;
    const char *weight = nullptr;
    Held held = Held::f32;
    int64_t stride = 0;  // bytes from a row of the weight to the next
    const float *bias = nullptr;
    float *y = nullptr;
    int64_t rows = 0, out = 0, in = 0;
};

enum class Step : int { gelu, gelu_tanh, silu, silu_gate };

struct Norm {
    const float *x = nullptr, *residual = nullptr, *weight = nullptr, *bias = nullptr;
    float *y = nullptr;
    int64_t D = 0;
    float epsilon = 0;
    bool centred = false;  // layer norm takes the mean away, RMS norm does not
};

// What one instruction set offers. Work is cut into items that any thread may do.
struct Products {
    const char *name;
    int64_t (*items)(const Product &);
    int64_t (*scratch)(const Product &);  // bytes that a thread needs
    void (*multiply)(const Product &, int64_t item, char *scratch);
};

struct Steps {
    const char *name;
    // n numbers; `other` is the second factor of a gate. y may be x, or other.
    void (*step)(Step, const float *x, const float *other, float *y, int64_t n);
    void (*softmax)(const float *x, float *y, int64_t rows, int64_t n);
    void (*norm)(const Norm &, int64_t begin, int64_t end);  // of some rows
    // A row of D numbers turned, pair by pair: the numbers i and i + D/2, or 2i and 2i + 1.
    void (*rotate)(const float *x, const float *cosine, const float *sine, float *y, int64_t D, bool interleaved);
};

}  // namespace regard
