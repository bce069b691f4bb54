// Products with weights as they are held. Compiled once for each instruction set.
//
// Lanes run along depth. Each number of the output is one vector of sums, lane l those of the depths
// l, l + W, l + 2W … in order, each by one fused step; then the lanes are added in one fixed tree, then
// the bias. Narrow weights are widened exactly before. So the bits of a row depend on nothing but the
// row and the weights: not on the other rows, their number, or threads. Few rows read the weights once,
// at the speed of memory; many share a panel of them, widened and laid out as it is read.
#include "layers.hpp"
#include "reading.hpp"

namespace REGARD_ISA {
namespace {

using F = Vec<float>;
constexpr int L = W<float>;
constexpr int STEP = 32, VECTORS = STEP / L;  // depths that are read together
constexpr int ROWS = 4;                       // of a register block
constexpr int OUTS = VECTOR_BYTES == 64 ? 6 : 3;
constexpr int PANEL = 8 * OUTS;     // outputs that share a reading of x; a multiple of L
constexpr int TILES = 4;            // register blocks of a panel that all rows go through before the next
constexpr int DEPTH = 384;          // of those, which then stay in the first-level cache
constexpr int64_t CHUNK = 1 << 19;  // bytes of x that stay in the second-level cache
constexpr int PANELS = 4;           // that a task takes, one after the other
constexpr int64_t TOGETHER = 48;   // rows that share a panel
constexpr int64_t FEW = 4;          // rows up to which weights are widened in registers
constexpr int64_t PIECE = 1 << 17;  // bytes of weights that a task of few rows reads

static_assert(PANEL % L == 0 && PANEL % 8 == 0);

// ------------------------------------------------------------------------------- reading weights

struct Floats {
    static constexpr Held held = Held::f32;
    static constexpr int block = 4 * STEP;
    static void read(const char *p, F *to) {
        for (int v = 0; v < VECTORS; v++) to[v] = load<F>((const float *)p + v * L);
    }
};

template <class X> struct Narrow {
    static constexpr int block = 2 * STEP;
    static void read(const char *p, F *to) {
        for (int v = 0; v < VECTORS; v++) to[v] = wide((const X *)p + v * L);
    }
};

// L bytes, or L signed bytes, as numbers.
template <class B> inline F numbers(const B *p) {
#if defined(__AVX512F__)
    const __m128i b = _mm_loadu_si128((const __m128i *)p);
    return (F)_mm512_cvtepi32_ps(B(-1) < B(0) ? _mm512_cvtepi8_epi32(b) : _mm512_cvtepu8_epi32(b));
#elif defined(__AVX2__)
    const __m128i b = _mm_loadl_epi64((const __m128i *)p);
    return (F)_mm256_cvtepi32_ps(B(-1) < B(0) ? _mm256_cvtepi8_epi32(b) : _mm256_cvtepu8_epi32(b));
#else
    F x;
    for (int l = 0; l < L; l++) x[l] = (float)p[l];
    return x;
#endif
}

inline F half_at(const char *p) {
#if defined(__F16C__)
    return spread<F>(_cvtsh_ss(peek<uint16_t>(p)));
#else
    return spread<F>(widen_f16(peek<uint16_t>(p)));
#endif
}

inline void nibbles(const char *p, F *to) {
    typedef uint8_t Bytes __attribute__((vector_size(16)));
    Bytes b, parts[2];
    std::memcpy(&b, p, 16);
    parts[0] = b & 15, parts[1] = b >> 4;
    for (int v = 0; v < VECTORS; v++) to[v] = numbers((const uint8_t *)parts + v * L);
}

struct Q40 {
    static constexpr int block = 18;
    static void read(const char *p, F *to) {
        const F scale = half_at(p);
        nibbles(p + 2, to);
        for (int v = 0; v < VECTORS; v++) to[v] = (to[v] - 8.0f) * scale;
    }
};

struct Q41 {  // scale · number is exact: 11 bits times 4
    static constexpr int block = 20;
    static void read(const char *p, F *to) {
        const F scale = half_at(p), lowest = half_at(p + 2);
        nibbles(p + 4, to);
        for (int v = 0; v < VECTORS; v++) to[v] = fma(to[v], scale, lowest);
    }
};

struct Q80 {
    static constexpr int block = 34;
    static void read(const char *p, F *to) {
        const F scale = half_at(p);
        for (int v = 0; v < VECTORS; v++) to[v] = numbers((const int8_t *)p + 2 + v * L) * scale;
    }
};

// What is left of a row after whole steps: n < STEP numbers of an array, then zeros. Blocks leave none.
template <class Kind> void read_end(const char *p, int64_t n, F *to) {
    char whole[Kind::block] = {};
    std::memcpy(whole, p, n * (Kind::block / STEP));
    Kind::read(whole, to);
}

inline void read_end(const float *p, int64_t n, F *to) { read_end<Floats>((const char *)p, n, to); }

// ------------------------------------------------------------------------------------- sums

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

// A row's sums of up to PANEL outputs, folded, with the bias, to y.
void finish(const Product &p, F *sums, int64_t row, int64_t first, int64_t n) {
    float *y = p.y + row * p.out + first;
    for (int64_t i = 0; i < n; i += L) {
        F total = folded(sums + i);
        const int64_t m = least<int64_t>(L, n - i);
        if (m == L) {
            store(y + i, p.bias ? total + load<F>(p.bias + first + i) : total);
        } else {
            for (int64_t l = 0; l < m; l++) y[i + l] = p.bias ? total[l] + p.bias[first + i + l] : total[l];
        }
    }
}

// --------------------------------------------------------------------------- few rows: R of them

// Sums of R rows and O outputs over all depths, weights widened in registers.
template <class Kind, int R, int O>
[[gnu::always_inline]] inline void few_block(const Product &p, int64_t row, int64_t first, F *sums) {
    const float *x = p.x + row * p.in;
    const char *w = p.weight + first * p.stride;
    F a[R][O] = {};
    const int64_t steps = p.in / STEP, rest = p.in % STEP;
    for (int64_t s = 0; s < steps; s++) {
#pragma GCC unroll 8
        for (int o = 0; o < O; o++) {
            F wide[VECTORS];
            Kind::read(w + o * p.stride + s * Kind::block, wide);
#pragma GCC unroll 4
            for (int r = 0; r < R; r++)
#pragma GCC unroll 8
                for (int v = 0; v < VECTORS; v++)
                    a[r][o] = fma(wide[v], load<F>(x + r * p.in + s * STEP + v * L), a[r][o]);
        }
    }
    if (rest) {
        for (int o = 0; o < O; o++) {
            F wide[VECTORS], narrow[VECTORS];
            read_end<Kind>(w + o * p.stride + steps * Kind::block, rest, wide);
            for (int r = 0; r < R; r++) {
                read_end(x + r * p.in + steps * STEP, rest, narrow);
                for (int v = 0; v * L < rest; v++) a[r][o] = fma(wide[v], narrow[v], a[r][o]);
            }
        }
    }
    for (int r = 0; r < R; r++)
        for (int o = 0; o < O; o++) sums[r * PANEL + o] = a[r][o];
}

template <class Kind, int R> void few_panel(const Product &p, int64_t row, int64_t first, int64_t n) {
    constexpr int O = R == 1 ? 8 : R < 4 ? 4 : 3;
    F sums[R * PANEL];
    int64_t o = 0;
    for (; o + O <= n; o += O) few_block<Kind, R, O>(p, row, first + o, sums + o);
    for (; o < n; o++) few_block<Kind, R, 1>(p, row, first + o, sums + o);
    for (int r = 0; r < R; r++) {
        for (int64_t i = n; i % L; i++) sums[r * PANEL + i] = F{};
        finish(p, sums + r * PANEL, row + r, first, n);
    }
}

template <class Kind> void few(const Product &p, int64_t first, int64_t n) {
    switch (p.rows) {
        case 1: return few_panel<Kind, 1>(p, 0, first, n);
        case 2: return few_panel<Kind, 2>(p, 0, first, n);
        case 3: return few_panel<Kind, 3>(p, 0, first, n);
        default: return few_panel<Kind, 4>(p, 0, first, n);
    }
}

// ------------------------------------------------------------------------------------ many rows

inline int64_t whole(int64_t depth) { return (depth + L - 1) / L; }  // vectors of a row

// A panel's weights as they are read: OUTS by OUTS outputs, vector by vector, those that are not there 0.
template <class Kind> void lay_out(const Product &p, int64_t first, int64_t n, F *panel) {
    const int64_t vectors = whole(p.in);
    for (int64_t o = 0; o < PANEL; o++) {
        F *to = panel + o / OUTS * OUTS * vectors + o % OUTS;
        if (o >= n) {
            for (int64_t v = 0; v < vectors; v++) to[v * OUTS] = F{};
            continue;
        }
        const char *row = p.weight + (first + o) * p.stride;
        for (int64_t s = 0; s * STEP < p.in; s++) {
            F wide[VECTORS];
            const int64_t left = p.in - s * STEP;
            if (left < STEP)
                read_end<Kind>(row + s * Kind::block, left, wide);
            else
                Kind::read(row + s * Kind::block, wide);
            for (int64_t v = 0; v < VECTORS && s * VECTORS + v < vectors; v++)
                to[(s * VECTORS + v) * OUTS] = wide[v];
        }
    }
}

// Sums of R rows and OUTS outputs over vectors begin … end of the depth, carried on.
template <int R>
[[gnu::always_inline]] inline void carry_block(const float *const *x, const F *w, int64_t n, F *sums) {
    F a[R][OUTS];
    for (int r = 0; r < R; r++)
        for (int o = 0; o < OUTS; o++) a[r][o] = sums[r * PANEL + o];
    for (int64_t v = 0; v < n; v++) {
        F b[OUTS];
#pragma GCC unroll 8
        for (int o = 0; o < OUTS; o++) b[o] = w[v * OUTS + o];
#pragma GCC unroll 4
        for (int r = 0; r < R; r++) {
            const F c = load<F>(x[r] + v * L);
#pragma GCC unroll 8
            for (int o = 0; o < OUTS; o++) a[r][o] = fma(b[o], c, a[r][o]);
        }
    }
    for (int r = 0; r < R; r++)
        for (int o = 0; o < OUTS; o++) sums[r * PANEL + o] = a[r][o];
}

template <int R>
[[gnu::noinline]] void carry(const Product &p, int64_t row, int64_t begin, int64_t end, int tile, const F *panel,
                             F *sums) {
    const int64_t vectors = whole(p.in), full = p.in / L;
    const float *x[R];
    for (int r = 0; r < R; r++) x[r] = p.x + (row + r) * p.in + begin * L;
    F ends[R];
    const float *last[R];
    for (int r = 0; r < R; r++) {
        last[r] = (const float *)&ends[r];
        if (end > full) {
            float lanes[L] = {};
            std::memcpy(lanes, p.x + (row + r) * p.in + full * L, (p.in - full * L) * sizeof(float));
            ends[r] = load<F>(lanes);
        }
    }
    for (int t = tile; t < tile + TILES; t++) {
        const F *w = panel + t * OUTS * vectors + begin * OUTS;
        carry_block<R>(x, w, least(end, full) - begin, sums + t * OUTS);
        if (end > full) carry_block<R>(last, w + (full - begin) * OUTS, 1, sums + t * OUTS);
    }
}

void many(const Product &p, int64_t row, int64_t rows, int64_t first, int64_t n, const F *panel, F *sums) {
    std::memset((void *)sums, 0, rows * PANEL * sizeof(F));
    const int64_t vectors = whole(p.in);
    for (int64_t begin = 0; begin < vectors; begin += DEPTH / L) {
        const int64_t end = least<int64_t>(vectors, begin + DEPTH / L);
        for (int t = 0; t < PANEL / OUTS; t += TILES) {
            int64_t r = 0;
            for (; r + ROWS <= rows; r += ROWS) carry<ROWS>(p, row + r, begin, end, t, panel, sums + r * PANEL);
            for (; r < rows; r++) carry<1>(p, row + r, begin, end, t, panel, sums + r * PANEL);
        }
    }
    for (int64_t r = 0; r < rows; r++) finish(p, sums + r * PANEL, row + r, first, n);
}

// --------------------------------------------------------------------------------------- items

// Outputs of an item: some panels, or for few rows as many as make it worth a task.
int64_t span(const Product &p) {
    if (p.rows > FEW) return PANELS * PANEL;
    const int64_t panels = PIECE / (PANEL * (p.stride > 0 ? p.stride : 1));
    return PANEL * (panels > 1 ? panels : 1);
}

// Rows of an item.
int64_t chunk(const Product &p) {
    if (p.rows <= FEW) return p.rows;
    const int64_t parts = CHUNK / (TOGETHER * (p.in > 0 ? p.in : 1) * (int64_t)sizeof(float));
    return TOGETHER * (parts > 1 ? parts : 1);
}

int64_t pieces(int64_t n, int64_t size) { return (n + size - 1) / size; }

int64_t items(const Product &p) { return pieces(p.out, span(p)) * pieces(p.rows, chunk(p)); }

int64_t scratch(const Product &p) {
    if (p.rows <= FEW) return 0;
    return 64 + (whole(p.in) + least(p.rows, TOGETHER)) * PANEL * (int64_t)sizeof(F);
}

template <class Kind> void multiply_as(const Product &p, int64_t item, char *room) {
    const int64_t spans = pieces(p.out, span(p));
    const int64_t begin = item % spans * span(p), end = least(p.out, begin + span(p));
    const int64_t top = item / spans * chunk(p), bottom = least(p.rows, top + chunk(p));
    if (p.rows <= FEW) {
        for (int64_t o = begin; o < end; o += PANEL) few<Kind>(p, o, least<int64_t>(PANEL, end - o));
        return;
    }
    F *panel = (F *)(((uintptr_t)room + 63) & ~(uintptr_t)63);
    F *sums = panel + whole(p.in) * PANEL;
    for (int64_t o = begin; o < end; o += PANEL) {
        const int64_t n = least<int64_t>(PANEL, end - o);
        lay_out<Kind>(p, o, n, panel);
        for (int64_t r = top; r < bottom; r += TOGETHER)
            many(p, r, least(TOGETHER, bottom - r), o, n, panel, sums);
    }
}

void multiply(const Product &p, int64_t item, char *room) {
    switch (p.held) {
        case Held::f16: return multiply_as<Narrow<Half>>(p, item, room);
        case Held::bf16: return multiply_as<Narrow<Brain>>(p, item, room);
        case Held::f32: return multiply_as<Floats>(p, item, room);
        case Held::q4_0: return multiply_as<Q40>(p, item, room);
        case Held::q4_1: return multiply_as<Q41>(p, item, room);
        case Held::q8_0: return multiply_as<Q80>(p, item, room);
    }
}

}  // namespace

extern const regard::Products products;
const regard::Products products = {REGARD_NAME, items, scratch, multiply};

}  // namespace REGARD_ISA
