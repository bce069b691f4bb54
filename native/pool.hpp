// A small pool of threads that sleep while there is nothing to do.
#pragma once

#include <cstdint>
#include <functional>

namespace regard {

// task(i, slot) for each i in [0, n), on up to `threads` threads, the caller among them as slot 0.
// While the caller waits for the others it calls `poll` now and then. Whoever finds the pool in use,
// or gets no thread, computes alone. Returns how many there were, though the late may find nothing left.
int run_tasks(int64_t threads, int64_t n, const std::function<void(int64_t, int)> &task,
              const std::function<void()> &poll);

}  // namespace regard
