// Calls from several threads at once, each on the pool or beside it, without Python: the outputs must be
// those of one thread. Built with the thread sanitizer, which ends it at the first race.
#include <cmath>
#include <cstdio>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "execute.hpp"

namespace REGARD_ISA {
extern const regard::Kernels kernels;
}

using namespace regard;

namespace {

constexpr int H = 3, D = 19, CALLERS = 3, ROUNDS = 20;

struct Inputs {
    int Nq, Nk;
    std::vector<float> q, k, v;

    Inputs(int Nq, int Nk, std::mt19937 &random) : Nq(Nq), Nk(Nk), q(H * Nq * D), k(H * Nk * D), v(H * Nk * D) {
        std::normal_distribution<float> normal;
        for (auto *x : {&q, &k, &v})
            for (float &y : *x) y = normal(random);
    }

    static Array array(const std::vector<float> &x, int rows) {
        Array a;
        a.data = (char *)x.data();
        a.head = rows * D * 4, a.row = D * 4, a.column = 4;
        return a;
    }

    // The output, by so many threads; with `stopped` the call is given up as it begins.
    std::vector<float> attention(int64_t threads, bool stopped = false) const {
        std::vector<float> output(q.size());
        Call c;
        c.H = c.Hkv = H, c.Nq = Nq, c.Nk = Nk, c.D = c.Dv = D;
        c.query = array(q, Nq), c.key = array(k, Nk), c.value = array(v, Nk), c.output = array(output, Nq);
        c.scale = 1 / std::sqrt((double)D);
        std::atomic<bool> stop{false};
        execute(REGARD_ISA::kernels, c, threads, stop, [&] { stop = stopped; });
        return output;
    }
};

}  // namespace

int main() {
    std::mt19937 random(0);
    const Inputs prefill(211, 307, random), decoding(2, 6151, random);  // many queries; segments side by side
    std::atomic<int> wrong{0};
    for (const Inputs *inputs : {&prefill, &decoding}) {
        const std::vector<float> expected = inputs->attention(1);
        std::vector<std::thread> callers;
        for (int caller = 0; caller < CALLERS; caller++)
            callers.emplace_back([&, caller] {
                for (int i = 0; i < ROUNDS; i++) {
                    const bool stopped = (i + caller) % 5 == 4;
                    const std::vector<float> output = inputs->attention(CALLERS, stopped);
                    if (!stopped && std::memcmp(output.data(), expected.data(), output.size() * 4)) wrong++;
                }
            });
        for (std::thread &caller : callers) caller.join();
    }
    std::printf("calls from %d threads: %s\n", CALLERS, wrong ? "WRONG" : "passed");
    std::fflush(stdout);
    std::_Exit(wrong != 0);  // the pool's threads sleep on, and are never joined
}
