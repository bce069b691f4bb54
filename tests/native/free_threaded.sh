#!/usr/bin/env bash
# The tests on free-threaded Python, whose lock must stay off; a warning that it came back is an error:
#   tests/native/free_threaded.sh python3.14t    with one that is there
#   tests/native/free_threaded.sh                with one built from Debian's source of Python
# The second needs apt and Debian's gcc, make, xz-utils, zlib1g-dev, libssl-dev and libffi-dev. Of the
# packages that only some tests need, those that have no wheel for such a Python are named and left out.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)

work=${FREE_THREADED:-$(mktemp -d)} # a folder that FREE_THREADED names is kept, with its Python
[ -n "${FREE_THREADED:-}" ] || trap 'rm -rf "$work"' EXIT
mkdir -p "$work"
work=$(cd "$work" && pwd)
export REGARD_CACHE=$work/cache # no models: what reads them is not there

source_of_python() { # into the current folder, by lists and a cache that are not the system's
    mkdir -p "$work/apt/sources" "$work/apt/lists/partial" "$work/apt/cache/archives/partial"
    printf '%s\n' "Types: deb-src" "URIs: http://deb.debian.org/debian" "Suites: trixie" "Components: main" \
        "Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg" >"$work/apt/sources/trixie.sources"
    set -- -qq -o "Dir::State::lists=$work/apt/lists" -o "Dir::Cache=$work/apt/cache" -o APT::Sandbox::User=root \
        -o Dir::Etc::sourcelist=/dev/null -o "Dir::Etc::sourceparts=$work/apt/sources"
    apt-get "$@" update
    apt-get "$@" source --download-only --only-source python3.13
}

build_python() {
    rm -rf "$work/source" && mkdir "$work/source" && cd "$work/source"
    source_of_python
    mkdir python && tar -xf python3.13_*.orig.tar.xz -C python --strip-components 1
    cd python
    { ./configure -q --disable-gil --disable-test-modules --without-ensurepip --prefix="$work/python" &&
        make -s -j2 && make -s install; } >"$work/built" 2>&1 || { tail -n 40 "$work/built" && exit 1; }
}

python=${1:-$work/python/bin/python3.13t}
[ -n "${1:-}" ] || [ -x "$python" ] || (build_python)

rm -rf "$work/venv"
"$python" -m venv "$work/venv"
# shellcheck disable=SC1091
. "$work/venv/bin/activate"
wheels() { pip install -q --only-binary :all: "$@"; }
wheels numpy pytest hypothesis
for package in ml_dtypes jinja2 platformdirs typer rich matplotlib safetensors 'tokenizers gguf>=0.17' onnx==1.23.2; do
    # shellcheck disable=SC2086
    wheels $package 2>"$work/refused" || echo "no wheel of $package"
done
cd "$root" # building lasts a minute
pip install -q .

python -W error - <<'PYTHON'
import sys
import numpy, regard
from regard.engines import native
assert native.SETS, native.WHY_NOT
assert not sys._is_gil_enabled(), "the lock is back"
print("Python", sys.version, "\nNumPy", numpy.__version__, "\nwithout its lock:", *native.SETS)
PYTHON
python -W error -m pytest -q -p no:cacheprovider -m "not slow" tests
