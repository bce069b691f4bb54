// What Python sees of the kernels. The one file here that knows Python.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <chrono>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "arithmetic.hpp"
#include "call.hpp"
#include "pool.hpp"

namespace nb = nanobind;

#define REGARD_SET(name) \
    namespace regard_##name { extern const regard::Kernels kernels; }
REGARD_SETS
#undef REGARD_SET

namespace {

using regard::Array, regard::Call, regard::Kernels, regard::Type;
using Given = nb::ndarray<nb::ro, nb::device::cpu>;
using Maybe = std::optional<Given>;

// The sets that this processor, and its system, can run; the best last.
std::vector<const Kernels *> available() {
    std::vector<const Kernels *> sets;
#define REGARD_SET(name) \
    if (runs_##name()) sets.push_back(&regard_##name::kernels);
    [[maybe_unused]] auto runs_baseline = [] { return true; };
    [[maybe_unused]] auto runs_neon = [] { return true; };
#if defined(__x86_64__)
    __builtin_cpu_init();
    [[maybe_unused]] auto runs_avx2 = [] { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c"); };
    [[maybe_unused]] auto runs_avx512 = [&] { return runs_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq"); };
#endif
    REGARD_SETS
#undef REGARD_SET
    return sets;
}

const Kernels &by_name(const std::string &name) {
    for (const Kernels *set : available())
        if (name == set->name) return *set;
    throw nb::value_error(("this processor has no " + name).c_str());
}

// (*lead, heads, rows, columns), or without the last of these.
Array array_of(const Maybe &given, Type type, int axes) {
    Array a;
    if (!given) return a;
    const int64_t size = (int64_t)(given->itemsize());
    a.data = (char *)given->data();
    a.type = type;
    const int n = (int)given->ndim();
    for (int i = 0; i < axes; i++) a.lead[i] = given->stride(i) * size;
    if (n > axes) a.head = given->stride(axes) * size;
    if (n > axes + 1) a.row = given->stride(axes + 1) * size;
    if (n > axes + 2) a.column = given->stride(axes + 2) * size;
    return a;
}

Type type_of(int code) { return (Type)code; }

constexpr int64_t MOST_SUMS = 1 << 24;  // bytes of segments' sums, beyond which no head is split

struct Polling : regard::Watch {
    std::atomic<bool> stop_{false};
    std::chrono::steady_clock::time_point last = std::chrono::steady_clock::now();
    bool interrupted = false;

    Polling() : Watch{&stop_, &Polling::look} {}

    // The calling thread looks for signals every 30 ms; only the main thread ever finds one.
    static void look(Watch &watch) {
        Polling &self = static_cast<Polling &>(watch);
        if (self.interrupted) return;
        const auto now = std::chrono::steady_clock::now();
        if (now - self.last < std::chrono::milliseconds(30)) return;
        self.last = now;
        nb::gil_scoped_acquire gil;
        if (PyErr_CheckSignals() != 0) self.interrupted = true, self.stop_ = true;
    }
};

std::unique_ptr<char, void (*)(void *)> room(int64_t bytes) {
    char *p = (char *)std::malloc(bytes > 0 ? bytes : 1);
    if (!p) throw std::bad_alloc();
    return {p, std::free};
}

// Its methods lock it until they have copied what they need, also where Python has no lock itself.
class NativeCall {
  public:
    NativeCall(const std::string &set, Given query, Given key, Given value, int query_type, int key_type,
               Maybe lo, Maybe hi, Maybe mask, Maybe bias, int bias_type, Maybe slopes, Maybe sinks,
               Maybe start, double scale, double softcap, bool natural)
        : kernels_(by_name(set)), kept_{query, key, value} {
        for (const Maybe &m : {lo, hi, mask, bias, slopes, sinks, start})
            if (m) kept_.push_back(*m);
        Call &c = call_;
        c.axes = (int)query.ndim() - 3;
        if (c.axes > regard::MAX_LEAD) throw nb::value_error("too many axes before the heads");
        for (int i = 0; i < c.axes; i++) c.batch *= c.lead[i] = (int64_t)query.shape(i);
        c.H = query.shape(c.axes), c.Hkv = key.shape(c.axes);
        c.Nq = query.shape(c.axes + 1), c.Nk = key.shape(c.axes + 1);
        c.D = query.shape(c.axes + 2), c.Dv = value.shape(c.axes + 2);
        c.query = array_of(query, type_of(query_type), c.axes);
        c.key = array_of(key, type_of(key_type), c.axes);
        c.value = array_of(value, type_of(key_type), c.axes);
        c.lo = array_of(lo, Type::i64, c.axes), c.hi = array_of(hi, Type::i64, c.axes);
        c.mask = array_of(mask, Type::u8, c.axes);
        c.bias = array_of(bias, type_of(bias_type), c.axes);
        c.start = array_of(start, Type::i64, c.axes);
        c.slopes = slopes ? (const double *)slopes->data() : nullptr;
        c.sinks = sinks ? (const double *)sinks->data() : nullptr;
        c.scale = scale, c.softcap = softcap, c.natural = natural;
    }

    // Computes all; returns (threads that took part, tasks, whether segments were split, whether queries
    // were few, whether an output is not finite).
    nb::tuple run(Given output, Given maximum, Given reciprocal, Given lse, int64_t threads) {
        Call c = call_;
        c.output = array_of(Maybe(output), c.query.type, c.axes);
        call_.maximum = c.maximum = const_cast<void *>(maximum.data());
        call_.reciprocal = c.reciprocal = const_cast<void *>(reciprocal.data());
        c.lse = const_cast<void *>(lse.data());
        for (const Given &g : {maximum, reciprocal}) kept_.push_back(g);
        if (c.batch * c.H * c.Nq == 0) return nb::make_tuple(0, 0, false, false, false);
        const double work = (double)c.batch * c.H * c.Nq * c.Nk * (c.D + c.Dv);
        if (work < 1 << 19) threads = 1;
        const int64_t items = kernels_.items(c);
        const int64_t segments = (c.Nk + regard::SEGMENT - 1) / regard::SEGMENT;
        const int64_t each = kernels_.scratch(c);
        int64_t sums = kernels_.partial(c);  // of one item over one segment
        const bool split = segments > 1 && items < threads && sums * items * segments < MOST_SUMS;
        if (!split) sums = 0;
        const int64_t tasks = split ? items * segments : items;
        if (threads > tasks) threads = tasks;
        auto scratch = room(each * threads + 64);
        auto partials = room(sums * tasks + 64);
        Polling polling;
        std::atomic<bool> strange{false};
        c.strange = &strange;
        int took = 1;
        {
            nb::gil_scoped_release release;
            const regard::Arithmetic standard;
            took = regard::run_tasks(threads, tasks, [&](int64_t task, int slot) {
                regard::Watch quiet{&polling.stop_};
                regard::Watch &watch = slot == 0 ? polling : quiet;
                if (watch.stopped()) return;
                char *mine = scratch.get() + slot * each;
                if (split)
                    kernels_.run(c, task / segments, task % segments, partials.get() + task * sums,
                                 mine, watch);
                else
                    kernels_.run(c, task, -1, nullptr, mine, watch);
            }, [&] { polling.look(polling); });
            for (int64_t i = 0; split && i < items && !polling.stop_; i++)
                kernels_.merge(c, i, segments, partials.get() + i * segments * sums, scratch.get());
        }
        if (polling.interrupted) throw nb::python_error();
        return nb::make_tuple(took, tasks, split, kernels_.few(c), strange.load());
    }

    // Weights of some rows and keys of a head: into out, (rows, keys) contiguous.
    void weights(int64_t b, int64_t head, nb::ndarray<const int64_t, nb::c_contig, nb::device::cpu> rows,
                 nb::ndarray<const int64_t, nb::c_contig, nb::device::cpu> keys, Given out) {
        const Call c = call_;
        auto scratch = room(kernels_.scratch(c) + 64);
        nb::gil_scoped_release release;
        const regard::Arithmetic standard;
        kernels_.weights(c, b, head, rows.data(), rows.size(), keys.data(), keys.size(),
                         const_cast<void *>(out.data()), scratch.get());
    }

  private:
    const Kernels &kernels_;
    Call call_;
    std::vector<Given> kept_;
};

std::vector<std::string> names() {
    std::vector<std::string> all;
    for (const Kernels *set : available()) all.push_back(set->name);
    return all;
}

}  // namespace

NB_MODULE(_native, m) {
    m.def("power", [](const std::string &set, Given x) {
        by_name(set).power(const_cast<void *>(x.data()), (int64_t)x.size(), x.itemsize() == 8);
    }, "2^x in place, of a contiguous float32 or float64 array: the softmax's exponential.");
    m.def("sets", &names, "Names of the instruction sets that this machine can run, the best last.");
    nb::class_<NativeCall>(m, "Call")
        .def(nb::init<const std::string &, Given, Given, Given, int, int, Maybe, Maybe, Maybe, Maybe, int,
                      Maybe, Maybe, Maybe, double, double, bool>(),
             nb::arg("set"), nb::arg("query"), nb::arg("key"), nb::arg("value"), nb::arg("query_type"),
             nb::arg("key_type"), nb::arg("lo").none(), nb::arg("hi").none(), nb::arg("mask").none(),
             nb::arg("bias").none(), nb::arg("bias_type"), nb::arg("slopes").none(), nb::arg("sinks").none(),
             nb::arg("start").none(), nb::arg("scale"), nb::arg("softcap"), nb::arg("natural"))
        .def("run", &NativeCall::run, nb::lock_self(), nb::arg("output"), nb::arg("maximum"),
             nb::arg("reciprocal"), nb::arg("lse"), nb::arg("threads"))
        .def("weights", &NativeCall::weights, nb::lock_self(), nb::arg("b"), nb::arg("head"),
             nb::arg("rows"), nb::arg("keys"), nb::arg("out"));
}
