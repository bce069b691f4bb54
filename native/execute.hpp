// One call, computed: its items on threads, its segments split over them where heads are few.
#pragma once

#include <functional>

#include "call.hpp"

namespace regard {

struct Ran {
    int threads = 0;  // that it had: the late may have found nothing left
    int64_t tasks = 0;
    bool split = false;    // whether segments of one head were computed side by side
    bool strange = false;  // whether an output is not finite
};

// The multiplications and additions of a call are few: no thread is worth its waking.
bool is_small(const Call &);

// `poll` is called by the calling thread now and then, and may set `stop`. Throws std::bad_alloc.
Ran execute(const Kernels &, Call, int64_t threads, std::atomic<bool> &stop, const std::function<void()> &poll);

}  // namespace regard
