// The kernels, in the vectors of one instruction set: compiled once for each.
//
// Lanes are queries. A block is V vectors of queries, transposed once (D × lanes); scores are keys ×
// lanes, so that the softmax never works across lanes; a key's or value's element is broadcast from
// where it lies. One micro-kernel, "block += broadcast × vector", does both products.
//
// The canonical row: a row's bits depend on that row alone. Tiles of 128 keys and segments of 2048
// are counted from key 0. A score adds over depth in order; a tile's sums over its keys in order, from
// zero; tiles are carried into their segment, segments are merged in order, the sink is the last.
#include <cmath>

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

// ------------------------------------------------------------------------ reading and writing

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

// ------------------------------------------------------------------------- the micro-kernel

// acc[r] = Σ over t of a[r·rs + t·ts] · b[t], each sum in the order of t, from zero.
template <class T, int V, int R>
[[gnu::always_inline]] inline void multiply(const T *a, int64_t rs, int64_t ts, const T *b, int64_t n,
                                            Vec<T> (&acc)[R][V]) {
    for (int r = 0; r < R; r++)
        for (int v = 0; v < V; v++) acc[r][v] = Vec<T>{};
    for (int64_t t = 0; t < n; t++) {
        Vec<T> x[V];
        for (int v = 0; v < V; v++) x[v] = load<Vec<T>>(b + (t * V + v) * W<T>);
#pragma GCC unroll 12
        for (int r = 0; r < R; r++) {
            const Vec<T> k = spread<Vec<T>>(a[r * rs + t * ts]);
#pragma GCC unroll 2
            for (int v = 0; v < V; v++) acc[r][v] = fma(k, x[v], acc[r][v]);
        }
    }
}

template <class T, int V, int R>
[[gnu::noinline]] void score_rows(const T *k, int64_t stride, const T *q, int64_t D, T *s) {
    Vec<T> acc[R][V];
    multiply<T, V, R>(k, stride, 1, q, D, acc);
    for (int r = 0; r < R; r++)
        for (int v = 0; v < V; v++) store(s + (r * V + v) * W<T>, acc[r][v]);
}

template <class T, int V, int R>
[[gnu::noinline]] void carry_columns(const T *x, int64_t stride, const T *p, int64_t n, const Vec<T> *a,
                                     T *o) {
    Vec<T> acc[R][V];
    multiply<T, V, R>(x, 1, stride, p, n, acc);
    for (int r = 0; r < R; r++)
        for (int v = 0; v < V; v++) {
            T *place = o + (r * V + v) * W<T>;
            store(place, fma(load<Vec<T>>(place), a[v], acc[r][v]));
        }
}

template <class T, int V, int R>
void scores_down(const T *k, int64_t stride, const T *q, int64_t D, T *s, int64_t n) {
    for (; n >= R; n -= R, k += R * stride, s += R * V * W<T>) score_rows<T, V, R>(k, stride, q, D, s);
    if constexpr (R > 1)
        if (n) scores_down<T, V, R / 2>(k, stride, q, D, s, n);
}

template <class T, int V, int R>
void carry_down(const T *x, int64_t stride, const T *p, int64_t n, const Vec<T> *a, T *o, int64_t Dv) {
    for (; Dv >= R; Dv -= R, x += R, o += R * V * W<T>) carry_columns<T, V, R>(x, stride, p, n, a, o);
    if constexpr (R > 1)
        if (Dv) carry_down<T, V, R / 2>(x, stride, p, n, a, o, Dv);
}

// -------------------------------------------------------------------------------- elementwise

// tanh, at most 2 units in the last place: by its series near 0, else by (1 - e)/(1 + e).
inline Vec<float> tanh_(Vec<float> x) {
    const Vec<float> a = x < 0.0f ? -x : x, z = x * x;
    Vec<float> p = spread<Vec<float>>(-0.00570498677f);
    for (float c : {0.020639087f, -0.053739715f, 0.133314422f, -0.3333328194f}) p = fma(p, z, spread<Vec<float>>(c));
    const Vec<float> near = fma(x * z, p, x);
    const Vec<float> e = exp2(a * spread<Vec<float>>(-2.8853900817779268f));
    const Vec<float> far = (1.0f - e) / (1.0f + e);
    return a < 0.625f ? near : (x < 0.0f ? -far : far);
}

inline Vec<double> tanh_(Vec<double> x) {
    for (int i = 0; i < W<double>; i++) x[i] = std::tanh(x[i]);
    return x;
}

// ------------------------------------------------------------------------- a block of queries

template <class T, int V> struct Block {
    static constexpr int L = V * W<T>;
    int64_t b, kv, n;                       // lanes in use; the others repeat lane 0 and are not kept
    int64_t head[L], index[L], lo[L], hi[L];  // of each lane: query head, query, interval
    int64_t first, last, late_lo, early_hi;   // tiles lie in [first, last), all see [late_lo, early_hi)
    T *q, *s, *o, *total;                     // D × L, TILE × L, Dv × L (a segment's), Dv × L
    Vec<T> m[V], l[V], M[V], S[V];            // maximum and sum: of the segment, of all segments
};

// How a call's scores become weights: in base 2 when nothing natural is added to them.
template <class T> struct Units {
    bool natural;
    T query, exponent;  // factor of the queries; of (score - maximum)

    explicit Units(const Call &c) : natural(c.bias || c.softcap != 0 || c.slopes) {
        query = natural ? (T)c.scale : (T)(c.scale * LOG2E);
        exponent = natural ? (T)LOG2E : (T)1;
    }
    Vec<T> power(Vec<T> difference) const { return exp2(natural ? difference * exponent : difference); }
};

template <class T, int V> int64_t block_bytes(const Call &c) {
    constexpr int64_t L = V * W<T>;
    return (c.D + TILE + 2 * c.Dv) * L * (int64_t)sizeof(T);
}

template <class T, int V>
void place_queries(const Call &c, Block<T, V> &k, const int64_t *head, const int64_t *index, int64_t n) {
    const Units<T> units(c);
    k.n = n;
    for (int i = 0; i < k.L; i++) {
        const int64_t lane = i < n ? i : 0;
        k.head[i] = head[lane];
        k.index[i] = index[lane];
        const char *row = c.at(c.query, k.b, k.head[i]) + k.index[i] * c.query.row;
        if (c.query.type == own<T>() && c.query.column == (int64_t)sizeof(T))
            for (int64_t d = 0; d < c.D; d++) k.q[d * k.L + i] = units.query * ((const T *)row)[d];
        else
            for (int64_t d = 0; d < c.D; d++)
                k.q[d * k.L + i] = units.query * read<T>(row + d * c.query.column, c.query.type);
        k.lo[i] = c.lo ? peek<int64_t>(c.at(c.lo, k.b, k.head[i]) + k.index[i] * c.lo.row) : 0;
        k.hi[i] = c.hi ? peek<int64_t>(c.at(c.hi, k.b, k.head[i]) + k.index[i] * c.hi.row) : c.Nk;
    }
    k.first = c.Nk, k.last = 0, k.late_lo = 0, k.early_hi = c.Nk;
    for (int i = 0; i < k.L; i++) {
        if (k.lo[i] < k.hi[i]) k.first = least(k.first, k.lo[i]), k.last = most(k.last, k.hi[i]);
        k.late_lo = most(k.late_lo, k.lo[i]), k.early_hi = least(k.early_hi, k.hi[i]);
    }
}

// --------------------------------------------------------- what is done to the scores of a tile

template <class T, int V> void bend(const Call &c, T *s, int64_t n) {
    const T cap = (T)c.softcap;
    for (int64_t i = 0; i < n * V; i++) {
        T *p = s + i * W<T>;
        store(p, cap * tanh_(load<Vec<T>>(p) / cap));
    }
}

template <class T, int V>
void add_bias(const Call &c, const Block<T, V> &k, T *s, const int64_t *list, int64_t j0, int64_t n) {
    for (int i = 0; i < k.L; i++) {
        const char *row = c.at(c.bias, k.b, k.head[i]) + k.index[i] * c.bias.row;
        for (int64_t j = 0; j < n; j++) {
            const char *p = row + (list ? list[j] : j0 + j) * c.bias.column;
            const T x = c.bias.type == own<T>() ? peek<T>(p) : saturated<T>(read<double>(p, c.bias.type));
            T &score = s[j * k.L + i];
            score = x == -infinity<T>() ? x : score + x;
        }
    }
}

template <class T, int V>
void add_alibi(const Call &c, const Block<T, V> &k, T *s, const int64_t *list, int64_t j0, int64_t n) {
    const int64_t start = peek<int64_t>(c.at(c.start, k.b, 0));
    for (int i = 0; i < k.L; i++) {
        const double slope = c.slopes[k.head[i]];
        for (int64_t j = 0; j < n; j++) {
            const int64_t distance = start + k.index[i] - (list ? list[j] : j0 + j);
            s[j * k.L + i] -= saturated<T>(slope * (double)(distance < 0 ? -distance : distance));
        }
    }
}

template <class T, int V>
void hide_by_mask(const Call &c, const Block<T, V> &k, T *s, const int64_t *list, int64_t j0, int64_t n) {
    for (int i = 0; i < k.L; i++) {
        const char *row = c.at(c.mask, k.b, k.head[i]) + k.index[i] * c.mask.row;
        for (int64_t j = 0; j < n; j++) {
            T &score = s[j * k.L + i];
            score = row[(list ? list[j] : j0 + j) * c.mask.column] ? score : -infinity<T>();
        }
    }
}

template <class T, int V> void hide_by_interval(const Block<T, V> &k, T *s, int64_t j0, int64_t n) {
    Vec<T> lo[V], hi[V];  // relative to the tile, small whole numbers
    for (int v = 0; v < V; v++)
        for (int i = 0; i < W<T>; i++) {
            lo[v][i] = (T)most<int64_t>(-1, least(k.lo[v * W<T> + i] - j0, n));
            hi[v][i] = (T)most<int64_t>(-1, least(k.hi[v * W<T> + i] - j0, n));
        }
    const Vec<T> hidden = spread<Vec<T>>(-infinity<T>());
    for (int64_t j = 0; j < n; j++)
        for (int v = 0; v < V; v++) {
            T *p = s + (j * V + v) * W<T>;
            const Vec<T> at = spread<Vec<T>>((T)j);
            store(p, (at >= lo[v]) & (at < hi[v]) ? load<Vec<T>>(p) : hidden);
        }
}

template <class T, int V>
void hide_listed(const Block<T, V> &k, T *s, const int64_t *list, int64_t n) {
    for (int64_t j = 0; j < n; j++)
        for (int i = 0; i < k.L; i++)
            if (list[j] < k.lo[i] || list[j] >= k.hi[i]) s[j * k.L + i] = -infinity<T>();
}

// Scores of n keys against the block, complete: -inf where a pair is hidden.
template <class T, int V>
void scores(const Call &c, const Block<T, V> &k, Rows<T> keys, const int64_t *list, int64_t j0, int64_t n) {
    scores_down<T, V, REACH * 2 / V>(keys.data, keys.stride, k.q, c.D, k.s, n);
    if (c.softcap != 0) bend<T, V>(c, k.s, n);
    if (c.bias) add_bias(c, k, k.s, list, j0, n);
    if (c.slopes) add_alibi(c, k, k.s, list, j0, n);
    if (c.mask) hide_by_mask(c, k, k.s, list, j0, n);
    if (list)
        hide_listed(k, k.s, list, n);
    else if (k.late_lo > j0 || k.early_hi < j0 + n)
        hide_by_interval(k, k.s, j0, n);
}

// -------------------------------------------------------------------------- the online softmax

template <class T> Vec<T> shift_of(Vec<T> m) { return m == -infinity<T>() ? Vec<T>{} : m; }

// Scores become exp(score - maximum); the sums are carried over. Where some value is not finite, a
// hidden pair becomes -0, which no exponential is.
template <class T, int V>
void exponentials(const Units<T> &units, Block<T, V> &k, int64_t n, bool finite, Vec<T> (&carry)[V]) {
    for (int v = 0; v < V; v++) {
        T *s = k.s + v * W<T>;
        Vec<T> top = k.m[v];
        for (int64_t j = 0; j < n; j++) {
            const Vec<T> x = load<Vec<T>>(s + j * k.L);
            top = x > top ? x : top;
        }
        const Vec<T> shift = shift_of<T>(top);
        carry[v] = units.power(k.m[v] - shift);
        Vec<T> sum{};
        for (int64_t j = 0; j < n; j++) {
            const Vec<T> x = load<Vec<T>>(s + j * k.L);
            Vec<T> p = units.power(x - shift);
            sum += p;
            if (!finite) p = x == -infinity<T>() ? -Vec<T>{} : p;
            store(s + j * k.L, p);
        }
        k.l[v] = fma(k.l[v], carry[v], sum);
        k.m[v] = top;
    }
}

// The same sums as carry_down, pair by pair: a value that is not finite counts where it is seen.
template <class T, int V>
void carry_seen(const Block<T, V> &k, Rows<T> values, int64_t n, const Vec<T> (&carry)[V], int64_t Dv) {
    for (int64_t d = 0; d < Dv; d++)
        for (int v = 0; v < V; v++) {
            Vec<T> acc{};
            for (int64_t j = 0; j < n; j++) {
                const T x = values.data[j * values.stride + d];
                const Vec<T> p = load<Vec<T>>(k.s + j * k.L + v * W<T>);
                const Vec<T> sum = fma(spread<Vec<T>>(x), p, acc);
                const bool ordinary = x - x == 0;
                const auto hidden = (p == (T)0) & (1 / p < (T)0);  // -0
                acc = ordinary ? sum : (hidden ? acc : sum);
            }
            T *place = k.o + d * k.L + v * W<T>;
            store(place, fma(load<Vec<T>>(place), carry[v], acc));
        }
}

template <class T> bool all_finite(Rows<T> x, int64_t n, int64_t columns) {
    auto finite = Vec<T>{} == Vec<T>{};
    bool rest = true;
    for (int64_t j = 0; j < n; j++) {
        const T *row = x.data + j * x.stride;
        int64_t d = 0;
        for (; d + W<T> <= columns; d += W<T>) {
            const Vec<T> y = load<Vec<T>>(row + d);
            finite &= y - y == Vec<T>{};
        }
        for (; d < columns; d++) rest &= row[d] - row[d] == 0;
    }
    for (int i = 0; i < W<T>; i++) rest &= finite[i] != 0;
    return rest;
}

// The same sums as carry_down for few queries: lanes run along the columns, so that each row of the
// values is read once, from end to end.
template <class T, int V, int R>
int64_t carry_along(const Block<T, V> &k, Rows<T> values, int64_t n, const Vec<T> (&carry)[V], int64_t d,
                    int64_t Dv) {
    for (; d + R * W<T> <= Dv; d += R * W<T>)
        for (int64_t i = 0; i < k.n; i++) {
            Vec<T> acc[R] = {};
            for (int64_t j = 0; j < n; j++) {
                const Vec<T> p = spread<Vec<T>>(k.s[j * k.L + i]);
#pragma GCC unroll 8
                for (int r = 0; r < R; r++)
                    acc[r] = fma(load<Vec<T>>(values.data + j * values.stride + d + r * W<T>), p, acc[r]);
            }
            const Vec<T> a = spread<Vec<T>>(carry[i / W<T>][i % W<T>]);
            for (int r = 0; r < R; r++) {
                T *o = k.o + (d + r * W<T>) * k.L + i;
                Vec<T> before;
                for (int w = 0; w < W<T>; w++) before[w] = o[w * k.L];
                const Vec<T> after = fma(before, a, acc[r]);
                for (int w = 0; w < W<T>; w++) o[w * k.L] = after[w];
            }
        }
    return d;
}

// Asks for rows that will be read soon: few queries are done with a tile before the next is here.
template <class T> void ask_for(const Array &a, const char *base, int64_t j0, int64_t n, int64_t columns) {
    if (a.column != size_of(a.type)) return;
    for (int64_t j = j0; j < j0 + n; j++)
        for (int64_t byte = 0; byte < columns * size_of(a.type); byte += 64)
            __builtin_prefetch(base + j * a.row + byte, 0, 2);
}

template <class T, int V> void begin_segment(const Call &c, Block<T, V> &k) {
    for (int v = 0; v < V; v++) k.m[v] = spread<Vec<T>>(-infinity<T>()), k.l[v] = Vec<T>{};
    std::memset(k.o, 0, c.Dv * k.L * sizeof(T));
}

template <class T, int V> void begin(const Call &c, Block<T, V> &k) {
    for (int v = 0; v < V; v++) k.M[v] = spread<Vec<T>>(-infinity<T>()), k.S[v] = Vec<T>{};
    std::memset(k.total, 0, c.Dv * k.L * sizeof(T));
}

// (M, S, total) and a segment's (m, l, o) become one.
template <class T, int V>
void merge_segment(const Units<T> &units, const Call &c, Block<T, V> &k, const Vec<T> *m, const Vec<T> *l,
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

template <class T, int V> void finish(const Call &c, Block<T, V> &k) {
    const Units<T> units(c);
    if (c.sinks) {
        Vec<T> sink[V], one[V];
        for (int i = 0; i < k.L; i++) {
            const double x = c.sinks[k.head[i]] * (units.natural ? 1 : LOG2E);
            sink[i / W<T>][i % W<T>] = saturated<T>(x);
            one[i / W<T>][i % W<T>] = c.sinks[k.head[i]] == -__builtin_inf() ? (T)0 : (T)1;
        }
        merge_segment<T, V>(units, c, k, sink, one, nullptr);
    }
    for (int64_t i = 0; i < k.n; i++) {
        const T m = k.M[i / W<T>][i % W<T>], sum = k.S[i / W<T>][i % W<T>], r = sum == 0 ? (T)0 : 1 / sum;
        char *row = (char *)c.at(c.output, k.b, k.head[i]) + k.index[i] * c.output.row;
        if (c.output.type == own<T>() && c.output.column == (int64_t)sizeof(T))
            for (int64_t d = 0; d < c.Dv; d++) ((T *)row)[d] = k.total[d * k.L + i] * r + 0;
        else
            for (int64_t d = 0; d < c.Dv; d++)
                write<T>(row + d * c.output.column, c.output.type, k.total[d * k.L + i] * r + 0);
        const int64_t at = (k.b * c.H + k.head[i]) * c.Nq + k.index[i];
        const double natural = (double)m * (units.natural ? 1 : LN2);
        ((T *)c.maximum)[at] = m;
        ((T *)c.reciprocal)[at] = r;
        ((T *)c.lse)[at] = sum == 0 ? -infinity<T>() : (T)(natural + std::log((double)sum));
    }
}

// -------------------------------------------------------------------------------------- items

template <class T, int V> struct Plan {
    static constexpr int L = V * W<T>;
    int64_t blocks, together, groups;

    explicit Plan(const Call &c) {
        blocks = (c.rows() + L - 1) / L;
        together = c.batch * c.Hkv * blocks >= 64 ? least<int64_t>(GROUP, blocks) : 1;
        groups = (blocks + together - 1) / (together ? together : 1);
    }
    int64_t items(const Call &c) const { return c.batch * c.Hkv * groups; }
};

template <class T, int V> int64_t scratch_bytes(const Call &c) {
    return GROUP * (block_bytes<T, V>(c) + (int64_t)sizeof(Block<T, V>) + 128) +
           TILE * (c.D + c.Dv) * (int64_t)sizeof(T) + 4096;
}

char *aligned(char *p) { return (char *)(((uintptr_t)p + 63) & ~(uintptr_t)63); }

// The blocks of an item, their queries in place; returns how many, and what scratch is left.
template <class T, int V>
int64_t open_item(const Call &c, int64_t item, Block<T, V> *&blocks, char *&scratch) {
    const Plan<T, V> plan(c);
    const int64_t group = plan.groups - 1 - item % plan.groups;  // the last queries see most: first
    const int64_t kv = item / plan.groups % c.Hkv, b = item / plan.groups / c.Hkv;
    const int64_t from = group * plan.together, to = least(plan.blocks, from + plan.together);
    blocks = (Block<T, V> *)(scratch = aligned(scratch));
    scratch = aligned(scratch + plan.together * sizeof(Block<T, V>));
    for (int64_t i = from; i < to; i++) {
        Block<T, V> &k = blocks[i - from];
        k.b = b, k.kv = kv;
        k.q = (T *)scratch;
        k.s = k.q + c.D * k.L, k.o = k.s + TILE * k.L, k.total = k.o + c.Dv * k.L;
        scratch = aligned(scratch + block_bytes<T, V>(c));
        int64_t head[Block<T, V>::L], index[Block<T, V>::L], n = 0;
        for (int64_t r = i * k.L; r < least(c.rows(), (i + 1) * k.L); r++, n++)
            head[n] = kv * c.group() + r / c.Nq, index[n] = r % c.Nq;
        place_queries(c, k, head, index, n);
    }
    return to - from;
}

template <class T, int V>
void through_tile(const Call &c, const Units<T> &units, Block<T, V> *blocks, int64_t n, int64_t j0,
                  int64_t keys, char *scratch) {
    T *packed = (T *)scratch;
    const char *all_keys = c.at(c.key, blocks->b, blocks->kv), *all_values = c.at(c.value, blocks->b, blocks->kv);
    const bool few = V == 1 && n == 1;
    if (few) ask_for<T>(c.value, all_values, j0, keys, c.Dv);
    const Rows<T> k = rows_of<T>(c.key, all_keys, nullptr, j0, keys, c.D, packed);
    if (few) {
        if (blocks->first >= j0 + keys || blocks->last <= j0) return;
        scores(c, *blocks, k, nullptr, j0, keys);
        ask_for<T>(c.key, all_keys, j0 + keys, least<int64_t>(TILE, c.Nk - j0 - keys), c.D);
    }
    const Rows<T> v = rows_of<T>(c.value, all_values, nullptr, j0, keys, c.Dv, packed + TILE * c.D);
    const bool finite = all_finite<T>(v, keys, c.Dv);
    for (int64_t i = 0; i < n; i++) {
        Block<T, V> &block = blocks[i];
        if (block.first >= j0 + keys || block.last <= j0) continue;
        Vec<T> carry[V];
        if (!few) scores(c, block, k, nullptr, j0, keys);
        exponentials(units, block, keys, finite, carry);
        if (!finite) {
            carry_seen(block, v, keys, carry, c.Dv);
            continue;
        }
        int64_t d = 0;
        if (few) d = carry_along<T, V, 8>(block, v, keys, carry, 0, c.Dv);
        if (few) d = carry_along<T, V, 1>(block, v, keys, carry, d, c.Dv);
        carry_down<T, V, REACH * 2 / V>(v.data + d, v.stride, block.s, keys, carry, block.o + d * block.L,
                                        c.Dv - d);
    }
}

template <class T, int V>
void run_segment(const Call &c, Block<T, V> *blocks, int64_t n, int64_t segment, char *scratch,
                 Watch &watch) {
    const Units<T> units(c);
    int64_t first = c.Nk, last = 0;
    for (int64_t i = 0; i < n; i++) {
        begin_segment(c, blocks[i]);
        first = least(first, blocks[i].first), last = most(last, blocks[i].last);
    }
    first = most(first / TILE * TILE, segment * SEGMENT);
    last = least(last, least(c.Nk, (segment + 1) * SEGMENT));
    for (int64_t j0 = first; j0 < last && !watch.stopped(); j0 += TILE)
        through_tile(c, units, blocks, n, j0, least<int64_t>(TILE, c.Nk - j0), scratch);
}

// A segment's sums of a block, as they lie in `partials`.
template <class T, int V> struct Partial {
    Vec<T> m[V], l[V];
};
template <class T, int V> int64_t block_partial(const Call &c) {
    return (int64_t)sizeof(Partial<T, V>) + (c.Dv * V * W<T> * (int64_t)sizeof(T) + 63) / 64 * 64;
}

template <class T, int V>
void run_item(const Call &c, int64_t item, int64_t segment, char *partials, char *scratch,
              Watch &watch) {
    Block<T, V> *blocks;
    const int64_t n = open_item<T, V>(c, item, blocks, scratch);
    if (partials) {
        run_segment(c, blocks, n, segment, scratch, watch);
        for (int64_t i = 0; i < n; i++, partials += block_partial<T, V>(c)) {
            Partial<T, V> p;
            for (int v = 0; v < V; v++) p.m[v] = blocks[i].m[v], p.l[v] = blocks[i].l[v];
            std::memcpy(partials, &p, sizeof p);
            std::memcpy(partials + sizeof p, blocks[i].o, c.Dv * blocks[i].L * sizeof(T));
        }
        return;
    }
    const Units<T> units(c);
    for (int64_t i = 0; i < n; i++) begin(c, blocks[i]);
    for (int64_t s = 0; s * SEGMENT < c.Nk; s++) {
        run_segment(c, blocks, n, s, scratch, watch);
        for (int64_t i = 0; i < n; i++)
            merge_segment(units, c, blocks[i], blocks[i].m, blocks[i].l, blocks[i].o);
    }
    for (int64_t i = 0; i < n; i++) finish(c, blocks[i]);
}

template <class T, int V>
void merge_item(const Call &c, int64_t item, int64_t segments, const char *partials, char *scratch) {
    Block<T, V> *blocks;
    const int64_t n = open_item<T, V>(c, item, blocks, scratch), size = block_partial<T, V>(c);
    const Units<T> units(c);
    for (int64_t i = 0; i < n; i++) {
        begin(c, blocks[i]);
        for (int64_t s = 0; s < segments; s++) {
            const char *from = partials + (s * Plan<T, V>(c).together + i) * size;
            Partial<T, V> p;
            std::memcpy(&p, from, sizeof p);
            std::memcpy(blocks[i].o, from + sizeof p, c.Dv * blocks[i].L * sizeof(T));
            merge_segment(units, c, blocks[i], p.m, p.l, blocks[i].o);
        }
        finish(c, blocks[i]);
    }
}

template <class T>
void weigh(const Call &c, int64_t b, int64_t head, const int64_t *rows, int64_t n, const int64_t *keys,
           int64_t m, T *out, char *scratch) {
    constexpr int V = 2, L = V * W<T>;
    const Units<T> units(c);
    Block<T, V> k;
    k.b = b, k.kv = head / c.group();
    k.q = (T *)aligned(scratch);
    k.s = k.q + c.D * L, k.o = k.s + TILE * L, k.total = k.o + c.Dv * L;
    T *packed = k.total + c.Dv * L;
    for (int64_t i = 0; i < n; i += L) {
        int64_t heads[L];
        const int64_t lanes = least<int64_t>(L, n - i);
        for (int64_t lane = 0; lane < lanes; lane++) heads[lane] = head;
        place_queries(c, k, heads, rows + i, lanes);
        for (int64_t j = 0; j < m; j += TILE) {
            const int64_t width = least<int64_t>(TILE, m - j);
            const Rows<T> x = rows_of<T>(c.key, c.at(c.key, b, k.kv), keys + j, 0, width, c.D, packed);
            scores(c, k, x, keys + j, 0, width);
            for (int64_t lane = 0; lane < lanes; lane++) {
                const int64_t at = (b * c.H + head) * c.Nq + rows[i + lane];
                const T maximum = ((const T *)c.maximum)[at], r = ((const T *)c.reciprocal)[at];
                const T shift = maximum == -infinity<T>() ? (T)0 : maximum;
                for (int64_t t = 0; t < width; t++) {
                    const T s = k.s[t * L + lane];
                    const T p = units.power(spread<Vec<T>>(s - shift))[0];
                    out[(i + lane) * m + j + t] = s == -infinity<T>() ? (T)0 : p * r;
                }
            }
        }
    }
}

// ------------------------------------------------------------------------- one table a set

// Calls f<T, V> for the call's type and width.
#define REGARD_PICK(c, narrow, f, ...)                                                         \
    (c.query.type == Type::f64 ? (narrow ? f<double, 1>(__VA_ARGS__) : f<double, 2>(__VA_ARGS__)) \
                               : (narrow ? f<float, 1>(__VA_ARGS__) : f<float, 2>(__VA_ARGS__)))

template <class T, int V> int64_t count_items(const Call &c) { return Plan<T, V>(c).items(c); }
template <class T, int V> int64_t partial_bytes(const Call &c) {
    return Plan<T, V>(c).together * block_partial<T, V>(c);
}

int64_t scratch(const Call &c) {
    const int64_t wide = REGARD_PICK(c, false, scratch_bytes, c);
    const int64_t narrow = REGARD_PICK(c, true, scratch_bytes, c);
    return wide > narrow ? wide : narrow;
}
int64_t items(const Call &c, bool narrow) { return REGARD_PICK(c, narrow, count_items, c); }
int64_t partial(const Call &c, bool narrow) { return REGARD_PICK(c, narrow, partial_bytes, c); }
void run(const Call &c, bool narrow, int64_t item, int64_t segment, char *partials, char *room,
         Watch &watch) {
    REGARD_PICK(c, narrow, run_item, c, item, segment, partials, room, watch);
}
void merge(const Call &c, bool narrow, int64_t item, int64_t segments, const char *partials, char *room) {
    REGARD_PICK(c, narrow, merge_item, c, item, segments, partials, room);
}
void weights(const Call &c, int64_t b, int64_t head, const int64_t *rows, int64_t n, const int64_t *keys,
             int64_t m, void *out, char *room) {
    if (c.query.type == Type::f64)
        weigh<double>(c, b, head, rows, n, keys, m, (double *)out, room);
    else
        weigh<float>(c, b, head, rows, n, keys, m, (float *)out, room);
}

template <class T> void power_of(T *x, int64_t n) {
    for (int64_t i = 0; i < n; i += W<T>) {
        T lanes[W<T>] = {};
        const int64_t m = least<int64_t>(W<T>, n - i);
        std::memcpy(lanes, x + i, m * sizeof(T));
        store(lanes, exp2(load<Vec<T>>(lanes)));
        std::memcpy(x + i, lanes, m * sizeof(T));
    }
}
void power(void *x, int64_t n, bool wide) {
    if (wide)
        power_of((double *)x, n);
    else
        power_of((float *)x, n);
}

}  // namespace

extern const regard::Kernels kernels;
const regard::Kernels kernels = {REGARD_NAME, VECTOR_BYTES, scratch, items,   partial,
                                 run,         merge,        weights, power};

}  // namespace REGARD_ISA
