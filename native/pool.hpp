// A small pool of threads that sleep while there is nothing to do.
#pragma once

#include <cstdint>
#include <functional>

namespace regard {

// task(i, slot) for each i in [0, n), on up to `threads` threads, the caller among them as slot 0.
// Whoever finds the pool in use, or gets no thread, computes alone. Returns how many took part.
int run_tasks(int threads, int64_t n, const std::function<void(int64_t, int)> &task);

}  // namespace regard
