#!/usr/bin/env bash
# The native engine with the sanitizers of the compiler, which end a program at the first fault:
#   tests/native/sanitize.sh           address and undefined behaviour
#   tests/native/sanitize.sh thread    data races
# Builds in a folder of its own, then runs the kernels' unit program and tests in Python. Needs GCC,
# CMake, nanobind, and an environment that can run the tests.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
which=${1:-address,undefined}
case $which in
    address,undefined) library=libasan.so ;;
    thread) library=libtsan.so ;;
    *) echo "usage: sanitize.sh [thread]" >&2 && exit 2 ;;
esac

work=${SANITIZED:-$(mktemp -d)} # a folder that SANITIZED names is kept, so that the next build is short
[ -n "${SANITIZED:-}" ] || trap 'rm -rf "$work"' EXIT
mkdir -p "$work"
flags="-fsanitize=$which -fno-sanitize-recover=all -fno-omit-frame-pointer -g1"

cmake -S "$root" -B "$work/build" -DCMAKE_BUILD_TYPE=None -DCMAKE_CXX_FLAGS="-O1 $flags" \
    -DREGARD_OPTIMIZE=-O1 "-DREGARD_ONLY=avx2;neon" -DPython_EXECUTABLE="$(command -v python)" \
    -Dnanobind_DIR="$(python -m nanobind --cmake_dir)" >"$work/configured"
cmake --build "$work/build" --parallel 2 >"$work/built" || { cat "$work/built" && exit 1; }
rm -rf "$work/site" && mkdir "$work/site"
cp -r "$root/src/regard" "$work/site"
cp "$work/build"/_native.* "$work/site/regard/engines"

# No leaks are looked for: the interpreter and NumPy keep memory until the end, on purpose. A forked
# child may start threads: that is one of the tests. Where memory is refused, NumPy says so itself.
export ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1:detect_stack_use_after_return=1
export UBSAN_OPTIONS=print_stacktrace=1
export TSAN_OPTIONS=die_after_fork=0:halt_on_error=1
export PYTHONPATH=$work/site PYTHONDONTWRITEBYTECODE=1
export OMP_NUM_THREADS=2 OPENBLAS_NUM_THREADS=1

pytest() { # under the sanitizer's library, which must come before all others; it needs fixed addresses
    setarch -R env LD_PRELOAD="$(c++ -print-file-name="$library") $(c++ -print-file-name=libstdc++.so)" \
        python -m pytest -q -p no:cacheprovider -p no:randomly -m "not slow" --durations=5 "$@"
}

cd "$root"
if [ "$which" = thread ]; then
    pytest tests/engines/test_native_process.py tests/engines/test_native.py tests/engines/test_native_bits.py \
        -k "threads or share or serves or inline or forked or (bits and float32 and causal)"
    exit
fi
flags+=" -std=c++20 -O1 -ffp-contract=off"
# shellcheck disable=SC2086
c++ $flags -march=x86-64 -I"$root/native" -DREGARD_ISA=regard_baseline '-DREGARD_NAME="native-baseline"' \
    -DVECTOR_BYTES=16 "$root/native/kernel.cpp" "$root/tests/native/unit.cpp" -o "$work/unit"
"$work/unit"
pytest tests/engines tests/test_semantics.py tests/test_layouts.py tests/test_kernels.py \
    -k "native or kernels"
