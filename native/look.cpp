#include "look.hpp"

#include <algorithm>

#include "arithmetic.hpp"
#include "pool.hpp"
#include "working.hpp"

namespace regard {
namespace {

constexpr int64_t MOST_PARTS = 1 << 26;  // bytes of parts' sums, by which heads are looked at together

// A part's sums are added to those of all.
void gather(const Call &c, const Looking &what, int64_t part, const double *sums) {
    const int64_t head = part / what.parts(c), first = part % what.parts(c) * what.part_rows(c);
    const int64_t diagonals = c.Nk + what.part_rows(c) - 1;
    if (what.received)
        for (int64_t j = 0; j < c.Nk; j++) what.received[head * c.Nk + j] += sums[j];
    if (what.distances) {  // they begin at the part's last row and key 0, where what is gathered ends
        double *end = what.distances + head * (c.Nq + c.Nk - 1) + c.Nk - 1 + first + what.part_rows(c) - 1;
        const int64_t beyond = std::max<int64_t>(0, first + what.part_rows(c) - c.Nq);  // no such rows
        for (int64_t t = beyond; t < diagonals; t++) *(end - t) += sums[what.diagonals_at(c) + t];
    }
    if (!what.pooled) return;
    const int64_t row = block_of(first, what.rows, c.Nq);
    const int64_t n = std::min(what.pooled_rows(c), what.rows - row) * what.columns;
    double *to = what.pooled + (head * what.rows + row) * what.columns;
    const double *from = sums + what.pooled_at(c);
    for (int64_t t = 0; t < n; t++) to[t] = !what.most ? to[t] + from[t] : from[t] <= to[t] ? to[t] : from[t];
}

}  // namespace

void look(const Kernels &kernels, const Call &c, const Looking &what, int64_t threads, std::atomic<bool> &stop,
          const std::function<void()> &poll) {
    const int64_t heads = c.batch * c.H, parts = what.parts(c), size = what.sums(c);
    if (heads * parts == 0 || c.Nk == 0) return;
    const Arithmetic standard;
    const int64_t bytes = parts * size * (int64_t)sizeof(double);
    const int64_t together = std::min(heads, bytes ? std::max<int64_t>(1, MOST_PARTS / bytes) : heads);
    threads = std::min(threads, together * parts);
    const int64_t each = kernels.look_room(c);
    const auto scratch = room(each * threads), sums = room(bytes * together);
    for (int64_t head = 0; head < heads && !stop; head += together) {
        const int64_t n = std::min(together, heads - head) * parts;
        const auto task = [&](int64_t i, int slot) {
            Watch quiet{&stop};
            Polling polling(stop, poll);
            Watch &watch = slot == 0 ? (Watch &)polling : quiet;
            if (watch.stopped()) return;
            const int64_t part = n - 1 - i;  // the last rows see most: first
            double *mine = (double *)sums.get() + part * size;
            std::fill_n(mine, size, 0.0);
            kernels.look(c, what, head * parts + part, mine, scratch.get() + slot * each, watch);
        };
        run_tasks(threads, n, task, poll);
        for (int64_t i = 0; i < n; i++) gather(c, what, head * parts + i, (double *)sums.get() + i * size);
    }
}

}  // namespace regard
