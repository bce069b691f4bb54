"""Does a test fail when the kernels are wrong? The mutation check of native/.

As in mutations.py, each mutation is one mistake in a copy of the sources. A worker keeps one copy and
the folder where it is built, with the AVX2 kernels alone (NEON's on Arm), and those of bfloat16 where
the processor has them, so that a mistake costs one compilation of the file that it is in, or two.
Needs CMake and nanobind in the environment.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Empty, SimpleQueue
from shutil import copy2, copytree

from mutations import (
    ROOT,
    Mutation,
    Processes,
    Verdict,
    apply,
    copy_of,
    first_failure,
    occurrences,
    report,
)
from regard.engines.native import PAIRS

SETS = ["avx2", "neon", *(name.removeprefix("native-").replace("-", "_") for name in PAIRS)]
TESTS = ["test_semantics", "engines/test_native_bits", "engines/test_native_pairs", "engines/test_native",
         "engines/test_native_process", "test_kernels", "test_elementwise"]  # fmt: skip

MISTAKES = {
    "vectors.hpp": [
        ("exp: a NaN is no longer one", "y[i] = y[i] < E::least ? Vec<T>{} : p[i];", "y[i] = y[i] >= E::least ? p[i] : Vec<T>{};"),
        ("exp: below -126 it is not 0", "y[i] = y[i] < E::least ? Vec<T>{} : p[i];", "y[i] = p[i];"),
        ("exp: a constant in its seventh digit", "0.0555033247126f", "0.0555043247126f"),
        ("exp: float64, a constant in its tenth digit", "0.055504108664821687112", "0.055504108764821687112"),
    ],
    "reading.hpp": [
        ("float16: rounded down, not to nearest even", "(bits - 0x38000000 + 0xfff + odd)", "(bits - 0x38000000)"),
        ("bfloat16: rounded down, not to nearest even", "(bits + 0x7fff + ((bits >> 16) & 1))", "bits"),
        ("bias: a finite one may become infinite", "return (T)(x > limit && x < infinite ? limit : x < -limit && x > -infinite ? -limit : x);", "return (T)x;"),
    ],
    "factors.hpp": [
        ("rows: a packed key is the one before", "(list ? list[j] : first + j) * a.row, columns, packed", "(list ? list[j] : first + (j ? j - 1 : 0)) * a.row, columns, packed"),
        ("hidden: multiplied by 0, not selected away", "return (p == (T)0) & (1 / p < (T)0) ? Vec<T>{} : seen;", "return seen;"),
    ],
    "scores.hpp": [
        ("output: no fresh accumulators for a tile", "            store(o + i * W<T>, fma(load<Vec<T>>(before + i * step), a[v], acc[r][v]));",
         "            Vec<T> sum = load<Vec<T>>(before + i * step) * a[v];\n"
         "            for (int64_t t = 0; t < n; t++)\n"
         "                sum = fma(spread<Vec<Factor<T>>>(x[r + t * stride]), load<Vec<Factor<T>>>(p + (t * V + v) * W<T>), sum);\n"
         "            store(o + i * W<T>, sum);"),
        ("output: a tile is added to nothing, not to those before", "const int64_t step = fresh ? 0 : W<T>;", "before = (const T *)&nothing;\n    const int64_t step = 0;"),
        ("interval: the first vector is spared a key that it sees", "least(keys.n, k.early_last - keys.j0)", "least(keys.n, k.early_last - 1 - keys.j0)"),
        ("interval: the first vector is spared what the second does not see", "if (i + 1 == W<T>) k.early_last = last;", "if (i + 1 == k.L) k.early_last = early;"),
        ("blocks: the last one computes the first again", "of_size<REACH>(n - i - first, i + first, f);", "of_size<REACH>(n - i - first, i, f);"),
        ("softcap: without the multiplication", "cap * tanh_(load<Vec<T>>(s + i) / cap)", "tanh_(load<Vec<T>>(s + i) / cap)"),
        ("scale: base 2 without log2(e)", "(T)(c.scale * LOG2E)", "(T)c.scale"),
        ("alibi: with its sign flipped", "return saturated<T>(-slope * (double)", "return saturated<T>(slope * (double)"),
        ("mask: inverted on a short last tile", "to[j] = !row[keys[j] * c.mask.column] ?", "to[j] = (row[keys[j] * c.mask.column] != 0) == (keys.n < TILE) ?"),
        ("mask: a listed key's is that of its place in the list", "row[keys[j] * c.mask.column]", "row[j * c.mask.column]"),
        ("bias: -inf does not hide a NaN score", "return x == -infinity<T>() ? x : score + x;", "return score + x;"),
        ("interval: one key too many at its end", "(at < to)", "(at <= to)"),
        ("interval: one key too few at its beginning", "(at >= from)", "(at > from)"),
        ("interval: where it begins is not looked at", "k.late_lo > keys.j0 || k.early_hi", "k.early_hi"),
        ("interval: a listed key at its end is seen", "keys[j] >= k.hi[i]", "keys[j] > k.hi[i]"),
    ],
    "softmax.hpp": [
        ("softmax: the maximum of the tiles before is forgotten", "top[v] = k.m[v],", "top[v] = spread<Vec<T>>(-infinity<T>()),"),
        ("softmax: the sum is not rescaled", "k.l[v] = fma(k.l[v], carry[v], sum[v]), ", "k.l[v] = k.l[v] + sum[v], "),
        ("softmax: rescaled by the wrong difference", "units.power(k.m[v] - shift[v]);", "units.power(top[v] - shift[v]);"),
        ("softmax: nothing seen yet shifts by -inf", "return m == -infinity<T>() ? Vec<T>{} : m;", "return m;"),
        ("merge: the earlier segments are not rescaled", "load<Vec<T>>(place) * a));", "load<Vec<T>>(place)));"),
        ("merge: the later segment is not rescaled", "k.S[v] = fma(l[v], b, k.S[v] * a);", "k.S[v] = l[v] + k.S[v] * a;"),
        ("sink: counted twice", "(T)0 : (T)1;\n    }", "(T)0 : (T)2;\n    }"),
        ("row: nothing seen is divided by 0", "k.S[v] == (T)0 ? Vec<T>{} : (T)1 / k.S[v]", "(T)1 / k.S[v]"),
        ("row: the sum is kept, not its reciprocal", "((T *)c.reciprocal)[at] = r[i", "((T *)c.reciprocal)[at] = k.S[i"),
    ],
    "few.hpp": [
        ("few: one key too many at the end of the interval", "most<int64_t>(0, k.hi[i] - keys.j0); j < keys.n", "most<int64_t>(0, k.hi[i] - keys.j0 + 1); j < keys.n"),
        ("few: a tile begins with the sums of the one before", "std::memset(strip.tile, 0, FEW<T> * strip.columns * sizeof(T));", ""),
        ("few: the last odd query is left out", "if (i < n) f.template operator()<1>(i);", ""),
        ("few: the maximum of a vector leaves out its last lane", "for (int w = 1; w < W<T>; w++) top[i]", "for (int w = 1; w < W<T> - 1; w++) top[i]"),
        ("few: a value's last columns are those of the next", "(d, least<int64_t>(W<T>, Dv - d));", "(d, least<int64_t>(1, Dv - d));"),
        ("few: a weight is left out of its sum", "for (int64_t j = 0; j < n; j++)\n#pragma", "for (int64_t j = 1; j < n; j++)\n#pragma"),
    ],
    "few_scores.hpp": [
        ("few: not against more than a segment of keys", "return c.rows() <= FEW<T>;", "return c.rows() <= FEW<T> && c.Nk <= SEGMENT;"),
        ("few: the last group of keys ends before the last key", "from = least(j, n - N);", "from = least(j, most<int64_t>(0, n - N - 1));"),
        ("few: of fewer keys than a group the first is taken for all", "keys[least(j, n - 1)], bytes", "keys[0], bytes"),
        ("few: four queries share the depths of one", "repeat(q + at * P)...", "repeat(q + at % 3 * P)..."),
        ("few: the last depths are left out", "for (; d < D; d++, q += Q)", "for (; d + 1 < D; d++, q += Q)"),
    ],
    "kernel.cpp": [
        ("segments: a short last one is skipped", "s * SEGMENT < last; s++", "s * SEGMENT < last - 3; s++"),
        ("segments: merged in reverse", "for (int64_t s = 0; s < segments; s++) {", "for (int64_t s = segments - 1; s >= 0; s--) {"),
        ("heads: query head h reads key head h % Hkv", "k.head[l] = h, ", "k.head[l] = h % c.group() * c.Hkv + h / c.group(), "),
        ("tiles: the last key of a block's is left out", "least(tile.j0 + tile.n, factors_of(k.last) * EACH) - from", "least(tile.j0 + tile.n - (tile.n == TILE), factors_of(k.last) * EACH) - from"),
        ("hidden: a sum that is not finite is not looked at again", "if (finite) break;", "if (care) break;"),
        ("weights: not divided by the sum", "(T)0 : p * r;", "(T)0 : p;"),
    ],
    "widening.hpp": [
        ("blocks: Q4_0 without its 8", "nibbles(p + 2, scale, scale * -8.0f, to)", "nibbles(p + 2, scale, F{}, to)"),
        ("blocks: the high halves stand first", "to[v + VECTORS / 2] = fma(numbers(b >> 4)", "to[v + VECTORS / 2] = fma(numbers(b & 15)"),
        ("blocks: Q8_0 without its sign", "numbers(bytes((const int8_t *)p + 2", "numbers(bytes((const uint8_t *)p + 2"),
        ("products: what is left of a row is a number short", "std::memcpy(whole, p, n * (Kind::block / STEP));", "std::memcpy(whole, p, (n - 1) * (Kind::block / STEP));"),
        ("products: without their bias", "y[o] = bias ? from[o] + bias[o] : from[o];", "y[o] = from[o];"),
    ],
    "few_rows.hpp": [
        ("products: all rows of a group are the first", "const float *rows = p.x + row * p.in;", "const float *rows = p.x;"),
        ("products: few rows leave out the end of their depth", "for (int v = 0; v * L < rest; v++) a[r][o]", "for (int v = 0; (v + 1) * L < rest; v++) a[r][o]"),
    ],
    "many_rows.hpp": [
        ("products: chains are added in order, not as lanes are", "l = 2 * l + (i / bit & 1);", "l = i;"),
        ("products: a part of the depth forgets the one before", "a[r][g] = part.begin ? kept[r * OUTS + g] : F{};", "a[r][g] = F{};"),
        ("products: many rows leave out the end of their depth", "if (full < n) carry<R>(rest", "if (full < n - 1) carry<R>(rest"),
        ("products: the last outputs of a panel are not written", "for (int64_t l = 0; l < n; l++) y[l]", "for (int64_t l = 0; l < n - 1; l++) y[l]"),
    ],
    "signals.hpp": [
        ("calls: Ctrl-C is not heard", "if (PyErr_CheckSignals() != 0) interrupted_ = stop = true;", ""),
    ],
    "bindings_layers.cpp": [
        ("gates: their rows lie together", "b ? b + r * others : nullptr", "b ? b + r * n : nullptr"),
        ("rotation: each head begins at the first", "i / N * x.stride(0)", "0 * x.stride(0)"),
    ],
    "elementwise.cpp": [
        ("rotation: the wrong way", "y[i] = a * cosine[i] - b * sine[i];", "y[i] = a * cosine[i] + b * sine[i];"),
        ("layer norm: without its epsilon", "squares / (float)D + c.epsilon", "squares / (float)D"),
        ("GELU: a constant in its third digit", "0.139863515f", "0.138863515f"),
    ],
    "bindings.cpp": [
        ("strides: columns are taken to be side by side", "given->stride(axes + 2) * size", "size"),
    ],
    "execute.cpp": [
        ("split: the last segment is not merged", "kernels.merge(c, i, segments, ", "kernels.merge(c, i, segments - 1, "),
        ("calls: small ones too are spread over threads", "< ALONE ? SMALL / 4 : SMALL)", "< ALONE ? 0 : 0)"),
    ],
    "engines/native.py": [
        ("lse: in base 2", "(1 if natural else np.log(2))", "1"),
        ("units: base 2 where something natural is added", "if p.bias is not None or p.alibi", "if p.alibi"),
    ],
    "arithmetic.hpp": [
        ("rounding: left as the thread was told", "_mm_setcsr(0x1f80);", ""),
    ],
    "pool.cpp": [
        ("pool: without a thread the call fails", "return threads_;\n", "throw;\n"),
    ],
}  # fmt: skip

# Of the set that computes by dot products of bfloat16: caught where a processor has them.
OF_PAIRS = {
    "factors.hpp": [
        ("pairs: the odd last depth goes with what lies beyond", "d + 1 < n ? (uint32_t)peek", "d < n ? (uint32_t)peek"),
        ("pairs: two keys' columns change places", "const Brains x = load<Brains>((const uint16_t *)a), y = b ?", "const Brains y = load<Brains>((const uint16_t *)a), x = b ?"),
        ("pairs: a key alone goes with itself", "y = j + 1 < n ? x + a.row : nullptr;", "y = j + 1 < n ? x + a.row : x;"),
        ("pairs: scores are not scaled", "return score * factor;", "return score;"),
        ("pairs: weights are cut off, not rounded", "const Brains rounded = (Brains)_mm512_cvtne2ps_pbh((__m512)b, (__m512)a);",
         "const Brains rounded = (Brains)pick((Brains)a, (Brains)b, [](int l) { return 2 * l + 1; }, std::make_index_sequence<2 * W<float>>());"),
        ("pairs: a hidden number that is not finite counts", "if (!ordinary) seen = ", "if (false) seen = "),
        ("pairs: the hidden one takes the seen one with it", "? seen & ~half : seen", "? Words{} : seen"),
    ],
    "few.hpp": [
        ("pairs: one query begins at an odd key", "j0 = first / EACH * EACH, end;", "j0 = first, end;"),
    ],
    "kernel.cpp": [
        ("pairs: a block begins at an odd key", "k.first / EACH * EACH)", "k.first)"),
    ],
}  # fmt: skip


def _listed(mistakes_of: dict[str, list[tuple[str, str, str]]]) -> list[Mutation]:
    return [
        Mutation(name, file if "/" in file else f"../../native/{file}", old, new)
        for file, mistakes in mistakes_of.items()
        for name, old, new in mistakes
    ]


MUTATIONS = _listed(MISTAKES) + _listed(OF_PAIRS)


def run(command: list[str]) -> None:
    """Runs a command; a RuntimeError says how it failed."""
    ran = subprocess.run(command, capture_output=True, text=True)
    if ran.returncode:
        raise RuntimeError(f"{command[0]} failed\n{(ran.stdout + ran.stderr)[-2000:]}")


class Workshop:
    """A copy of the project, and the folder where its native module is built again and again."""

    def __init__(self, copy: Path, processes: Processes) -> None:
        self.copy, self.processes = copy, processes
        for name in ("native", "tests"):
            copytree(ROOT / name, copy / name, dirs_exist_ok=True)
        copy2(ROOT / "CMakeLists.txt", copy)
        nanobind = subprocess.check_output(
            [sys.executable, "-m", "nanobind", "--cmake_dir"], text=True
        )
        run(["cmake", "-S", str(copy), "-B", str(copy / "build"), f"-DREGARD_ONLY={';'.join(SETS)}",
             "-DREGARD_OPTIMIZE=-O1", "-DCMAKE_BUILD_TYPE=None", f"-Dnanobind_DIR={nanobind.strip()}",
             f"-DPython_EXECUTABLE={sys.executable}"])  # fmt: skip

    def test(self) -> tuple[str, str]:
        """Builds, and runs the tests until one fails: survived, caught or error, and what tells more."""
        try:
            run(["cmake", "--build", str(self.copy / "build")])
        except RuntimeError as error:
            return "error", str(error)
        for module in (self.copy / "build").glob("_native.*"):
            copy2(module, self.copy / "src" / "regard" / "engines")
        options = (
            "-x",
            "-q",
            "-m",
            "not slow",
            "-k",
            "native",
            "-p",
            "no:cacheprovider",
            "--tb=line",
        )
        files = [f"tests/{name}.py" for name in TESTS]
        code, said = self.processes.run(self.copy, "-m", "pytest", *options, *files)
        if code == 0:
            return "survived", "every test passes"
        return "caught", first_failure(said) if code == 1 else f"the process ended: {code}"

    def try_mutation(self, mutation: Mutation) -> Verdict:
        begun = time.perf_counter()
        file = self.copy / "src" / "regard" / mutation.file
        text = file.read_text(encoding="utf-8")
        if occurrences(mutation, self.copy) != 1:
            status, detail = "error", f"mutation no longer applies to {mutation.file}"
        else:
            apply(mutation, self.copy)
            status, detail = self.test()
            file.write_text(text, encoding="utf-8")
        return Verdict(mutation.name, status, detail, time.perf_counter() - begun)


def run_all(
    mutations: Iterable[Mutation], jobs: int, tell: Callable[[Verdict], object] = lambda _: None
) -> list[Verdict]:
    """A verdict for each mutation. A RuntimeError says that the unmutated copy does not pass."""
    processes, waiting, verdicts = Processes(), SimpleQueue[Mutation](), []
    for mutation in mutations:
        waiting.put(mutation)

    def work(_: int) -> None:
        with copy_of(ROOT) as copy:
            workshop = Workshop(copy, processes)
            status, detail = workshop.test()
            if status != "survived":
                raise RuntimeError(
                    f"the unmutated copy must pass its tests, got {status}: {detail}"
                )
            while True:
                try:
                    verdicts.append(workshop.try_mutation(waiting.get_nowait()))
                except Empty:
                    return
                tell(verdicts[-1])

    with ThreadPoolExecutor(jobs) as pool:
        try:
            list(pool.map(work, range(jobs)))
        except BaseException:
            processes.stop()
            raise
    return verdicts


if __name__ == "__main__":
    if not PAIRS:
        print(
            "left out, since this processor has no dot products of bfloat16:",
            len(_listed(OF_PAIRS)),
        )
    sys.exit(report(MUTATIONS if PAIRS else _listed(MISTAKES), run_all))
