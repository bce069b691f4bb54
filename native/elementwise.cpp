// Activations, softmax and norms: one pass over memory each. Compiled once for each instruction set.
#include "layers.hpp"
#include "reading.hpp"

namespace REGARD_ISA {
namespace {

using F = Vec<float>;
constexpr int L = W<float>;

inline F most(F a, F b) { return (b > a) ? b : a; }

// e^t for t ≤ 0, to a unit or two in the last place; what the product t·log2(e) lost is added back.
inline F exponential(F t) {
    t = (t < -200.0f) ? spread<F>(-200.0f) : t;  // infinities too; a NaN stays
    const F high = spread<F>(1.44269502f), low = spread<F>(1.92596299e-8f);
    const F y = t * high;
    const F lost = fma(t, low, fma(t, high, -y));
    const F p = exp2(y);
    return fma(p * lost, spread<F>(0.693147182f), p);
}

// 1 / (1 + e^-x), small ones with all their digits.
inline F logistic(F x) {
    const F e = exponential((x < 0.0f) ? x : -x);
    return ((x < 0.0f) ? e : spread<F>(1.0f)) / (1.0f + e);
}

// x · Φ(x) as max(x, 0) less a · (1 - Φ(a)), a = |x|, by the polynomial that the NumPy form explains.
inline F gelu(F x) {
    F a = (x < 0.0f) ? -x : x;
    a = (a > 14.5f) ? spread<F>(14.5f) : a;
    const F t = 1.0f / fma(a, spread<F>(0.35f), spread<F>(1.0f));
    static const float c[] = {0.144030919f,   -0.255839003f, 0.159319694f, -0.0232123521f,
                              0.105552501f, 0.119821288f,  0.139863515f, 0.139621307f};
    F tail = spread<F>(-0.0291578857f);
    for (float k : c) tail = fma(tail, t, spread<F>(k));
    const F square = a * a;
    const F lost = fma(a, a, -square) * -0.5f;  // small a² have all their digits, large ones need them
    F e = exponential(square * -0.5f);
    e = fma(e, lost, e);
    const F positive = (x > 0.0f) ? x : F{};
    return fma(-(tail * t) * a, e, positive);
}

inline F gelu_tanh(F x) {
    const F u = x * fma(x * x, spread<F>(0.071354816f), spread<F>(1.59576912f));  // twice tanh's
    const F y = x * logistic(u);
    return (x < -50.0f) ? F{} : y;  // -inf · 0
}

inline F silu(F x) { return x * logistic(x); }

template <class G> void each(const float *x, const float *other, float *y, int64_t n, const G &g) {
    int64_t i = 0;
    for (; i + L <= n; i += L) store(y + i, g(load<F>(x + i), other ? load<F>(other + i) : F{}));
    if (i < n) {
        const F last = g(wide<float>(x + i, n - i), other ? wide<float>(other + i, n - i) : F{});
        for (int64_t l = 0; i + l < n; l++) y[i + l] = last[l];
    }
}

void step(Step which, const float *x, const float *other, float *y, int64_t n) {
    switch (which) {
        case Step::gelu: return each(x, nullptr, y, n, [](F a, F) { return gelu(a); });
        case Step::gelu_tanh: return each(x, nullptr, y, n, [](F a, F) { return gelu_tanh(a); });
        case Step::silu: return each(x, nullptr, y, n, [](F a, F) { return silu(a); });
        case Step::silu_gate: return each(x, other, y, n, [](F a, F b) { return silu(a) * b; });
    }
}

inline float sum(F v) {  // in one fixed tree
    for (int h = L / 2; h > 0; h /= 2)
        for (int l = 0; l < h; l++) v[l] += v[l + h];
    return v[0];
}

void softmax_row(const float *x, float *y, int64_t n) {
    float greatest = x[0];
    int64_t i = 0;
    if (n >= L) {
        F high = load<F>(x);
        for (i = L; i + L <= n; i += L) high = most(high, load<F>(x + i));
        for (int l = 0; l < L; l++) greatest = high[l] > greatest ? high[l] : greatest;
    }
    for (; i < n; i++) greatest = x[i] > greatest ? x[i] : greatest;
    const F shift = spread<F>(greatest);
    F total{};
    for (i = 0; i + L <= n; i += L) {
        const F e = exponential(load<F>(x + i) - shift);
        total += e;
        store(y + i, e);
    }
    float end = 0;
    if (i < n) {
        const F e = exponential(wide<float>(x + i, n - i) - shift);
        for (int64_t l = 0; i + l < n; l++) end += y[i + l] = e[l];
    }
    const float all = sum(total) + end;
    for (i = 0; i + L <= n; i += L) store(y + i, load<F>(y + i) / all);
    for (; i < n; i++) y[i] /= all;
}

void softmax(const float *x, float *y, int64_t rows, int64_t n) {
    for (int64_t r = 0; r < rows && n > 0; r++) softmax_row(x + r * n, y + r * n, n);
}

// Sum over a row of g(x[i]), four vectors at a time.
template <class G> inline float total(const float *x, int64_t n, const G &g) {
    F a[4] = {};
    int64_t i = 0;
    for (; i + 4 * L <= n; i += 4 * L)
        for (int k = 0; k < 4; k++) a[k] = g(load<F>(x + i + k * L), a[k]);
    for (; i + L <= n; i += L) a[0] = g(load<F>(x + i), a[0]);
    float end = 0;
    for (; i < n; i++) end = g(spread<F>(x[i]), spread<F>(end))[0];
    return sum((a[0] + a[1]) + (a[2] + a[3])) + end;
}

void norm_row(const Norm &c, int64_t row) {
    const int64_t D = c.D;
    const float *x = c.x + row * D;
    float *y = c.y + row * D;
    if (c.residual) {
        const float *r = c.residual + row * D;
        for (int64_t i = 0; i < D; i++) y[i] = x[i] + r[i];
        x = y;
    }
    const float mean = c.centred ? total(x, D, [](F v, F s) { return v + s; }) / (float)D : 0.0f;
    const float squares = total(x, D, [mean](F v, F s) { return fma(v - mean, v - mean, s); });
    const float scale = 1.0f / __builtin_sqrtf(squares / (float)D + c.epsilon);
    for (int64_t i = 0; i < D; i++) {
        const float z = (x[i] - mean) * scale * c.weight[i];
        y[i] = c.bias ? z + c.bias[i] : z;
    }
}

void norm(const Norm &c, int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; row++) norm_row(c, row);
}

void rotate(const float *x, const float *cosine, const float *sine, float *y, int64_t D, bool interleaved) {
    const int64_t half = D / 2;
    if (interleaved) {
        for (int64_t i = 0; i < half; i++) {
            const float a = x[2 * i], b = x[2 * i + 1];
            y[2 * i] = a * cosine[i] - b * sine[i];
            y[2 * i + 1] = b * cosine[i] + a * sine[i];
        }
    } else {
        for (int64_t i = 0; i < half; i++) {
            const float a = x[i], b = x[half + i];
            y[i] = a * cosine[i] - b * sine[i];
            y[half + i] = b * cosine[i] + a * sine[i];
        }
    }
}

}  // namespace

extern const regard::Steps steps;
const regard::Steps steps = {REGARD_NAME, step, softmax, norm, rotate};

}  // namespace REGARD_ISA
