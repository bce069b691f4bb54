// Statistics of the weights, in one pass over the scores: each weight is made once, counted, forgotten.
//
// The weights are exp(score - maximum) · (1 / sum), with the maximum and the sum that the forward pass
// left and the scores that it computed. What is of a row stays in its lane; for sums over rows a tile
// is turned, so that they too run along vectors.
#pragma once

#include "look.hpp"
#include "scores.hpp"

namespace REGARD_ISA {
namespace {

constexpr int LOOKED = 4;  // blocks of queries that share a tile while it is in cache

template <class T> struct Gaze {
    static constexpr int L = Block<T>::L, STRIDE = TILE + 4 * L;
    Block<T> block;
    Vec<T> shift[V], r[V], least[V];  // least: of the strongest so far
    double surprise[L], mass[L];      // Σ w·(score - maximum), Σ w
    int64_t row, pool[L];             // the first lane's row of all; each lane's row of pooled
};

template <class T> int64_t look_bytes(const Call &c) {
    return LOOKED * (block_bytes<T>(c) + (int64_t)sizeof(Gaze<T>) + 128) + TILE * c.D * (int64_t)sizeof(T) +
           Block<T>::L * Gaze<T>::STRIDE * (int64_t)sizeof(T) + 4096;
}

// ------------------------------------------------------------------------------- the strongest

// A heap of the k strongest, the weakest of them first; of equals the later key is the weaker.
inline bool weaker(const double *w, const int64_t *keys, int64_t a, int64_t b) {
    return w[a] < w[b] || (w[a] == w[b] && keys[a] > keys[b]);
}

inline void sift(double *w, int64_t *keys, int64_t n) {
    for (int64_t i = 0, child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && weaker(w, keys, child + 1, child)) child++;
        if (!weaker(w, keys, child, i)) return;
        const double x = w[i];
        const int64_t key = keys[i];
        w[i] = w[child], keys[i] = keys[child], w[child] = x, keys[child] = key;
    }
}

// The heap in order, the strongest first. A NaN was held as infinity, which no weight is.
inline void in_order(double *w, int64_t *keys, int64_t k) {
    for (int64_t n = k - 1; n > 0; n--) {
        const double x = w[0];
        const int64_t key = keys[0];
        w[0] = w[n], keys[0] = keys[n], w[n] = x, keys[n] = key;
        sift(w, keys, n);
    }
    for (int64_t i = 0; i < k; i++)
        if (w[i] == __builtin_inf()) w[i] = __builtin_nan("");
}

template <class T> void keep_strongest(const Looking &what, Gaze<T> &g, int64_t from, int64_t n) {
    constexpr int TOGETHER = 4;  // keys that are asked at once whether one is strong
    for (int64_t j = 0; j < n; j += TOGETHER) {
        const int64_t end = least<int64_t>(n, j + TOGETHER);
        auto strong = Vec<T>{} != Vec<T>{};
        for (int64_t t = j; t < end; t++)
            for (int v = 0; v < V; v++) strong |= ~(load<Vec<T>>(g.block.s + (t * V + v) * W<T>) <= g.least[v]);
        if (!some(strong)) continue;
        for (int64_t t = j; t < end; t++)
            for (int i = 0; i < g.block.n; i++) {
                const T p = g.block.s[t * g.L + i];
                if (p <= g.least[i / W<T>][i % W<T>]) continue;
                double *w = what.weights + (g.row + i) * what.k;
                int64_t *keys = what.keys + (g.row + i) * what.k;
                const double x = p == p ? (double)p : __builtin_inf();
                if (x <= w[0]) continue;
                w[0] = x, keys[0] = from + t;
                sift(w, keys, what.k);
                g.least[i / W<T>][i % W<T>] = (T)w[0];
            }
    }
}

// ---------------------------------------------------------------------------------- a tile

// Scores become weights; of each row their sums. A hidden pair weighs 0 whatever the row.
template <class T> void weigh_tile(const Units<T> &units, const Looking &what, Gaze<T> &g, int64_t n) {
    for (int v = 0; v < V; v++) {
        T *s = g.block.s + v * W<T>;
        const Vec<T> shift = g.shift[v], r = g.r[v];
        Vec<T> surprise{}, mass{};
        for (int64_t j = 0; j < n; j++) {
            const Vec<T> x = load<Vec<T>>(s + j * g.L), y = x - shift;
            const Vec<T> p = x == -infinity<T>() ? Vec<T>{} : units.power(y) * r;
            store(s + j * g.L, p);
            if (!what.entropy) continue;
            surprise = fma(p, p == (T)0 ? Vec<T>{} : y, surprise);
            mass += p;
        }
        if (!what.entropy) continue;
        for (int w = 0; w < W<T>; w++) {
            g.surprise[v * W<T> + w] += (double)surprise[w];
            g.mass[v * W<T> + w] += (double)mass[w];
        }
    }
}

// The tile lane by lane, zeros on both sides: key j of lane i at i · STRIDE + L + j.
template <class T> void turn(Gaze<T> &g, int64_t n, T *turned) {
    constexpr int L = Gaze<T>::L, STRIDE = Gaze<T>::STRIDE;
    const int64_t whole = (n + W<T> - 1) / W<T> * W<T>;
    std::memset(g.block.s + n * L, 0, (whole - n) * L * sizeof(T));
    for (int64_t j = 0; j < whole; j += W<T>)
        for (int i = 0; i < L; i += W<T>) {
            Vec<T> x[W<T>];
            for (int w = 0; w < W<T>; w++) x[w] = load<Vec<T>>(g.block.s + (j + w) * L + i);
            transpose<T>(x);
            for (int w = 0; w < W<T>; w++) store(turned + (i + w) * STRIDE + L + j, x[w]);
        }
    if (n < TILE)
        for (int i = 0; i < L; i++) std::memset(turned + i * STRIDE + L + whole, 0, (TILE - whole) * sizeof(T));
}

// sums[t] += Σ over lanes i of turned[i · step + t], t < n.
template <class T> void add_lanes(const T *turned, int64_t step, int64_t n, double *sums) {
    T line[TILE + 2 * Gaze<T>::L];
    for (int64_t t = 0; t < n; t += W<T>) {
        Vec<T> sum = load<Vec<T>>(turned + t);
        for (int i = 1; i < Gaze<T>::L; i++) sum += load<Vec<T>>(turned + i * step + t);
        store(line + t, sum);
    }
    for (int64_t t = 0; t < n; t++) sums[t] += (double)line[t];
}

template <class T>
void pool_tile(const Call &c, const Looking &what, const Gaze<T> &g, int64_t from, int64_t n, double *pooled) {
    const int64_t end = from + n;
    for (int64_t j = from; j < end;) {
        const int64_t column = block_of(j, what.columns, c.Nk);
        const int64_t stop = least(end, (column + 1) * c.Nk / what.columns);
        for (int v = 0; v < V; v++) {
            Vec<T> x{};
            for (int64_t t = j; t < stop; t++) {
                const Vec<T> p = load<Vec<T>>(g.block.s + ((t - from) * V + v) * W<T>);
                x = what.most ? (p <= x ? x : p) : x + p;
            }
            for (int w = 0; w < W<T> && v * W<T> + w < g.block.n; w++) {
                double &place = pooled[g.pool[v * W<T> + w] * what.columns + column];
                place = !what.most ? place + (double)x[w] : (double)x[w] <= place ? place : (double)x[w];
            }
        }
        j = stop;
    }
}

template <class T>
void look_at_tile(const Call &c, const Units<T> &units, const Looking &what, Gaze<T> &g, Rows<T> rows, Keys keys,
                  int64_t first_row, double *sums, T *turned) {
    constexpr int L = Gaze<T>::L;
    if (!scores(c, g.block, rows, keys)) return;
    weigh_tile(units, what, g, keys.n);
    if (what.weights) keep_strongest(what, g, keys.j0, keys.n);
    if (what.pooled) pool_tile(c, what, g, keys.j0, keys.n, sums + what.pooled_at(c));
    if (!what.received && !what.distances) return;
    turn(g, keys.n, turned);
    if (what.received) add_lanes(turned + L, Gaze<T>::STRIDE, keys.n, sums + keys.j0);
    if (what.distances) {  // lane i, shifted by L - 1 - i: equal key - query above each other
        const int64_t at = keys.j0 - g.block.index[0] - (L - 1) + first_row + what.part_rows(c) - 1;
        add_lanes(turned + 1, Gaze<T>::STRIDE + 1, keys.n + L - 1, sums + what.diagonals_at(c) + at);
    }
}

// ---------------------------------------------------------------------------------- a part

// Lanes that no query uses see nothing.
template <class T>
void open_gaze(const Call &c, const Looking &what, Gaze<T> &g, int64_t head, int64_t first, int64_t n,
               int64_t pool0) {
    Block<T> &k = g.block;
    for (int64_t i = 0; i < n; i++) k.head[i] = head, k.index[i] = first + i;
    place_queries(c, k, n);
    for (int64_t i = n; i < k.L; i++) k.lo[i] = k.hi[i] = 0, k.early_hi = 0;
    g.row = (k.b * c.H + head) * c.Nq + first;
    for (int i = 0; i < k.L; i++) {
        const bool used = i < n;
        const T m = used ? ((const T *)c.maximum)[g.row + i] : (T)0;
        g.shift[i / W<T>][i % W<T>] = m == -infinity<T>() ? (T)0 : m;
        g.r[i / W<T>][i % W<T>] = used ? ((const T *)c.reciprocal)[g.row + i] : (T)0;
        g.least[i / W<T>][i % W<T>] = (T)0;
        g.surprise[i] = g.mass[i] = 0;
        g.pool[i] = used && what.pooled ? block_of(first + i, what.rows, c.Nq) - pool0 : 0;
    }
}

// ln w is what was summed less the logarithm of the sum: neither of the two terms is below 0.
template <class T> void close_gaze(const Units<T> &units, const Looking &what, const Gaze<T> &g) {
    for (int i = 0; i < g.block.n; i++) {
        const int64_t row = g.row + i;
        if (what.weights) in_order(what.weights + row * what.k, what.keys + row * what.k, what.k);
        if (!what.entropy) continue;
        const double r = (double)g.r[i / W<T>][i % W<T>];
        const double sum = -g.surprise[i] * (units.natural ? 1 : LN2);
        what.entropy[row] = g.mass[i] == 0 ? 0 : sum - std::log(r) * g.mass[i];
    }
}

template <class T>
void look_at_part(const Call &c, const Looking &what, int64_t part, double *sums, char *room, Watch &watch) {
    constexpr int L = Gaze<T>::L;
    const Units<T> units(c);
    const int64_t parts = what.parts(c), all = part / parts, head = all % c.H;
    const int64_t first_row = part % parts * what.part_rows(c), end = least(c.Nq, first_row + what.part_rows(c));
    const int64_t pool0 = what.pooled ? block_of(first_row, what.rows, c.Nq) : 0;
    Gaze<T> *gazes = (Gaze<T> *)(((uintptr_t)room + 63) & ~(uintptr_t)63);
    char *rest = (char *)(gazes + LOOKED);
    for (int i = 0; i < LOOKED; i++) {
        gazes[i].block.b = all / c.H, gazes[i].block.kv = head / c.group();
        rest = lay_out(c, gazes[i].block, (char *)(((uintptr_t)rest + 63) & ~(uintptr_t)63));
    }
    T *turned = (T *)(((uintptr_t)rest + 63) & ~(uintptr_t)63);
    Factor<T> *packed = (Factor<T> *)(turned + L * Gaze<T>::STRIDE);
    std::memset(turned, 0, L * Gaze<T>::STRIDE * sizeof(T));
    const char *keys = c.at(c.key, gazes->block.b, gazes->block.kv);
    for (int64_t row = first_row; row < end; row += LOOKED * L) {
        int64_t n = 0, first = c.Nk, last = 0;
        for (; n < LOOKED && row + n * L < end; n++) {
            open_gaze(c, what, gazes[n], head, row + n * L, least<int64_t>(L, end - row - n * L), pool0);
            first = least(first, gazes[n].block.first), last = most(last, gazes[n].block.last);
        }
        for (int64_t j0 = first / TILE * TILE; j0 < last && !watch.stopped(); j0 += TILE) {
            const int64_t to = least(j0 + TILE, c.Nk);
            const Rows<T> x = key_rows<T>(c.key, keys, nullptr, j0, to - j0, c.D, packed);
            for (int64_t i = 0; i < n; i++) {
                const int64_t from = most(j0, gazes[i].block.first), stop = least(to, gazes[i].block.last);
                if (from < stop)
                    look_at_tile(c, units, what, gazes[i], {x.data + (from - j0) * x.stride, x.stride},
                                 {from, stop - from}, first_row, sums, turned);
            }
        }
        for (int64_t i = 0; i < n; i++) close_gaze(units, what, gazes[i]);
    }
}

int64_t look_room(const Call &c) { return REGARD_PICK(c, look_bytes, c); }
void look(const Call &c, const Looking &what, int64_t part, double *sums, char *room, Watch &watch) {
    REGARD_PICK(c, look_at_part, c, what, part, sums, room, watch);
}

}  // namespace
}  // namespace REGARD_ISA
