#!/usr/bin/env bash
# The native engine with the sanitizers of the compiler, which end a program at the first fault:
#   tests/native/sanitize.sh           address and undefined behaviour: unit.cpp, then tests in Python
#   tests/native/sanitize.sh thread    data races: threads.cpp (Python under this one takes hours)
# Needs GCC; the first also CMake, nanobind, and an environment that can run the tests.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
which=${1:-address,undefined}
case $which in address,undefined | thread) ;; *) echo "usage: sanitize.sh [thread]" >&2 && exit 2 ;; esac

work=${SANITIZED:-$(mktemp -d)} # a folder that SANITIZED names is kept, so that the next build is short
[ -n "${SANITIZED:-}" ] || trap 'rm -rf "$work"' EXIT
mkdir -p "$work"
flags="-fsanitize=$which -fno-sanitize-recover=all -fno-omit-frame-pointer -g1"

# No leaks are looked for: the interpreter and NumPy keep memory until the end, on purpose. Where memory
# is refused, NumPy says so itself.
export ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1:detect_stack_use_after_return=1
export UBSAN_OPTIONS=print_stacktrace=1 TSAN_OPTIONS=halt_on_error=1

program() { # name, sources beside it: of the baseline, run at fixed addresses, as the sanitizers need
    # shellcheck disable=SC2086
    (cd "$root/native" && c++ $flags -std=c++20 -O1 -ffp-contract=off -march=x86-64 -I. -DVECTOR_BYTES=16 \
        -DREGARD_ISA=regard_baseline '-DREGARD_NAME="native-baseline"' "${@:2}" "../tests/native/$1.cpp" -o "$work/$1")
    setarch -R "$work/$1"
}

if [ "$which" = thread ]; then
    program threads kernel.cpp look.cpp execute.cpp pool.cpp
    exit
fi
program unit kernel.cpp

cmake -S "$root" -B "$work/build" -DCMAKE_BUILD_TYPE=None -DCMAKE_CXX_FLAGS="-O1 $flags" \
    -DREGARD_OPTIMIZE=-O1 "-DREGARD_ONLY=avx2;avx512_bf16;neon" -DPython_EXECUTABLE="$(command -v python)" \
    -Dnanobind_DIR="$(python -m nanobind --cmake_dir)" >"$work/configured"
cmake --build "$work/build" --parallel 2 >"$work/built" || { cat "$work/built" && exit 1; }
rm -rf "$work/site" && mkdir "$work/site"
cp -r "$root/src/regard" "$work/site"
cp "$work/build"/_native.* "$work/site/regard/engines"

export PYTHONPATH=$work/site PYTHONDONTWRITEBYTECODE=1
export OMP_NUM_THREADS=2 OPENBLAS_NUM_THREADS=1
cd "$root" # under the sanitizer's library, which must come before all others
setarch -R env LD_PRELOAD="$(c++ -print-file-name=libasan.so) $(c++ -print-file-name=libstdc++.so)" \
    python -m pytest -q -p no:cacheprovider -p no:randomly -m "not slow" --durations=5 \
    tests/engines tests/test_semantics.py tests/test_layouts.py tests/test_kernels.py -k "native or kernels"
