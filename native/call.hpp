// One call of attention as the kernels see it: raw pointers, sizes, strides. No Python.
#pragma once

#include <atomic>
#include <cstdint>

namespace regard {

constexpr int MAX_LEAD = 8;    // axes before the heads
constexpr int TILE = 128;      // keys of a tile, counted from key 0
constexpr int SEGMENT = 2048;  // keys of a segment, a whole number of tiles

enum class Type : int { f16, bf16, f32, f64, u8, i64 };

// Inlined everywhere, so that no instruction set's copy is taken for another's.
[[gnu::always_inline]] inline int size_of(Type type) {
    switch (type) {
        case Type::u8: return 1;
        case Type::f16:
        case Type::bf16: return 2;
        case Type::f32: return 4;
        default: return 8;
    }
}

// An array (*lead, heads, rows, columns) by its strides in bytes; 0 where it is broadcast.
struct Array {
    char *data = nullptr;
    Type type = Type::f32;
    int64_t lead[MAX_LEAD] = {};
    int64_t head = 0, row = 0, column = 0;

    [[gnu::always_inline]] explicit operator bool() const { return data != nullptr; }
};

struct Call {
    int axes = 0;  // how many lead axes
    int64_t lead[MAX_LEAD] = {};
    int64_t batch = 1;  // their product
    int64_t H = 0, Hkv = 0, Nq = 0, Nk = 0, D = 0, Dv = 0;
    Array query, key, value, output;
    Array lo, hi;  // i64, (*lead, H, Nq): [lo, hi) of each query, or none
    Array mask;    // u8, (*lead, H, Nq, Nk)
    Array bias;    // f16, bf16, f32 or f64
    const double *slopes = nullptr;  // (H,), alibi
    const double *sinks = nullptr;   // (H,)
    Array start;                     // i64, (*lead): position of query 0, for alibi
    double scale = 1, softcap = 0;   // softcap 0: none
    bool natural = false;            // scores in natural units, not in base 2
    // Of each row, contiguous (*lead, H, Nq), in the type that is computed in (f64 for f64, else f32), where
    // they are wanted: the largest score, and 1 over the sum of the exponentials.
    void *maximum = nullptr, *reciprocal = nullptr;
    std::atomic<bool> *strange = nullptr;  // set where an output is not finite

    [[gnu::always_inline]] int64_t group() const { return Hkv ? H / Hkv : 1; }
    [[gnu::always_inline]] int64_t rows() const { return group() * Nq; }  // that read one key head

    // Where the arrays of one batch element and head begin.
    [[gnu::always_inline]] const char *at(const Array &a, int64_t b, int64_t head) const {
        const char *p = a.data + head * a.head;
        for (int axis = axes - 1; axis >= 0; axis--) {
            p += (b % lead[axis]) * a.lead[axis];
            b /= lead[axis];
        }
        return p;
    }
};

// Whether to go on: asked at each tile. The calling thread's also looks for signals now and then.
struct Watch {
    const std::atomic<bool> *stop;
    void (*poll)(Watch &) = nullptr;

    [[gnu::always_inline]] bool stopped() {
        if (poll) poll(*this);
        return stop->load(std::memory_order_relaxed);
    }
};

// What one instruction set offers. Work is cut into items, each a group of query rows of one key
// head; an item may be computed on any thread, and in segments of keys on several.
struct Kernels {
    const char *name;
    int64_t (*scratch)(const Call &);  // bytes that a thread needs
    int64_t (*items)(const Call &);    // how many
    bool (*few)(const Call &);         // whether its queries are so few that keys are read at the speed of memory
    int64_t (*partial)(const Call &);  // bytes of an item's sums over one segment
    // Item by item. With `partials`, one segment of it, whose sums are left there.
    void (*run)(const Call &, int64_t item, int64_t segment, char *partials, char *scratch, Watch &);
    void (*merge)(const Call &, int64_t item, int64_t segments, const char *partials, char *scratch);
    // Weights of some rows and keys of one head, (rows, keys) contiguous.
    void (*weights)(const Call &, int64_t b, int64_t head, const int64_t *rows, int64_t n,
                    const int64_t *keys, int64_t m, void *out, char *scratch);
    // Statistics of the weights of one part, and the bytes that a thread needs for it: looking.hpp.
    void (*look)(const Call &, const struct Looking &, int64_t part, double *sums, char *scratch, Watch &);
    int64_t (*look_room)(const Call &);
    // 2^x of n numbers, in place: the exponential of the softmax, for its tests.
    void (*power)(void *x, int64_t n, bool wide);
};

}  // namespace regard
