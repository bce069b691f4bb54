"""`regard info`: versions, engines, models."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version

import numpy as np

from .. import __version__
from ..engines import ENGINES, native
from ..models.catalog import CATALOG, cache_folder, cached
from ..threads import get_num_threads
from .base import app


@app.command()
def info() -> None:
    """Show versions, engines, threads, and which models are cached, and where."""
    blas = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
    rows = [
        ("regard", __version__),
        ("Python", f"{platform.python_version()} on {platform.system()} {platform.machine()}"),
        ("NumPy", f"{np.__version__} with {blas.get('name')} {blas.get('version')}"),
        *((f"engine {e.name}", e.about) for e in ENGINES.values()),
        *((("engine native", native.WHY_NOT),) if native.WHY_NOT else ()),
        ("threads", f"{get_num_threads()} for the native engine; NumPy's library has its own"),
        *((name, _version_of(name)) for name in ("safetensors", "tokenizers", "ml_dtypes")),
        ("cache", str(cache_folder())),
    ]
    for name, entry in CATALOG.items():
        where = cached(name) or f"not fetched ({entry.wheel_bytes / 1e6:.0f} MB to fetch)"
        rows.append((f"model {name}", f"{entry.title}; {entry.licence}; {where}"))
    width = max(len(name) for name, _ in rows)
    for name, text in rows:
        print(f"{name:<{width}}  {text}")


def _version_of(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
