// The kernels, in the vectors of one instruction set: compiled once for each.
//
// Lanes are queries. A block is V vectors of queries, transposed once (D × lanes); scores are keys ×
// lanes, so that the softmax never works across lanes; a key's or value's element is broadcast from
// where it lies. One micro-kernel, "block += broadcast × vector", does both products.
//
// The canonical row: a row's bits depend on that row alone. Tiles of 128 keys and segments of 2048
// are counted from key 0. A score adds over depth in order; a tile's sums over its keys in order, from
// zero; tiles are carried into their segment, segments are merged in order, the sink is the last.
#include "scores.hpp"

namespace REGARD_ISA {
namespace {

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
    int64_t first = c.Nk, last = 0;  // segments that no row sees change nothing: they are left out
    for (int64_t i = 0; i < n; i++)
        first = least(first, blocks[i].first), last = most(last, blocks[i].last);
    for (int64_t s = first / SEGMENT; s * SEGMENT < last; s++) {
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
