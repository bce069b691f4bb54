#include "pool.hpp"

#include "arithmetic.hpp"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#ifndef _WIN32
#include <pthread.h>
#endif
#ifdef __linux__
#include <sched.h>
#endif

namespace regard {
namespace {

// How long the caller looks out for the others before it sleeps. They are within their last tasks, and waking
// takes as long; helpers that have nothing to do sleep at once.
constexpr auto LOOKS = std::chrono::microseconds(20);

void relax() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

struct Job {
    const std::function<void(int64_t, int)> *task;
    int64_t n;
    std::atomic<int64_t> next{0};
};

class Pool {
  public:
    std::atomic_flag busy;  // one call at a time

    int run(int threads, int64_t n, const std::function<void(int64_t, int)> &task,
            const std::function<void()> &poll) {
        Job job{&task, n};
        const int helpers = started(threads - 1);
        keep_away();
        {
            std::lock_guard<std::mutex> lock(mutex_);
            job_ = &job;
            wanted_ = working_ = helpers;
        }
        wake_.notify_all();
        work(job, 0);
        {
            std::lock_guard<std::mutex> lock(mutex_);
            working_ -= wanted_;  // all is done: who has not woken yet need not
            wanted_ = 0, job_ = nullptr;
        }
        if (!look_out()) sleep(poll);
        return helpers + 1;
    }

  private:
    std::mutex mutex_;
    std::condition_variable wake_, done_;
    Job *job_ = nullptr;
    int threads_ = 0, wanted_ = 0;
    std::atomic<int> working_{0};
    std::vector<std::thread::native_handle_type> handles_;
    int avoided_ = -1;  // the core that the helpers keep away from

    // Whether the others have done their tasks within so short a time.
    bool look_out() const {
        const auto end = std::chrono::steady_clock::now() + LOOKS;
        while (working_ > 0) {
            if (std::chrono::steady_clock::now() > end) return false;
            relax();
        }
        return true;
    }

    // Until they have done them, with a poll now and then.
    void sleep(const std::function<void()> &poll) {
        std::unique_lock<std::mutex> lock(mutex_);
        while (!done_.wait_for(lock, std::chrono::milliseconds(30), [this] { return working_ == 0; })) {
            lock.unlock();
            poll();
            lock.lock();
        }
    }

    // As many helpers as there can be, started when first wanted. None is ever joined.
    int started(int helpers) {
        while (threads_ < helpers) {
            try {
                handles_.reserve(threads_ + 1);
                std::thread helper(&Pool::serve, this);
                handles_.push_back(helper.native_handle());
                helper.detach();
            } catch (const std::exception &) {  // no thread, or no memory for one
                return threads_;
            }
            threads_++, avoided_ = -1;
        }
        return helpers;
    }

    // Linux may wake a helper on its caller's own core, where the two only take turns, and leave it there.
    void keep_away() {
#ifdef __linux__
        const int here = sched_getcpu();
        cpu_set_t cores;
        if (here < 0 || here == avoided_ || sched_getaffinity(0, sizeof cores, &cores) != 0) return;
        CPU_CLR(here, &cores);
        if (CPU_COUNT(&cores) < threads_) return;
        for (const auto helper : handles_) pthread_setaffinity_np(helper, sizeof cores, &cores);
        avoided_ = here;
#endif
    }

    void serve() {
        const Arithmetic standard;
        std::unique_lock<std::mutex> lock(mutex_);
        for (;;) {
            wake_.wait(lock, [&] { return job_ && wanted_ > 0; });
            const int mine = wanted_--;
            Job &job = *job_;
            lock.unlock();
            work(job, mine);
            const bool last = --working_ == 0;  // then the caller may return, and its job is no more
            lock.lock();
            if (last) done_.notify_one();
        }
    }

    static void work(Job &job, int slot) {
        for (int64_t i; (i = job.next.fetch_add(1)) < job.n;) (*job.task)(i, slot);
    }
};

std::atomic<Pool *> pool{nullptr};

Pool &the_pool() {
    Pool *p = pool.load();
    if (p) return *p;
    Pool *fresh = new Pool;
    if (pool.compare_exchange_strong(p, fresh)) {
#ifndef _WIN32
        static std::once_flag once;  // a forked child has none of the threads: it starts its own
        std::call_once(once, [] { pthread_atfork(nullptr, nullptr, [] { pool.store(nullptr); }); });
#endif
        return *fresh;
    }
    delete fresh;
    return *p;
}

}  // namespace

int run_tasks(int64_t threads, int64_t n, const std::function<void(int64_t, int)> &task,
              const std::function<void()> &poll) {
    if (threads > n) threads = n;
    if (threads > 1) {
        Pool &p = the_pool();
        if (!p.busy.test_and_set()) {
            const int took = p.run((int)threads, n, task, poll);
            p.busy.clear();
            return took;
        }
    }
    for (int64_t i = 0; i < n; i++) task(i, 0);
    return 1;
}

}  // namespace regard
