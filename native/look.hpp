// What is wanted of a call's weights, and where it goes. No Python.
#pragma once

#include <functional>

#include "call.hpp"

namespace regard {

// Statistics of the weights. What belongs to a row, entropy and top, is written where it goes. What
// many rows add to is summed part by part, a part being some rows of one head; which rows depends on
// their number alone, so that the sums do not depend on the threads.
struct Looking {
    double *received = nullptr;   // (*lead, H, Nk)
    double *distances = nullptr;  // (*lead, H, Nq + Nk - 1), from query 0 and the last key on
    double *pooled = nullptr;     // (*lead, H, rows, columns)
    double *entropy = nullptr;    // (*lead, H, Nq)
    double *weights = nullptr;    // (*lead, H, Nq, k), the strongest
    int64_t *keys = nullptr;      // alike, -1 at first; all others are zeros at first
    int64_t k = 0, rows = 0, columns = 0;
    bool most = false;  // pooled is a maximum, not a sum

    static constexpr int64_t PARTS = 32;  // at most, of a head

    [[gnu::always_inline]] int64_t part_rows(const Call &c) const {
        return (c.Nq + PARTS * 128 - 1) / (PARTS * 128) * 128;  // whole blocks of any instruction set
    }
    [[gnu::always_inline]] int64_t parts(const Call &c) const {
        return c.Nq ? (c.Nq + part_rows(c) - 1) / part_rows(c) : 0;
    }
    // A part's sums: of columns, of diagonals (key - query, from the part's last row on), pooled.
    [[gnu::always_inline]] int64_t diagonals_at(const Call &c) const { return received ? c.Nk : 0; }
    [[gnu::always_inline]] int64_t pooled_at(const Call &c) const {
        return diagonals_at(c) + (distances ? c.Nk + part_rows(c) : 0);
    }
    [[gnu::always_inline]] int64_t sums(const Call &c) const {
        return pooled_at(c) + (pooled ? pooled_rows(c) * columns : 0);
    }
    [[gnu::always_inline]] int64_t pooled_rows(const Call &c) const {
        return part_rows(c) * rows / c.Nq + 2;  // that a part touches, at most
    }
};

// Which of n blocks of a `size` holds place i; block e begins at ⌊e · size / n⌋.
[[gnu::always_inline]] inline int64_t block_of(int64_t i, int64_t n, int64_t size) {
    return ((i + 1) * n - 1) / size;
}

// As `execute`, once that was run.
void look(const Kernels &, const Call &, const Looking &, int64_t threads, std::atomic<bool> &stop,
          const std::function<void()> &poll);

}  // namespace regard
