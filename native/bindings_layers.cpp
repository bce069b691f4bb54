// What Python sees of the steps beside attention. All arrays are contiguous; Python sees to it.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <memory>
#include <new>
#include <optional>
#include <string>
#include <vector>

#include "arithmetic.hpp"
#include "layers.hpp"
#include "pool.hpp"

namespace nb = nanobind;

#define REGARD_SET(name)                        \
    namespace regard_##name {                   \
    extern const regard::Products products;     \
    extern const regard::Steps steps;           \
    }
REGARD_SETS
#undef REGARD_SET

namespace {

using regard::Norm, regard::Product, regard::Products, regard::Steps;
using Given = nb::ndarray<nb::ro, nb::c_contig, nb::device::cpu>;
using Strided = nb::ndarray<nb::ro, nb::device::cpu>;
using Maybe = std::optional<Given>;

constexpr int64_t WORTH = 1 << 20;  // multiplications, below which waking a thread costs more
constexpr int64_t PIECE = 1 << 15;  // numbers of a task, which stay in the first-level cache

std::vector<std::string> runnable;

template <class Table> const Table &by_name(const std::string &name, std::vector<const Table *> tables) {
    for (const std::string &each : runnable)
        for (const Table *table : tables)
            if (each == name && name == table->name) return *table;
    throw nb::value_error(("this processor has no " + name).c_str());
}

const Products &products_of(const std::string &name) {
#define REGARD_SET(set) &regard_##set::products,
    return by_name<Products>(name, {REGARD_SETS});
#undef REGARD_SET
}

const Steps &steps_of(const std::string &name) {
#define REGARD_SET(set) &regard_##set::steps,
    return by_name<Steps>(name, {REGARD_SETS});
#undef REGARD_SET
}

const float *floats(const Given &x) { return (const float *)x.data(); }
const float *floats(const Maybe &x) { return x ? floats(*x) : nullptr; }
float *place(const Given &y) { return const_cast<float *>(floats(y)); }

template <class F> void run(int64_t threads, int64_t tasks, const F &task) {
    nb::gil_scoped_release release;
    const regard::Arithmetic standard;
    regard::run_tasks(threads, tasks, task, [] {});
}

void multiply(const std::string &set, Given x, Strided weight, int held, int64_t in, Maybe bias, Given y,
              int64_t threads) {
    const Products &kernels = products_of(set);
    Product p;
    p.x = floats(x), p.bias = floats(bias), p.y = place(y);
    p.weight = (const char *)weight.data(), p.held = (regard::Held)held;
    p.stride = weight.stride(0) * (int64_t)weight.itemsize();
    p.rows = x.shape(0), p.in = in, p.out = y.shape(1);
    if (p.rows * p.out == 0) return;
    if ((double)p.rows * p.out * p.in < WORTH / 4) threads = 1;
    const int64_t items = kernels.items(p), each = kernels.scratch(p);
    if (threads > items) threads = items;
    std::unique_ptr<char[]> room(new char[each * threads + 1]);
    run(threads, items, [&](int64_t item, int slot) { kernels.multiply(p, item, room.get() + slot * each); });
}

void step(const std::string &set, int which, Given x, Maybe other, Given y, int64_t threads) {
    const Steps &kernels = steps_of(set);
    const float *a = floats(x), *b = floats(other);
    float *to = place(y);
    const int64_t n = x.size(), tasks = (n + PIECE - 1) / PIECE;
    if (n < 4 * PIECE) threads = 1;
    run(threads, tasks, [&](int64_t task, int) {
        const int64_t at = task * PIECE, m = n - at < PIECE ? n - at : PIECE;
        kernels.step((regard::Step)which, a + at, b ? b + at : nullptr, to + at, m);
    });
}

// Rows by rows: f(begin, end) for parts of about PIECE numbers.
template <class F> void by_rows(int64_t rows, int64_t n, int64_t threads, const F &f) {
    const int64_t some = n < PIECE ? PIECE / (n > 0 ? n : 1) : 1;
    if (rows * n < 4 * PIECE) threads = 1;
    run(threads, (rows + some - 1) / some, [&](int64_t task, int) {
        f(task * some, (task + 1) * some < rows ? (task + 1) * some : rows);
    });
}

void softmax(const std::string &set, Given x, Given y, int64_t threads) {
    const Steps &kernels = steps_of(set);
    const int64_t rows = x.shape(0), n = x.shape(1);
    by_rows(rows, n, threads, [&](int64_t begin, int64_t end) {
        kernels.softmax(floats(x) + begin * n, place(y) + begin * n, end - begin, n);
    });
}

void norm(const std::string &set, Given x, Maybe residual, Given weight, Maybe bias, double epsilon,
          bool centred, Given y, int64_t threads) {
    const Steps &kernels = steps_of(set);
    Norm c;
    c.x = floats(x), c.residual = floats(residual), c.weight = floats(weight), c.bias = floats(bias);
    c.y = place(y), c.D = x.shape(1), c.epsilon = (float)epsilon, c.centred = centred;
    by_rows(x.shape(0), c.D, threads, [&](int64_t begin, int64_t end) { kernels.norm(c, begin, end); });
}

}  // namespace

void bind_layers(nb::module_ &m, std::vector<std::string> sets) {
    runnable = std::move(sets);
    m.def("multiply", &multiply, nb::arg("set"), nb::arg("x"), nb::arg("weight"), nb::arg("held"),
          nb::arg("inputs"), nb::arg("bias").none(), nb::arg("y"), nb::arg("threads"));
    m.def("step", &step, nb::arg("set"), nb::arg("which"), nb::arg("x"), nb::arg("other").none(),
          nb::arg("y"), nb::arg("threads"));
    m.def("softmax", &softmax, nb::arg("set"), nb::arg("x"), nb::arg("y"), nb::arg("threads"));
    m.def("norm", &norm, nb::arg("set"), nb::arg("x"), nb::arg("residual").none(), nb::arg("weight"),
          nb::arg("bias").none(), nb::arg("epsilon"), nb::arg("centred"), nb::arg("y"), nb::arg("threads"));
}
