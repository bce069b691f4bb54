// The kernels, in the vectors of one instruction set: compiled once for each.
//
// Lanes are queries. A block is two vectors of queries, transposed once (D × lanes); scores are keys ×
// lanes, so that the softmax never works across lanes; a key's or value's element is broadcast from
// where it lies. One micro-kernel, "block += broadcast × vector", does both products.
//
// The canonical row: a row's bits depend on that row alone. Tiles of 128 keys and segments of 2048
// are counted from key 0. A score adds over depth in order; a tile's sums over its keys in order, from
// zero; tiles are carried into their segment, segments are merged in order, the sink is the last. A
// hidden pair adds exactly nothing, so keys that none of a block sees are left out.
#include "few.hpp"
#include "looking.hpp"

namespace REGARD_ISA {
namespace {

// Blocks of queries share a tile while it is in cache: so many, if they stay in the second-level cache and
// enough groups are left for the threads.
constexpr int64_t GROUP = 16;
constexpr int64_t GROUP_BYTES = 1 << 19;
constexpr int64_t GROUPS = 32;

// -------------------------------------------------------------------------------------- items

template <class T> struct Plan {
    static constexpr int L = Block<T>::L;
    int64_t blocks, together, groups;

    explicit Plan(const Call &c) {
        blocks = (c.rows() + L - 1) / L;
        together = 1, groups = blocks;
        const int64_t at_most = least(least(GROUP, blocks), c.batch * c.Hkv * blocks / GROUPS);
        if (at_most < 2) return;
        together = most<int64_t>(1, least(at_most, GROUP_BYTES / block_bytes<T>(c)));
        groups = (blocks + together - 1) / together;
    }
    int64_t items(const Call &c) const { return c.batch * c.Hkv * groups; }
};

template <class T> int64_t scratch_bytes(const Call &c) {
    return Plan<T>(c).together * (block_bytes<T>(c) + (int64_t)sizeof(Block<T>) + 128) + Strip<T>::bytes(c) +
           TILE * (c.D + c.Dv) * (int64_t)sizeof(T) + 4096;
}

char *aligned(char *p) { return (char *)(((uintptr_t)p + 63) & ~(uintptr_t)63); }

// The blocks of an item, their queries in place; returns how many, and what scratch is left.
template <class T> int64_t open_item(const Call &c, int64_t item, Block<T> *&blocks, char *&scratch) {
    const Plan<T> plan(c);
    const int64_t group = plan.groups - 1 - item % plan.groups;  // the last queries see most: first
    const int64_t kv = item / plan.groups % c.Hkv, b = item / plan.groups / c.Hkv;
    const int64_t from = group * plan.together, to = least(plan.blocks, from + plan.together);
    blocks = (Block<T> *)(scratch = aligned(scratch));
    scratch = aligned(scratch + plan.together * sizeof(Block<T>));
    for (int64_t i = from; i < to; i++) {
        Block<T> &k = blocks[i - from];
        k.b = b, k.kv = kv;
        scratch = aligned(lay_out(c, k, scratch));
        const int64_t first = i * k.L, n = least<int64_t>(k.L, c.rows() - first);
        for (int64_t lane = 0, next; lane < n; lane = next) {  // head by head
            const int64_t h = kv * c.group() + (first + lane) / c.Nq, q = (first + lane) % c.Nq;
            next = least(n, lane + c.Nq - q);
            for (int64_t l = lane; l < next; l++) k.head[l] = h, k.index[l] = q + l - lane;
        }
        place_queries(c, k, n);
    }
    return to - from;
}

// The keys that some lane of the blocks sees: [first, last).
template <class T> void seen_by(const Call &c, const Block<T> *blocks, int64_t n, int64_t &first, int64_t &last) {
    first = c.Nk, last = 0;
    for (int64_t i = 0; i < n; i++) first = least(first, blocks[i].first), last = most(last, blocks[i].last);
}

template <class T>
void through_tile(const Call &c, const Units<T> &units, Block<T> *blocks, int64_t n, Keys tile, bool care,
                  Factor<T> *packed) {
    const char *all_keys = c.at(c.key, blocks->b, blocks->kv), *all_values = c.at(c.value, blocks->b, blocks->kv);
    const Rows<T> x = key_rows<T>(c.key, all_keys, nullptr, tile.j0, tile.n, c.D, packed);
    const Rows<T> y = value_rows<T>(c.value, all_values, tile.j0, tile.n, c.Dv, packed + TILE * c.D);
    for (int64_t i = 0; i < n; i++) {
        Block<T> &k = blocks[i];
        const int64_t from = most(tile.j0, k.first / EACH * EACH), skip = from - tile.j0;
        const Keys keys{from, least(tile.j0 + tile.n, factors_of(k.last) * EACH) - from};
        if (keys.n <= 0 || !scores(c, k, {x.data + skip * x.stride, x.stride}, keys)) continue;
        Vec<T> carry[V];
        exponentials(units, k, keys.n, care, carry);
        const Rows<T> values{y.data + skip / EACH * y.stride, y.stride};
        if (care)
            carry_seen(k, values, keys.n, carry, c.Dv);
        else
            carry_all(k, values, keys, carry, c.Dv);
        k.fresh = false;
    }
}

// A segment's sums of each block: (m, l, o). If one is not finite some value may be, of a pair that is
// hidden: then once more, with care. Whether all are finite.
template <class T>
bool run_segment(const Call &c, Block<T> *blocks, int64_t n, int64_t segment, char *scratch, Watch &watch) {
    const Units<T> units(c);
    int64_t first, last;
    seen_by(c, blocks, n, first, last);
    first = most(first, segment * SEGMENT);
    last = least(last, least(c.Nk, (segment + 1) * SEGMENT));
    bool finite = false;
    for (bool care : {false, true}) {
        if (finite) break;
        for (int64_t i = 0; i < n; i++) begin_segment(blocks[i]);
        if (are_few<T>(c) && !care)
            settle_segment(c, *blocks), few_through_segment(c, units, *blocks, first, last, scratch, watch);
        else
            for (int64_t j0 = first / TILE * TILE; j0 < last && !watch.stopped(); j0 += TILE)
                through_tile(c, units, blocks, n, {j0, least<int64_t>(TILE, c.Nk - j0)}, care, (Factor<T> *)scratch);
        finite = true;
        for (int64_t i = 0; i < n; i++) {
            settle_segment(c, blocks[i]);
            finite &= all_finite(blocks[i].o, c.Dv * blocks[i].L);
        }
    }
    return finite;
}

// A segment's sums of a block, as they lie in `partials`.
template <class T> struct Partial {
    Vec<T> m[V], l[V];
};
template <class T> int64_t block_partial(const Call &c) {
    return (int64_t)sizeof(Partial<T>) + (c.Dv * V * W<T> * (int64_t)sizeof(T) + 63) / 64 * 64;
}

template <class T>
void run_item(const Call &c, int64_t item, int64_t segment, char *partials, char *scratch,
              Watch &watch) {
    Block<T> *blocks;
    const int64_t n = open_item<T>(c, item, blocks, scratch);
    if (partials) {
        run_segment(c, blocks, n, segment, scratch, watch);
        for (int64_t i = 0; i < n; i++, partials += block_partial<T>(c)) {
            Partial<T> p;
            for (int v = 0; v < V; v++) p.m[v] = blocks[i].m[v], p.l[v] = blocks[i].l[v];
            std::memcpy(partials, &p, sizeof p);
            std::memcpy(partials + sizeof p, blocks[i].o, c.Dv * blocks[i].L * sizeof(T));
        }
        return;
    }
    const Units<T> units(c);
    int64_t first, last;  // segments that no row sees change nothing: they are left out
    seen_by(c, blocks, n, first, last);
    for (int64_t i = 0; i < n && first >= last; i++) begin(c, blocks[i]);
    bool finite = false;
    for (int64_t s = first / SEGMENT; s * SEGMENT < last; s++) {
        finite = run_segment(c, blocks, n, s, scratch, watch) && s == first / SEGMENT;
        for (int64_t i = 0; i < n; i++)
            if (s == first / SEGMENT)
                adopt_segment(blocks[i]);
            else
                merge_segment(units, c, blocks[i], blocks[i].m, blocks[i].l, blocks[i].o);
    }
    for (int64_t i = 0; i < n; i++) finish(c, blocks[i], finite);
}

template <class T>
void merge_item(const Call &c, int64_t item, int64_t segments, const char *partials, char *scratch) {
    Block<T> *blocks;
    const int64_t n = open_item<T>(c, item, blocks, scratch), size = block_partial<T>(c);
    const Units<T> units(c);
    for (int64_t i = 0; i < n; i++) {
        begin(c, blocks[i]);
        for (int64_t s = 0; s < segments; s++) {
            const char *from = partials + (s * Plan<T>(c).together + i) * size;
            Partial<T> p;
            std::memcpy(&p, from, sizeof p);
            std::memcpy(blocks[i].o, from + sizeof p, c.Dv * blocks[i].L * sizeof(T));
            merge_segment(units, c, blocks[i], p.m, p.l, blocks[i].o);
        }
        finish(c, blocks[i], false);
    }
}

template <class T>
void weigh(const Call &c, int64_t b, int64_t head, const int64_t *rows, int64_t n, const int64_t *keys,
           int64_t m, void *out, char *scratch) {
    constexpr int L = Block<T>::L;
    const Units<T> units(c);
    Block<T> k;
    k.b = b, k.kv = head / c.group();
    Factor<T> *packed = (Factor<T> *)lay_out(c, k, aligned(scratch));
    for (int64_t i = 0; i < n; i += L) {
        const int64_t lanes = least<int64_t>(L, n - i);
        for (int64_t lane = 0; lane < lanes; lane++) k.head[lane] = head, k.index[lane] = rows[i + lane];
        place_queries(c, k, lanes);
        for (int64_t j = 0; j < m; j += TILE) {
            const Keys some{0, least<int64_t>(TILE, m - j), keys + j};
            const Rows<T> x = key_rows<T>(c.key, c.at(c.key, b, k.kv), some.list, 0, some.n, c.D, packed);
            const bool seen = scores(c, k, x, some);
            for (int64_t lane = 0; lane < lanes; lane++) {
                const int64_t at = (b * c.H + head) * c.Nq + rows[i + lane];
                const T maximum = ((const T *)c.maximum)[at], r = ((const T *)c.reciprocal)[at];
                const T shift = maximum == -infinity<T>() ? (T)0 : maximum;
                for (int64_t t = 0; t < some.n; t++) {
                    const T s = seen ? k.s[t * L + lane] : -infinity<T>();
                    const T p = units.power(spread<Vec<T>>(s - shift))[0];
                    ((T *)out)[(i + lane) * m + j + t] = s == -infinity<T>() ? (T)0 : p * r;
                }
            }
        }
    }
}

// ------------------------------------------------------------------------- one table a set

template <class T> int64_t count_items(const Call &c) { return Plan<T>(c).items(c); }
template <class T> int64_t partial_bytes(const Call &c) { return Plan<T>(c).together * block_partial<T>(c); }

int64_t scratch(const Call &c) { return REGARD_PICK(c, scratch_bytes, c); }
int64_t items(const Call &c) { return REGARD_PICK(c, count_items, c); }
bool few(const Call &c) { return REGARD_PICK(c, are_few, c); }
int64_t partial(const Call &c) { return REGARD_PICK(c, partial_bytes, c); }
void run(const Call &c, int64_t item, int64_t segment, char *partials, char *room, Watch &watch) {
    REGARD_PICK(c, run_item, c, item, segment, partials, room, watch);
}
void merge(const Call &c, int64_t item, int64_t segments, const char *partials, char *room) {
    REGARD_PICK(c, merge_item, c, item, segments, partials, room);
}
void weights(const Call &c, int64_t b, int64_t head, const int64_t *rows, int64_t n, const int64_t *keys,
             int64_t m, void *out, char *room) {
    REGARD_PICK(c, weigh, c, b, head, rows, n, keys, m, out, room);
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
const regard::Kernels kernels = {REGARD_NAME, scratch, items, few, partial, run, merge, weights,
                                look, look_room, power};

}  // namespace REGARD_ISA
