#include "execute.hpp"

#include <algorithm>

#include "arithmetic.hpp"
#include "pool.hpp"
#include "working.hpp"

namespace regard {
namespace {

constexpr int64_t MOST_SUMS = 1 << 24;  // bytes of segments' sums, beyond which no head is split
constexpr double SMALL = 1 << 21;  // multiply-adds that one thread has done before another wakes
constexpr int64_t ALONE = 16;      // queries; fewer read each key for little work, which takes longer

}  // namespace

bool is_small(const Call &c) {
    return (double)c.batch * c.H * c.Nq * c.Nk * (c.D + c.Dv) < (c.rows() < ALONE ? SMALL / 4 : SMALL);
}

Ran execute(const Kernels &kernels, Call c, int64_t threads, std::atomic<bool> &stop,
            const std::function<void()> &poll) {
    if (c.batch * c.H * c.Nq == 0) return {};
    const Arithmetic standard;
    const int64_t items = kernels.items(c), segments = (c.Nk + SEGMENT - 1) / SEGMENT;
    int64_t sums = kernels.partial(c);  // bytes of one item over one segment
    Ran ran;
    ran.split = segments > 1 && items < threads && (double)sums * items * segments < MOST_SUMS;
    if (!ran.split) sums = 0;
    ran.tasks = ran.split ? items * segments : items;
    threads = std::min(threads, ran.tasks);
    std::atomic<bool> strange{false};
    c.strange = &strange;
    const bool brief = is_small(c);  // over before a signal is looked for
    const int64_t each = kernels.scratch(c);
    const auto scratch = room(each * threads), partials = room(sums * ran.tasks);
    const auto task = [&](int64_t i, int slot) {
        Watch quiet{&stop};
        Polling polling(stop, poll);
        Watch &watch = slot == 0 && !brief ? (Watch &)polling : quiet;
        char *mine = scratch.get() + slot * each;
        if (watch.stopped()) return;
        if (ran.split)
            kernels.run(c, i / segments, i % segments, partials.get() + i * sums, mine, watch);
        else
            kernels.run(c, i, -1, nullptr, mine, watch);
    };
    ran.threads = run_tasks(threads, ran.tasks, task, poll);
    for (int64_t i = 0; ran.split && i < items && !stop; i++)
        kernels.merge(c, i, segments, partials.get() + i * segments * sums, scratch.get());
    ran.strange = strange;
    return ran;
}

}  // namespace regard
