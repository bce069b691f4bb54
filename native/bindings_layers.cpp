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
#include "signals.hpp"

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

constexpr int64_t WORTH = 1 << 19;  // multiplications, below which waking a thread costs more
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

// How many threads there are to be asked is left to those for whom they are worth it.
int64_t threads_for(bool worth, const nb::callable &get_threads) {
    return worth ? nb::cast<int64_t>(get_threads()) : 1;
}

template <class F> void run(int64_t threads, int64_t tasks, const F &task) {
    Signals signals;
    {
        nb::gil_scoped_release release;
        const regard::Arithmetic standard;
        const auto look = [&] { signals.look(); };
        regard::run_tasks(threads, tasks, [&](int64_t i, int slot) {
            if (slot == 0) look();
            if (!signals.stop) task(i, slot);
        }, look);
    }
    signals.raise();
}

void multiply(const std::string &set, Given x, Strided weight, int held, Maybe bias, Given y,
              nb::callable get_threads) {
    const Products &kernels = products_of(set);
    Product p;
    p.x = floats(x), p.bias = floats(bias), p.y = place(y);
    p.weight = (const char *)weight.data(), p.held = (regard::Held)held;
    p.stride = weight.stride(0) * (int64_t)weight.itemsize();
    p.in = x.shape(x.ndim() - 1), p.out = weight.shape(0);
    if (y.size() == 0) return;
    p.rows = (int64_t)y.size() / p.out;
    const int64_t items = kernels.items(p), each = kernels.scratch(p);
    int64_t threads = threads_for((double)p.rows * p.out * p.in >= WORTH, get_threads);
    if (threads > items) threads = items;
    std::unique_ptr<char[]> room(new char[each * threads + 1]);
    run(threads, items, [&](int64_t item, int slot) { kernels.multiply(p, item, room.get() + slot * each); });
}

// Rows by rows: f(begin, end) for parts of about PIECE numbers.
template <class F> void by_rows(int64_t rows, int64_t n, const nb::callable &get_threads, const F &f) {
    const int64_t some = n < PIECE ? PIECE / (n > 0 ? n : 1) : 1;
    run(threads_for(rows * n >= 4 * PIECE, get_threads), (rows + some - 1) / some, [&](int64_t task, int) {
        f(task * some, (task + 1) * some < rows ? (task + 1) * some : rows);
    });
}

// Of rows that may lie apart; y's lie together. x and other are alike in shape.
void step(const std::string &set, int which, Strided x, std::optional<Strided> other, Given y,
          nb::callable get_threads) {
    const Steps &kernels = steps_of(set);
    const float *a = (const float *)x.data(), *b = other ? (const float *)other->data() : nullptr;
    float *to = place(y);
    if (y.size() == 0) return;
    int64_t rows = x.shape(0), n = x.shape(1), apart = x.stride(0), others = other ? other->stride(0) : 0;
    if ((apart == n && (!other || others == n)) || rows == 1) {  // one long row, in parts
        const int64_t whole = rows * n;
        n = apart = others = whole < PIECE ? whole : PIECE, rows = whole / n;
        const int64_t end = rows * n;
        kernels.step((regard::Step)which, a + end, b ? b + end : nullptr, to + end, whole - end);
    }
    by_rows(rows, n, get_threads, [&](int64_t begin, int64_t end) {
        for (int64_t r = begin; r < end; r++)
            kernels.step((regard::Step)which, a + r * apart, b ? b + r * others : nullptr, to + r * n, n);
    });
}

void softmax(const std::string &set, Given x, Given y, nb::callable get_threads) {
    const Steps &kernels = steps_of(set);
    const int64_t rows = x.shape(0), n = x.shape(1);
    by_rows(rows, n, get_threads, [&](int64_t begin, int64_t end) {
        kernels.softmax(floats(x) + begin * n, place(y) + begin * n, end - begin, n);
    });
}

void norm(const std::string &set, Given x, Maybe residual, Given weight, Maybe bias, double epsilon,
          bool centred, Given y, nb::callable get_threads) {
    const Steps &kernels = steps_of(set);
    Norm c;
    c.x = floats(x), c.residual = floats(residual), c.weight = floats(weight), c.bias = floats(bias);
    c.y = place(y), c.D = weight.size(), c.epsilon = (float)epsilon, c.centred = centred;
    if (x.size() == 0) return;
    const int64_t rows = (int64_t)x.size() / c.D;
    by_rows(rows, c.D, get_threads, [&](int64_t begin, int64_t end) { kernels.norm(c, begin, end); });
}

// Rows of heads (H, N, D) turned by their angles (N, D/2); the numbers of a row lie side by side.
void rotate(const std::string &set, Strided x, Given cosine, Given sine, bool interleaved, Given y,
            nb::callable get_threads) {
    const Steps &kernels = steps_of(set);
    const int64_t N = x.shape(1), D = x.shape(2);
    by_rows(x.shape(0) * N, D, get_threads, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; i++) {
            const float *from = (const float *)x.data() + i / N * x.stride(0) + i % N * x.stride(1);
            const int64_t angle = i % N * (D / 2);
            kernels.rotate(from, floats(cosine) + angle, floats(sine) + angle, place(y) + i * D, D, interleaved);
        }
    });
}

}  // namespace

void bind_layers(nb::module_ &m, std::vector<std::string> sets) {
    runnable = std::move(sets);
    m.def("multiply", &multiply, nb::arg("set"), nb::arg("x"), nb::arg("weight"), nb::arg("held"),
          nb::arg("bias").none(), nb::arg("y"), nb::arg("get_threads"));
    m.def("step", &step, nb::arg("set"), nb::arg("which"), nb::arg("x"), nb::arg("other").none(),
          nb::arg("y"), nb::arg("get_threads"));
    m.def("softmax", &softmax, nb::arg("set"), nb::arg("x"), nb::arg("y"), nb::arg("get_threads"));
    m.def("norm", &norm, nb::arg("set"), nb::arg("x"), nb::arg("residual").none(), nb::arg("weight"),
          nb::arg("bias").none(), nb::arg("epsilon"), nb::arg("centred"), nb::arg("y"), nb::arg("get_threads"));
    m.def("rotate", &rotate, nb::arg("set"), nb::arg("x"), nb::arg("cosine"), nb::arg("sine"),
          nb::arg("interleaved"), nb::arg("y"), nb::arg("get_threads"));
}
