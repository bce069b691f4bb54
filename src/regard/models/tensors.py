"""The tensors of a model, by name: from safetensors files or from a GGUF file.

Every error names the file and the tensor.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ..predicates import Array
from .extra import needed
from .gguf_file import GGUF
from .safetensors_file import check_header

__all__ = ["GGUFTensors", "SafeTensors", "Tensors"]

FLOATS = ("float16", "bfloat16", "float32")


class Tensors:
    """Tensors, checked as they are taken.

    Attributes
    ----------
    file : Path
        Where they lie, for errors.
    names : set of str
    is_gguf : bool
        Of a converter's making: weights of products are (out, into) in every family, and the rows
        of Llama's queries and keys are ordered for interleaved pairs.
    """

    is_gguf = False

    def __init__(self, file: Path, names: set[str]) -> None:
        self.file = file
        self.names = names
        self._prefix = ""

    def below(self, *known: str) -> Tensors:
        """The same, for names that all stand below a prefix, as that of a known name does."""
        found = [
            name.removesuffix(end)
            for name in self.names
            for end in known
            if name == end or name.endswith(f".{end}")
        ]
        self._prefix = min(found, key=len) if found else ""
        return self

    def has(self, name: str) -> bool:
        return self._prefix + name in self.names

    def take(self, name: str, shape: tuple[int, ...]) -> Array:
        """One tensor, in float32."""
        return self.held(name, shape).astype(np.float32, copy=False)

    def held(self, name: str, shape: tuple[int, ...]) -> Any:
        """One tensor as it came: 16-bit or 32-bit floats."""
        name = self._known(name)
        tensor = self._read(name)
        self._check(name, tensor.shape, shape)
        if tensor.dtype.name not in FLOATS:
            raise ValueError(f"{self.file}: tensor {name} must hold floats, got {tensor.dtype}")
        return tensor

    def _known(self, name: str) -> str:
        name = self._prefix + name
        if name not in self.names:  # older files have the norms' names of TensorFlow
            older = name.replace("LayerNorm.weight", "LayerNorm.gamma")
            name = older.replace("LayerNorm.bias", "LayerNorm.beta")
        if name not in self.names:
            raise ValueError(f"{self.file}: tensor {name} is missing")
        return name

    def _check(self, name: str, got: tuple[int, ...], shape: tuple[int, ...]) -> None:
        if got != shape:
            raise ValueError(f"{self.file}: tensor {name} must be {shape}, got {got}")

    def _read(self, name: str) -> Array:
        raise NotImplementedError


class SafeTensors(Tensors):
    """Those of a folder: model.safetensors, or the shards that its index names."""

    def __init__(self, folder: Path, index: dict[str, str] | None = None) -> None:
        files = {folder / "model.safetensors"} if index is None else {
            folder / file for file in index.values()
        }  # fmt: skip
        opened = {file: _open(file) for file in sorted(files)}
        where = [(name, *each) for each in opened.items() for name in each[1][0]]
        self._where = {name: open_file for name, _, (_, open_file) in where}
        file = folder / "model.safetensors"
        if index is not None:
            file = folder / "model.safetensors.index.json"
            for name, stated in index.items():
                if name not in opened[folder / stated][0]:
                    raise ValueError(f"{file}: tensor {name} must be in {stated}, which lacks it")
        if len(self._where) != len(where):
            raise ValueError(f"{file}: a tensor stands in more than one shard")
        super().__init__(file, set(self._where))

    def _read(self, name: str) -> Array:
        return self._where[name].get_tensor(name)


def _open(file: Path) -> tuple[set[str], Any]:
    """The names in a file, checked, and the library's own reader of it."""
    needed("safetensors")
    from safetensors import SafetensorError, safe_open

    if not file.is_file():
        raise ValueError(f"{file} is missing: weights are read from safetensors files alone")
    try:
        return check_header(file), safe_open(file, framework="numpy")
    except (SafetensorError, OSError) as error:
        raise ValueError(f"{file} is corrupt or cut short: {error}") from error


class GGUFTensors(Tensors):
    """Those of a GGUF file, under the names that the same family has in safetensors files."""

    is_gguf = True

    def __init__(self, gguf: GGUF, spelled: Callable[[str], str]) -> None:
        super().__init__(gguf.file, set(gguf.tensors))
        self._gguf = gguf
        self._spelled = spelled

    def below(self, *known: str) -> Tensors:
        return self

    def has(self, name: str) -> bool:
        return self._spelled(name) in self.names

    def take(self, name: str, shape: tuple[int, ...]) -> Array:
        name = self._known(name)
        self._check(name, self._gguf.tensors[name].shape, shape)
        return self._gguf.floats(name)

    def _known(self, name: str) -> str:
        return super()._known(self._spelled(name))

    def _read(self, name: str) -> Array:
        return self._gguf.rows(name)
