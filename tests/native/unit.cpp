// The kernels of one instruction set without Python: outputs against plain sums in double.
#include <cmath>
#include <cstdio>
#include <random>
#include <vector>

#include "call.hpp"

namespace REGARD_ISA {
extern const regard::Kernels kernels;
}

using namespace regard;

namespace {

struct Case {
    int Nq, Nk, D, Dv;
    std::vector<float> q, k, v, output, maximum, reciprocal;

    Case(int Nq, int Nk, int D, int Dv, std::mt19937 &random)
        : Nq(Nq), Nk(Nk), D(D), Dv(Dv), q(Nq * D), k(Nk * D), v(Nk * Dv), output(Nq * Dv), maximum(Nq),
          reciprocal(Nq) {
        std::normal_distribution<float> normal;
        for (auto *x : {&q, &k, &v})
            for (float &y : *x) y = normal(random);
    }

    static Array array(std::vector<float> &x, int columns) {
        Array a;
        a.data = (char *)x.data();
        a.row = columns * 4;
        a.column = 4;
        return a;
    }

    void run() {
        const Kernels &kernels = REGARD_ISA::kernels;
        Call c;
        c.H = c.Hkv = 1, c.Nq = Nq, c.Nk = Nk, c.D = D, c.Dv = Dv;
        c.query = array(q, D), c.key = array(k, D), c.value = array(v, Dv), c.output = array(output, Dv);
        c.scale = 1 / std::sqrt((double)D);
        c.maximum = maximum.data(), c.reciprocal = reciprocal.data();
        std::vector<char> scratch(kernels.scratch(c) + 64);
        std::atomic<bool> stop{false};
        Watch watch{&stop};
        for (int64_t i = 0; i < kernels.items(c); i++) kernels.run(c, i, -1, nullptr, scratch.data(), watch);
    }

    double error_of_row(int i) const {
        std::vector<double> p(Nk);
        double largest = -1e300, total = 0, worst = 0;
        for (int j = 0; j < Nk; j++) {
            for (int d = 0; d < D; d++) p[j] += (double)q[i * D + d] * k[j * D + d];
            p[j] /= std::sqrt((double)D);
            largest = std::fmax(largest, p[j]);
        }
        for (double &x : p) total += x = std::exp(x - largest);
        for (int d = 0; d < Dv; d++) {
            double sum = 0;
            for (int j = 0; j < Nk; j++) sum += p[j] * v[j * Dv + d];
            worst = std::fmax(worst, std::fabs(sum / total - output[i * Dv + d]));
        }
        const double lse = maximum[i] * std::log(2) - std::log(reciprocal[i]);
        return std::fmax(worst, std::fabs(largest + std::log(total) - lse));
    }
};

}  // namespace

int main() {
    std::mt19937 random(0);
    double worst = 0;
    for (int Nq : {1, 3, 41})
        for (int Nk : {1, 127, 129, 2049})
            for (int D : {1, 7, 64}) {
                Case one(Nq, Nk, D, D + 3, random);
                one.run();
                for (int i = 0; i < Nq; i++) worst = std::fmax(worst, one.error_of_row(i));
            }
    const bool passed = worst < 5e-6;  // a NaN fails too
    std::printf("%s: largest error %g, %s\n", REGARD_ISA::kernels.name, worst, passed ? "passed" : "FAILED");
    return passed ? 0 : 1;
}
