#!/usr/bin/env bash
# The kernels on processors that this machine is not: NEON, cross-compiled and run under qemu's user
# emulation, and the baseline of x86-64 on a processor without AVX; then the installed module there.
# Needs Debian's g++-aarch64-linux-gnu and qemu-user, and an environment with regard and NumPy.
set -euo pipefail
cd "$(dirname "$0")/../../native"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

unit() { # compiler, set, bytes of a vector, more flags
    "$1" -O3 -std=c++20 -ffp-contract=off -fno-math-errno -fno-trapping-math -static -I. \
        "-DREGARD_ISA=regard_$2" "-DREGARD_NAME=\"native-$2\"" "-DVECTOR_BYTES=$3" "${@:4}" \
        kernel.cpp ../tests/native/unit.cpp -o "$work/$2"
}

unit aarch64-linux-gnu-g++ neon 16
qemu-aarch64 "$work/neon"
unit g++ baseline 16 -march=x86-64
qemu-x86_64 -cpu Nehalem "$work/baseline"

cd "$work"
env -u OPENBLAS_CORETYPE qemu-x86_64 -cpu Nehalem "$(python -c 'import os, sys; print(os.path.realpath(sys.executable))')" - <<PYTHON
import sys
sys.path[:0] = """$(python -c 'import sys; print("\n".join(sys.path))')""".split()
import numpy as np, regard
from regard.engines import native
assert native.SETS == ["native-baseline"], native.SETS
q, k, v = np.random.default_rng(0).standard_normal((3, 2, 67, 19), dtype=np.float32)
expected = regard.attention(q, k, v, causal=True, engine="reference")
np.testing.assert_allclose(regard.attention(q, k, v, causal=True), expected, atol=1e-5)
print("regard on a processor without AVX: passed")
PYTHON
