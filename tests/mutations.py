"""Does a test fail when the arithmetic is wrong? The mutation check.

Each mutation is one mistake that a programmer could make: a text of `src/regard`, and the wrong text
in its place. The project is copied to a fresh folder, the text is replaced there, and pytest runs on
the copy. A mutation is caught when a test fails, and survives when all pass.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
# The test files: what catches most in little time stands first.
TESTS = ["test_reference", "test_semantics", "engines/test_tiled", "test_masks", "test_properties",
         "test_problem"]  # fmt: skip
TIMEOUT = 300  # seconds for one run of pytest; where nothing fails it takes about 12

# For each file the mistakes in it: a name, the text as it is, the text as it must not be.
MISTAKES = {
    "reference.py": [
        ("article: softmax without its maximum", "np.exp(x - x.max(axis=axis, keepdims=True))", "np.exp(x)"),
        ("article: queries and keys swapped", "scores = q @ k.swapaxes", "scores = k @ q.swapaxes"),
        ("article: no 1/√d", " / np.sqrt(k.shape[-1])", ""),
        ("article: causal without the token itself", "np.tri(*scores.shape[-2:])", "np.tri(*scores.shape[-2:], -1)"),
        ("article: causal sees one token ahead", "np.tri(*scores.shape[-2:])", "np.tri(*scores.shape[-2:], 1)"),
        ("article: a hidden score is 0", "np.where(seen, scores, -np.inf)", "np.where(seen, scores, 0)"),
        ("article: a hidden score is -1e4", "np.where(seen, scores, -np.inf)", "np.where(seen, scores, -1e4)"),
        ("article: weights hidden after the softmax, not before",
         "        scores = np.where(seen, scores, -np.inf)\n    weights = softmax_lastdim(scores)",
         "    weights = softmax_lastdim(scores)\n    if do_mask:\n        weights = np.where(seen, weights, 0)"),
        ("article: Wk and Wq swapped on the way in", "_attend(x @ Wq, x @ Wk, x @ Wv)", "_attend(x @ Wk, x @ Wq, x @ Wv)"),
        ("article: self_attention takes Wq first", "def self_attention(x: Array, Wk: Array, Wq: Array", "def self_attention(x: Array, Wq: Array, Wk: Array"),
        ("article: self_attention_batched takes Wq first", "_batched(x: Array, Wk: Array, Wq: Array", "_batched(x: Array, Wq: Array, Wk: Array"),
        ("article: cross attention takes its keys from xq", "_attend(xq @ Wq, xv @ Wk, xv @ Wv", "_attend(xv @ Wq, xq @ Wk, xq @ Wv"),
        ("article: heads side by side in reverse order", "np.concatenate(heads, axis=-1)", "np.concatenate(heads[::-1], axis=-1)"),
        ("article: heads summed, not side by side", "np.concatenate(heads, axis=-1)", "np.concatenate([sum(heads)] * len(heads), axis=-1)"),
        ("article: a packed token split without swapaxes", "t.reshape(B, N, NH, D // NH).swapaxes(1, 2)", "t.reshape(B, NH, N, D // NH)"),
        ("article: packed heads glued without swapaxes", "heads.swapaxes(1, 2).reshape(B, N, D)", "heads.reshape(B, N, D)"),
        ("article: packed Qs, Vs, Ks for Qs, Ks, Vs", "q, k, v = (split_heads(t)", "q, v, k = (split_heads(t)"),
        ("article: packed heads forget the mask", "_attend(q, k, v, do_mask)", "_attend(q, k, v)"),
        ("article: einsum without 1/√d", " / np.sqrt(q.shape[-1])", ""),
        ("lesson: attention takes Wk first", "X: Array, Wq: Array, Wk: Array, Wv: Array, causal", "X: Array, Wk: Array, Wq: Array, Wv: Array, causal"),
        ("lesson: attention is not causal unless asked", "causal: bool = True", "causal: bool = False"),
        ("lesson: multihead is not causal", "Wo, do_mask=True)", "Wo, do_mask=False)"),
        ("loop: a token sees one ahead", "x[: i + 1]", "x[: i + 2]"),
        ("reference: queries and keys swapped", "(factor * q) @ k.swapaxes(-2, -1)", "(factor * k) @ q.swapaxes(-2, -1)"),
        ("reference: no 1/√d", "narrow(1 / np.sqrt(D) if", "narrow(1 if"),
        ("reference: 16-bit not widened", "dtype = np.result_type(query.dtype, np.float32)", "dtype = query.dtype"),
        ("reference: head h reads key head h % Hkv", "np.repeat(k, group, axis=-3)", "np.concatenate([k] * group, axis=-3)"),
        ("reference: head h reads value head h % Hkv", "np.repeat(v, group, axis=-3)", "np.concatenate([v] * group, axis=-3)"),
        ("reference: softcap without the multiplication", "cap * np.tanh(scores / cap)", "np.tanh(scores / cap)"),
        ("reference: bias before softcap", "scores = cap * np.tanh(scores / cap)",
         "b = _bias_of_each_pair(bias, *_positions(align, Nq, Nk, causal, mask, bias), dtype)\n"
         "        scores = cap * np.tanh((scores + b) / cap) - b"),
        ("reference: bias added twice", "scores = scores + added", "scores = scores + 2 * added"),
        ("reference: a bias of -inf does not hide a NaN score", " & (added != -np.inf)", ""),
        ("reference: a score of -inf does not hide", "(scores != -np.inf) & (added != -np.inf)", "np.broadcast_to(added != -np.inf, scores.shape).copy()"),
        ("reference: a hidden score is 0", "np.where(visible, scores, -np.inf)", "np.where(visible, scores, 0)"),
        ("reference: a hidden score is -1e4", "np.where(visible, scores, -np.inf)", "np.where(visible, scores, -1e4)"),
        ("reference: a hidden score is finfo.min", "np.where(visible, scores, -np.inf)", "np.where(visible, scores, np.finfo(dtype).min)"),
        ("reference: weights hidden after the softmax, not before", "scores = np.where(visible, scores, -np.inf)", "pass"),
        ("reference: maximum not subtracted", "np.where(maximum == -np.inf, 0, maximum)", "np.zeros_like(maximum)"),
        ("reference: maximum leaves out the sink", "np.maximum(scores.max(axis=-1, keepdims=True, initial=-np.inf), sink)", "scores.max(axis=-1, keepdims=True, initial=-np.inf)"),
        ("reference: sink left out", " + np.exp(sink - shift)", ""),
        ("reference: sink counted twice", " + np.exp(sink - shift)", " + 2 * np.exp(sink - shift)"),
        ("reference: an empty row is NaN", "np.where(visible, exponentials / total, 0)", "exponentials / total"),
        ("reference: an empty row is the mean", "np.where(visible, exponentials / total, 0)", "np.where(visible, exponentials / total, (total == 0) / Nk)"),
        ("reference: lse without the maximum", "lse = (shift + np.log(total))", "lse = np.log(total)"),
        ("reference: a hidden NaN value leaks", "np.where(visible[..., j, None], rest, 0)", "rest"),
        ("reference: a visible NaN value counts for nothing", "np.where(visible[..., j, None], rest, 0)", "0"),
    ],
    "predicates.py": [
        ("predicate: narrow does not saturate", "np.where(np.isfinite(x), np.clip(x, -limit, limit), x).astype", "x.astype"),
        ("predicate: causal without the token itself", "return j <= p\n", "return j < p\n"),
        ("predicate: causal sees one key ahead", "return j <= p\n", "return j <= p + 1\n"),
        ("predicate: window one short on the left", "(p - j <= (left or 0))", "(p - j < (left or 0))"),
        ("predicate: window one long on the right", "(j - p <= (right or 0))", "(j - p <= (right or 0) + 1)"),
        ("predicate: lengths one long", "(start <= j) & (j < n)", "(start <= j) & (j <= n)"),
        ("predicate: a query beside the keys has a document", "== ids) & ~beside", "== ids)"),
        ("predicate: prefix and causal, for prefix or causal", "(j <= p) | (j < n)", "(j <= p) & (j < n)"),
        ("predicate: interval with its end", "(lo <= j) & (j < hi)", "(lo <= j) & (j <= hi)"),
        ("predicate: alibi with its sign flipped", "return -slopes * abs(p - j)", "return slopes * abs(p - j)"),
        ("predicate: alibi without abs", "return -slopes * abs(p - j)", "return -slopes * (p - j)"),
        ("position: bottom-right is Nk - Nq + 1", "end, np.int64) - Nq", "end, np.int64) - Nq + 1"),
        ("position: bottom-right ignores lengths", "np.asarray(Nk if end is None else end, np.int64)", "np.asarray(Nk, np.int64)"),
    ],
    "masks.py": [
        ("mask: causal without the token itself", "return np.int64(0), p + 1\n", "return np.int64(0), p\n"),
        ("mask: causal sees one key ahead", "return np.int64(0), p + 1\n", "return np.int64(0), p + 2\n"),
        ("mask: window one short on the left", "p - min(int(self.left), REACH)", "p - min(int(self.left), REACH) + 1"),
        ("mask: window one short on the right", "p + min(int(self.right), REACH) + 1", "p + min(int(self.right), REACH)"),
        ("mask: lengths ignores the start", "return self.start[..., None, None], self.end", "return np.int64(0), self.end"),
        ("mask: documents end one late", "np.where(ends, j + 1, len(j))", "np.where(ends, j + 2, len(j))"),
        ("mask: documents begin one early", "np.where(begins, j, 0)", "np.where(begins, j - 1, 0)"),
        ("mask: a query beside the keys has a document", "np.where(inside == p, hi, lo)", "hi"),
        ("mask: & takes the smaller beginning", "np.maximum(lo, other_lo)", "np.minimum(lo, other_lo)"),
        ("mask: & takes the larger end", "np.minimum(hi, other_hi)", "np.maximum(hi, other_hi)"),
        ("mask: & of two arrays is their union", "else array & more", "else array | more"),
        ("mask: & forgets its array", "seen: Any = True if self.array is None else self.array", "seen: Any = True"),
        ("mask: & of lengths ends with the longer one", "np.minimum.reduce(", "np.maximum.reduce("),
    ],
    "problem.py": [
        ("problem: a tiny softcap is none", "return max(cap, float(np.finfo(dtype).tiny))", "return cap"),
        ("problem: an interval may end before it begins", "lo = np.minimum(np.maximum(lo, 0), hi)", "lo = np.maximum(lo, 0)"),
        ("problem: no 1/√d", "1 / sqrt(query.shape[-1]) if scale", "1.0 if scale"),
        ("problem: 16-bit not widened", "return DOUBLE if query.dtype == DOUBLE else SINGLE", "return query.dtype"),
        ("problem: causal replaces the mask", "masks.causal() if mask is None else masks.causal() & mask", "masks.causal()"),
    ],
    "engines/tiled.py": [
        ("tiled: maximum not carried", "        m = top\n", ""),
        ("tiled: maximum not subtracted", "np.maximum(m, s.max(axis=1, keepdims=True))", "np.zeros_like(m)"),
        ("tiled: sum not rescaled", "l = l * carry + p.sum(", "l = l + p.sum("),
        ("tiled: blend not rescaled", "        blend *= carry\n", ""),
        ("tiled: nothing seen yet shifts by -inf", "np.where(top == -np.inf, 0, top)", "top"),
        ("tiled: sink left out", "l = np.full((n, 1), head.sink > -np.inf, dtype)", "l = np.zeros((n, 1), dtype)"),
        ("tiled: sink counted twice", "(n, 1), head.sink > -np.inf,", "(n, 1), 2 * (head.sink > -np.inf),"),
        ("tiled: an empty row is NaN", "np.where(l == 0, 0, blend / l)", "blend / l"),
        ("tiled: an empty row is one", "np.where(l == 0, 0, blend / l)", "np.where(l == 0, 1, blend / l)"),
        ("tiled: lse without the maximum", "np.where(maximum == -np.inf, 0, maximum) + np.log(total)", "np.log(total)"),
        ("tiled: head h reads head h % Hkv", "(*lead, h // (problem.query.shape[-3] // problem.key.shape[-3]))", "(*lead, h % problem.key.shape[-3])"),
        ("tiled: 16-bit not widened", "_dense(problem.key[self.read], problem.dtype)", "_dense(problem.key[self.read], problem.key.dtype)"),
        ("tiled: no scale", "self.q[rows] * self.scale", "self.q[rows]"),
        ("tiled: softcap without the multiplication", "self.softcap * np.tanh(s / self.softcap)", "np.tanh(s / self.softcap)"),
        ("tiled: bias before softcap", "s = self.softcap * np.tanh(s / self.softcap)",
         "b = 0 if self.bias is None else narrow(self.bias[rows, columns], s.dtype)\n"
         "            s = self.softcap * np.tanh((s + b) / self.softcap) - b"),
        ("tiled: bias added twice", "s += bias\n", "s += 2 * bias\n"),
        ("tiled: a bias of -inf does not hide a NaN score", "np.copyto(s, -np.inf, where=bias == -np.inf)", "pass"),
        ("tiled: alibi with its sign flipped", "s -= narrow(self.slope", "s += narrow(self.slope"),
        ("tiled: alibi without abs", "abs(self.start + i - j)", "(self.start + i - j)"),
        ("tiled: alibi ignores where query 0 sits", "abs(self.start + i - j)", "abs(i - j)"),
        ("tiled: alibi starts every sequence where the first starts", "np.broadcast_to(problem.start, problem.lead)[tuple(lead)]", "problem.start.flat[0]"),
        ("tiled: a score hidden by an array is -1e4", "np.copyto(s, -np.inf, where=~self.array", "np.copyto(s, -1e4, where=~self.array"),
        ("tiled: a score hidden by an array is finfo.min", "np.copyto(s, -np.inf, where=~self.array", "np.copyto(s, np.finfo(s.dtype).min, where=~self.array"),
        ("tiled: a score before the interval is -1e4", "np.copyto(s[:, :early], -np.inf,", "np.copyto(s[:, :early], -1e4,"),
        ("tiled: a score past the interval is 0", "np.copyto(s[:, late:], -np.inf,", "np.copyto(s[:, late:], 0,"),
        ("tiled: interval without its first key", "where=j[:early] < lo", "where=j[:early] <= lo"),
        ("tiled: interval with one key past its end", "where=j[late:] >= hi", "where=j[late:] > hi"),
        ("tiled: early edge one key short", "int(lo.max()) - columns.start", "int(lo.max()) - columns.start - 1"),
        ("tiled: late edge one key late", "int(hi.min()) - columns.start", "int(hi.min()) - columns.start + 1"),
        ("tiled: late edge before its tile wraps around", "max(int(hi.min()) - columns.start, 0)", "int(hi.min()) - columns.start"),
        ("tiled: last partial tile skipped", "int(first), int(last), width)", "int(first), int(last - (last - first) % width), width)"),
        ("tiled: first key of the tiles skipped", "int(first), int(last), width)", "int(first) + 1, int(last), width)"),
        ("tiled: tiles end with the shortest row", "hi.max(where=seeing, initial=0)", "hi.min(where=seeing, initial=last)"),
        ("tiled: tiles that no query sees are visited", "hi.max(where=seeing, initial=0)", "last"),
        ("tiled: a sum that overflows is not shrunk", "2.0 ** -(len(head.v).bit_length() + 1)", "1.0"),
        ("tiled: what was shrunk is not grown again", "np.clip(output, -most, most), output) / shrink", "np.clip(output, -most, most), output)"),
        ("tiled: heads of one group read the first head's keys", "before.read == self.read", "before.read[:-1] == self.read[:-1]"),
        ("tiled: a hidden NaN value leaks", "if np.isfinite(output).all():", "if True:"),
        ("tiled: a visible NaN value counts for nothing", "np.where(visible[:, j, None], rest, 0)", "0"),
        ("tiled: weights from the scores of the first block", "s = head.scores(inside, seen)", "s = head.scores(slice(0, inside.stop - inside.start), seen)"),
        ("tiled: weights with the maximum of other rows", "np.where(m[at] == -np.inf, 0, m[at])", "m[: len(at)]"),
        ("tiled: weights of the column before", "columns[there] - seen.start", "columns[there] - seen.start - 1"),
    ],
}  # fmt: skip


class Mutation(NamedTuple):
    """One mistake: `old`, which occurs once in `file`, becomes `new`."""

    name: str
    file: str  # relative to src/regard
    old: str
    new: str

    @property
    def tests(self) -> list[str]:
        """The test files, in the order that finds this mistake soonest."""
        about_masks = self.name.startswith(("mask", "predicate")) or "alibi" in self.name
        return sorted(TESTS, key=lambda name: about_masks and name != "test_masks")


MUTATIONS = [
    Mutation(name, file, old, new)
    for file, mistakes in MISTAKES.items()
    for name, old, new in mistakes
]


class Verdict(NamedTuple):
    """What became of one copy."""

    name: str
    status: str  # "caught", "survived" or "error"; "passes" without a mutation
    detail: str  # the test that failed, or what went wrong
    seconds: float

    def __str__(self) -> str:
        return f"{self.status:<8} {self.seconds:5.1f} s  {self.name}: {self.detail}"


# --------------------------------------------------------------------------- one copy, one run


def occurrences(mutation: Mutation, project: Path = ROOT) -> int:
    """How often the old text stands in its file; a mutation applies where it is once."""
    text = (project / "src" / "regard" / mutation.file).read_text(encoding="utf-8")
    return text.count(mutation.old)


def apply(mutation: Mutation, copy: Path) -> None:
    """Make the mistake in the copy."""
    path = copy / "src" / "regard" / mutation.file
    mistaken = path.read_text(encoding="utf-8").replace(mutation.old, mutation.new)
    path.write_text(mistaken, encoding="utf-8")


@contextmanager
def copy_of(project: Path) -> Iterator[Path]:
    """A fresh folder with sources, tests and settings, and nothing that was compiled before."""
    ignore = shutil.ignore_patterns("__pycache__", ".hypothesis")
    with TemporaryDirectory(prefix="regard-", ignore_cleanup_errors=True) as folder:
        copy = Path(folder).resolve()
        for name in ("src", "tests"):
            shutil.copytree(project / name, copy / name, ignore=ignore)
        shutil.copy2(project / "pyproject.toml", copy)
        yield copy


def environment(copy: Path) -> dict[str, str]:
    """This process's, but the copy is imported, and each run keeps to one core and one seed."""
    own = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST_", "HYPOTHESIS_"))}
    libraries = ("OMP_NUM", "OPENBLAS_NUM", "MKL_NUM", "VECLIB_MAXIMUM")
    return {
        **own,
        **{f"{name}_THREADS": "1" for name in libraries},
        "PYTHONPATH": str(copy / "src"),  # comes before site-packages and before its .pth files
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",  # saves half the time of a run
        "CI": "1",  # hypothesis draws the same examples each time
    }


class Processes:
    """The Python processes that run now, so that Ctrl-C can end them all."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._running: set[subprocess.Popen[str]] = set()
        self._stopped = False

    def run(self, copy: Path, *arguments: str) -> tuple[int, str]:
        """Python with these arguments in the copy: its exit code, and what it said."""
        with self._lock:
            if self._stopped:
                raise InterruptedError("stopped before it began")
            process = subprocess.Popen(
                [sys.executable, *arguments], cwd=copy, env=environment(copy), encoding="utf-8",
                errors="replace", stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            )  # fmt: skip
            self._running.add(process)
        try:
            said, _ = process.communicate(timeout=TIMEOUT)
            return process.returncode, said
        except subprocess.TimeoutExpired:
            process.kill()
            return process.wait(), f"stopped after {TIMEOUT} seconds"
        finally:
            with self._lock:
                self._running.discard(process)

    def stop(self) -> None:
        with self._lock:
            self._stopped = True
            for process in self._running:
                process.kill()


def run_tests(copy: Path, processes: Processes, tests: list[str]) -> tuple[str, str]:
    """Survived, caught or error, by the exit code of pytest; and what tells more."""
    options = ("-x", "-q", "-m", "not slow", "-p", "no:cacheprovider", "--tb=line")
    files = [f"tests/{name}.py" for name in tests]
    code, said = processes.run(copy, "-m", "pytest", *options, *files)
    if code == 0:
        return "survived", "every test passes"
    if code == 1:
        return "caught", first_failure(said)
    return "error", f"pytest ended with exit code {code}\n{said[-2000:]}"


def first_failure(said: str) -> str:
    """The test that the summary of pytest names."""
    found = re.search(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", said, re.MULTILINE)
    return found[1] if found else "a test that the output does not name"


def try_mutation(mutation: Mutation, project: Path, processes: Processes) -> Verdict:
    """Make the mistake in a fresh copy of the project, and see which test fails."""
    begun = time.perf_counter()
    with copy_of(project) as copy:
        if (n := occurrences(mutation, copy)) == 1:
            apply(mutation, copy)
            status, detail = run_tests(copy, processes, mutation.tests)
        else:
            where = f"its old text occurs {n} times in {mutation.file}"
            status, detail = "error", f"mutation no longer applies, {where}"
    return Verdict(mutation.name, status, detail, time.perf_counter() - begun)


def try_unmutated(project: Path, processes: Processes) -> Verdict:
    """The copy as it is. If it did not pass, or were not imported, no verdict would count."""
    begun = time.perf_counter()
    with copy_of(project) as copy:
        _, imported = processes.run(copy, "-c", "import regard; print(regard.__file__)")
        if not Path(imported.strip()).is_relative_to(copy / "src"):
            raise RuntimeError(f"the copy's regard must be imported, got {imported}")
        status, detail = run_tests(copy, processes, TESTS)
    if status != "survived":
        raise RuntimeError(f"the unmutated copy must pass its tests, got {status}: {detail}")
    return Verdict("unmutated", "passes", detail, time.perf_counter() - begun)


# -------------------------------------------------------------------------------- all of them


def run_all(
    mutations: Iterable[Mutation], jobs: int, tell: Callable[[Verdict], object] = lambda _: None
) -> list[Verdict]:
    """A verdict for each mutation, in the order they end; `tell` hears of each at once.

    The project is copied first, so that a file changed meanwhile makes no difference. A RuntimeError
    says that the unmutated copy does not pass.
    """
    processes = Processes()
    verdicts = []
    with copy_of(ROOT) as project, ThreadPoolExecutor(jobs) as pool:
        try:
            tell(pool.submit(try_unmutated, project, processes).result())
            tries = [pool.submit(try_mutation, m, project, processes) for m in mutations]
            for done in as_completed(tries):
                verdicts.append(done.result())
                tell(verdicts[-1])
        except BaseException:  # Ctrl-C too: nothing may run on
            pool.shutdown(wait=False, cancel_futures=True)
            processes.stop()
            raise
    return verdicts


def cores() -> int:
    """The cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


# --------------------------------------------------------------------------- the command line


def parse(arguments: list[str] | None, mutations: list[Mutation]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Make known mistakes in copies of the sources, one at a time, and see whether "
        "a test fails for each. Exit code 0: all are caught. 1: one survived or went wrong. "
        "130: stopped by Ctrl-C.",
    )
    parser.add_argument("--only", metavar="NAME", action="append",
                        help="try this mutation alone; may be given more than once")  # fmt: skip
    parser.add_argument("--list", action="store_true", help="print the names and run nothing")
    parser.add_argument("-j", metavar="N", dest="jobs", type=int, default=cores(),
                        help="copies at once (default: the cores of this process, %(default)s)")  # fmt: skip
    chosen = parser.parse_args(arguments)
    if chosen.jobs < 1:
        parser.error(f"-j must be 1 or more, got {chosen.jobs}")
    for name in set(chosen.only or ()) - {mutation.name for mutation in mutations}:
        parser.error(f"--only must be a name that --list prints, got {name!r}")
    return chosen


def summary(verdicts: list[Verdict], seconds: float) -> str:
    """One line of numbers, and a line for each mutation that was not caught."""
    missed = [verdict for verdict in verdicts if verdict.status != "caught"]
    caught = len(verdicts) - len(missed)
    first = f"{caught} of {len(verdicts)} mutations caught in {seconds:.0f} s"
    return "\n".join([first, *(f"  {verdict.status}: {verdict.name}" for verdict in missed)])


def report(mutations: list[Mutation], run_all: Callable[..., list[Verdict]]) -> int:
    """Tries those that the command line chooses, and prints what became of them."""
    chosen = parse(None, mutations)
    mutations = [m for m in mutations if not chosen.only or m.name in chosen.only]
    if chosen.list:
        print("\n".join(f"{m.file:<24} {m.name}" for m in mutations))
        return 0
    begun = time.perf_counter()
    try:
        verdicts = run_all(mutations, chosen.jobs, lambda verdict: print(verdict, flush=True))
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return 130
    except RuntimeError as error:
        print(error, file=sys.stderr)
        return 1
    print(summary(verdicts, time.perf_counter() - begun))
    return 0 if all(verdict.status == "caught" for verdict in verdicts) else 1


if __name__ == "__main__":
    sys.exit(report(MUTATIONS, run_all))
