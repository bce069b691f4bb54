// What Python sees of attention. With bindings_layers.cpp and signals.hpp all here that knows Python.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "arithmetic.hpp"
#include "execute.hpp"
#include "look.hpp"
#include "pool.hpp"
#include "signals.hpp"

namespace nb = nanobind;

#define REGARD_SET(name)                                           \
    namespace regard_##name {                                      \
    extern const regard::Kernels kernels;                          \
    int64_t multiply_adds(int64_t steps, bool wide, double *kept); \
    uint32_t read(const char *bytes, int64_t n);                   \
    }
REGARD_SETS
REGARD_PAIR_SETS
#undef REGARD_SET

namespace {

using regard::Array, regard::Call, regard::Kernels, regard::Type;
using Given = nb::ndarray<nb::ro, nb::device::cpu>;
using Maybe = std::optional<Given>;

struct Sets {
    std::vector<const Kernels *> all, pairs;  // for every dtype, the best last; for bfloat16 alone
};

// The sets that this processor, and its system, can run.
Sets find_sets() {
    Sets sets;
    [[maybe_unused]] auto runs_baseline = [] { return true; };
    [[maybe_unused]] auto runs_neon = [] { return true; };
#if defined(__x86_64__)
    __builtin_cpu_init();
    [[maybe_unused]] auto runs_avx2 = [] { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c"); };
    [[maybe_unused]] auto runs_avx512 = [&] { return runs_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq"); };
    [[maybe_unused]] auto runs_avx512_bf16 = [&] { return runs_avx512() && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512bf16"); };
#endif
#define REGARD_SET(name) \
    if (runs_##name()) sets.all.push_back(&regard_##name::kernels);
    REGARD_SETS
#undef REGARD_SET
#define REGARD_SET(name) \
    if (runs_##name()) sets.pairs.push_back(&regard_##name::kernels);
    REGARD_PAIR_SETS
#undef REGARD_SET
    return sets;
}
const Sets &available() {
    static const Sets sets = find_sets();
    return sets;
}

const Kernels &by_name(const std::string &name) {
    for (const auto &sets : {available().all, available().pairs})
        for (const Kernels *set : sets)
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

regard::Ran compute(const Kernels &kernels, const Call &call, int64_t threads) {
    Signals signals;
    regard::Ran ran;
    {
        nb::gil_scoped_release release;
        ran = regard::execute(kernels, call, threads, signals.stop, [&] { signals.look(); });
    }
    signals.raise();
    return ran;
}

// Whether products of sizes, which views of no memory can have, stay within 64 bits.
bool fits_scratch(const Call &c) { return c.D <= int64_t(1) << 40 && c.Dv <= int64_t(1) << 40; }

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
        if (!fits_scratch(c)) throw nb::value_error("a head size of more than 2**40 has no room in memory");
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

    // Computes all; returns (threads that it had, tasks, whether segments were split, whether queries
    // were few, whether an output is not finite).
    nb::tuple run(Given output, Given maximum, Given reciprocal, int64_t threads) {
        call_.maximum = const_cast<void *>(maximum.data());
        call_.reciprocal = const_cast<void *>(reciprocal.data());
        for (const Given &g : {maximum, reciprocal}) kept_.push_back(g);
        Call c = call_;
        c.output = array_of(Maybe(output), c.query.type, c.axes);
        const regard::Ran ran = compute(kernels_, c, regard::is_small(c) ? 1 : threads);
        return nb::make_tuple(ran.threads, ran.tasks, ran.split, kernels_.few(c), ran.strange);
    }

    // Weights of some rows and keys of a head: into out, (rows, keys) contiguous.
    void weights(int64_t b, int64_t head, nb::ndarray<const int64_t, nb::c_contig, nb::device::cpu> rows,
                 nb::ndarray<const int64_t, nb::c_contig, nb::device::cpu> keys, Given out) {
        const Call c = call_;
        nb::gil_scoped_release release;
        std::vector<char> scratch(kernels_.scratch(c) + 64);
        const regard::Arithmetic standard;
        kernels_.weights(c, b, head, rows.data(), rows.size(), keys.data(), keys.size(),
                         const_cast<void *>(out.data()), scratch.data());
    }

    // Statistics of the weights, into contiguous arrays of zeros (keys: of -1).
    void look(Maybe received, Maybe entropy, Maybe distances, Maybe top, Maybe keys, Maybe pooled, bool most,
              int64_t threads) {
        const Call c = call_;
        regard::Looking what;
        what.received = filled<double>(received), what.distances = filled<double>(distances);
        what.entropy = filled<double>(entropy), what.pooled = filled<double>(pooled), what.most = most;
        what.weights = filled<double>(top), what.keys = filled<int64_t>(keys);
        if (top) what.k = top->shape(top->ndim() - 1);
        if (pooled) what.rows = pooled->shape(pooled->ndim() - 2), what.columns = pooled->shape(pooled->ndim() - 1);
        Signals signals;
        {
            nb::gil_scoped_release release;
            regard::look(kernels_, c, what, threads, signals.stop, [&] { signals.look(); });
        }
        signals.raise();
    }

  private:
    template <class X> static X *filled(const Maybe &given) {
        return given && given->size() ? (X *)const_cast<void *>(given->data()) : nullptr;
    }

    const Kernels &kernels_;
    Call call_;
    std::vector<Given> kept_;
};

// ------------------------------------------------------------- the plain call, without ceremony

// An array by the buffer protocol, which takes less time than DLPack: (lead, H, N, columns) or (N, columns).
class Buffer {
  public:
    explicit Buffer(nb::handle x) : got_(PyObject_GetBuffer(x.ptr(), &view_, PyBUF_STRIDES) == 0) {
        if (!got_) PyErr_Clear();
    }
    Buffer(const Buffer &) = delete;
    Buffer &operator=(const Buffer &) = delete;
    ~Buffer() {
        if (got_) PyBuffer_Release(&view_);
    }

    int axes() const { return view_.ndim; }
    int64_t itemsize() const { return view_.itemsize; }
    int64_t shape(int axis) const { return view_.shape[axis]; }

    // Whether it has rows and columns, none of its axes is empty, and all lies in whole items.
    bool is_plain() const {
        if (!got_ || view_.ndim < 2 || (size_t)view_.buf % view_.itemsize != 0) return false;
        for (int i = 0; i < view_.ndim; i++)
            if (view_.shape[i] == 0 || view_.strides[i] % view_.itemsize != 0) return false;
        return true;
    }
    bool same_up_to_heads(const Buffer &other) const {
        if (view_.ndim != other.view_.ndim) return false;
        for (int i = 0; i + 3 < view_.ndim; i++)
            if (view_.shape[i] != other.view_.shape[i]) return false;
        return true;
    }
    // One without heads has a head of stride 0.
    Array array(Type type) const {
        const int n = view_.ndim;
        Array a;
        a.data = (char *)view_.buf, a.type = type;
        for (int i = 0; i + 3 < n; i++) a.lead[i] = view_.strides[i];
        a.head = n > 2 ? view_.strides[n - 3] : 0, a.row = view_.strides[n - 2], a.column = view_.strides[n - 1];
        return a;
    }

  private:
    Py_buffer view_;
    bool got_;
};

// Whether the arrays fit each other; their sizes.
bool fit(const Buffer &query, const Buffer &key, const Buffer &value, Call &c) {
    for (const Buffer *x : {&query, &key, &value})
        if (!x->is_plain()) return false;
    const int n = query.axes();
    if (n > regard::MAX_LEAD + 3 || !query.same_up_to_heads(key) || !query.same_up_to_heads(value)) return false;
    c.axes = std::max(0, n - 3);
    for (int i = 0; i < c.axes; i++) c.batch *= c.lead[i] = query.shape(i);
    c.H = n < 3 ? 1 : query.shape(n - 3), c.Hkv = n < 3 ? 1 : key.shape(n - 3);
    c.Nq = query.shape(n - 2), c.Nk = key.shape(n - 2), c.D = query.shape(n - 1), c.Dv = value.shape(n - 1);
    return key.shape(n - 1) == c.D && value.shape(n - 2) == c.Nk && c.H % c.Hkv == 0 &&
           (n < 3 || value.shape(n - 3) == c.Hkv) && fits_scratch(c);
}

// A new array of that dtype, like `query` but for its last axis.
nb::object empty_like(const Buffer &query, int64_t last, nb::handle empty, nb::handle dtype) {
    const int n = query.axes();
    nb::object shape = nb::steal(PyTuple_New(n));
    for (int i = 0; i < n && shape.is_valid(); i++) {
        PyObject *size = PyLong_FromLongLong(i + 1 < n ? query.shape(i) : last);
        if (!size) throw nb::python_error();
        PyTuple_SET_ITEM(shape.ptr(), i, size);
    }
    if (!shape.is_valid()) throw nb::python_error();
    return empty(shape, dtype);
}

// Attention of three arrays of that dtype, full, or causal with query 0 at `start`, by the best set; a start
// below 0 and a scale of NaN are not said. None where they do not fit or an output is not finite: such calls
// take the road on which everything is checked and named.
nb::object plain(nb::handle q, nb::handle k, nb::handle v, nb::handle dtype, bool causal, int64_t start, double scale,
                 nb::handle empty, nb::handle get_threads) {
    const Buffer query(q), key(k), value(v);
    Call c;
    if (!fit(query, key, value, c) || (causal && start < 0 && c.Nq != c.Nk)) return nb::none();
    const nb::object out = empty_like(query, c.Dv, empty, dtype);
    const Buffer output(out);
    const Type type = query.itemsize() == 2 ? Type::f16 : query.itemsize() == 4 ? Type::f32 : Type::f64;
    c.query = query.array(type), c.key = key.array(type);
    c.value = value.array(type), c.output = output.array(type);
    if (std::isnan(scale)) scale = 1 / std::sqrt((double)c.D);
    c.scale = type == Type::f64 ? scale : (float)scale;
    std::vector<int64_t> hi(causal ? c.Nq : 0);
    for (int64_t i = 0; i < (int64_t)hi.size(); i++) hi[i] = std::min(std::max<int64_t>(start, 0) + i + 1, c.Nk);
    if (causal) c.hi.data = (char *)hi.data(), c.hi.type = Type::i64, c.hi.row = 8;
    const int64_t threads = regard::is_small(c) ? 1 : nb::cast<int64_t>(get_threads());
    return compute(*available().all.back(), c, threads).strange ? nb::none() : out;
}

// The limits of the machine, of one set, for the benchmarks.
struct Limits {
    int64_t (*multiply_adds)(int64_t, bool, double *);
    uint32_t (*read)(const char *, int64_t);
};

Limits limits_of(const std::string &name) {
#define REGARD_SET(set) \
    if (&by_name(name) == &regard_##set::kernels) return {regard_##set::multiply_adds, regard_##set::read};
    REGARD_SETS
    REGARD_PAIR_SETS
#undef REGARD_SET
    throw nb::value_error("no such set");
}

// All threads at once; returns the operations that were done.
int64_t multiply_adds(const std::string &set, int64_t steps, bool wide, int64_t threads) {
    const Limits limits = limits_of(set);
    std::atomic<int64_t> operations{0};
    std::vector<double> kept(threads);
    nb::gil_scoped_release release;
    regard::run_tasks(threads, threads, [&](int64_t i, int) {
        operations += limits.multiply_adds(steps, wide, &kept[i]);
    }, [] {});
    return operations;
}

// All threads read their parts; the value means nothing.
uint32_t read_all(const std::string &set, Given bytes, int64_t threads) {
    const Limits limits = limits_of(set);
    const int64_t n = (int64_t)bytes.nbytes(), parts = 64 * threads, each = n / parts & ~int64_t(63);
    std::atomic<uint32_t> all{0};
    nb::gil_scoped_release release;
    regard::run_tasks(threads, parts, [&](int64_t i, int) {
        const int64_t start = i * each, stop = i == parts - 1 ? n : start + each;
        all ^= limits.read((const char *)bytes.data() + start, stop - start);
    }, [] {});
    return all;
}

std::vector<std::string> names_of(const std::vector<const Kernels *> &sets) {
    std::vector<std::string> names;
    for (const Kernels *set : sets) names.push_back(set->name);
    return names;
}

}  // namespace

void bind_layers(nb::module_ &m, std::vector<std::string> sets);  // in bindings_layers.cpp

NB_MODULE(_native, m) {
    bind_layers(m, names_of(available().all));
    m.def("power", [](const std::string &set, Given x) {
        by_name(set).power(const_cast<void *>(x.data()), (int64_t)x.size(), x.itemsize() == 8);
    }, "2^x in place, of a contiguous float32 or float64 array: the softmax's exponential.");
    m.def("sets", [] { return names_of(available().all); },
          "Names of the instruction sets that this machine can run, the best last.");
    m.def("pair_sets", [] { return names_of(available().pairs); }, "Those that compute bfloat16 alone.");
    m.def("plain", &plain, nb::arg("query"), nb::arg("key"), nb::arg("value"), nb::arg("dtype"), nb::arg("causal"),
          nb::arg("start"), nb::arg("scale"), nb::arg("empty"), nb::arg("get_threads"),
          "The output of a plain call, or None.");
    m.def("multiply_adds", &multiply_adds, nb::arg("set"), nb::arg("steps"), nb::arg("wide"), nb::arg("threads"),
          "Multiply-adds in registers; returns how many operations, of float64 if wide.");
    m.def("read", &read_all, nb::arg("set"), nb::arg("bytes"), nb::arg("threads"),
          "Reads a contiguous array once.");
    nb::class_<NativeCall>(m, "Call")
        .def(nb::init<const std::string &, Given, Given, Given, int, int, Maybe, Maybe, Maybe, Maybe, int,
                      Maybe, Maybe, Maybe, double, double, bool>(),
             nb::arg("set"), nb::arg("query"), nb::arg("key"), nb::arg("value"), nb::arg("query_type"),
             nb::arg("key_type"), nb::arg("lo").none(), nb::arg("hi").none(), nb::arg("mask").none(),
             nb::arg("bias").none(), nb::arg("bias_type"), nb::arg("slopes").none(), nb::arg("sinks").none(),
             nb::arg("start").none(), nb::arg("scale"), nb::arg("softcap"), nb::arg("natural"))
        .def("run", &NativeCall::run, nb::lock_self(), nb::arg("output"), nb::arg("maximum"),
             nb::arg("reciprocal"), nb::arg("threads"))
        .def("weights", &NativeCall::weights, nb::lock_self(), nb::arg("b"), nb::arg("head"),
             nb::arg("rows"), nb::arg("keys"), nb::arg("out"))
        .def("look", &NativeCall::look, nb::lock_self(), nb::arg("received").none(),
             nb::arg("entropy").none(), nb::arg("distances").none(), nb::arg("top").none(),
             nb::arg("keys").none(), nb::arg("pooled").none(), nb::arg("most"), nb::arg("threads"));
}
