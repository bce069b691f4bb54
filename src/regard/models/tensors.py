"""The tensors of a model, by name: from safetensors files or from a GGUF file.

Every error names the file and the tensor.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ..nn import Blocks
from ..predicates import Array
from .extra import needed
from .gguf_file import GGUF
from .safetensors_file import check_header

__all__ = ["GGUFTensors", "SafeTensors", "Tensors"]

FLOAT_KINDS = ("F32", "F16", "BF16")
BLOCK_KINDS = ("Q4_0", "Q4_1", "Q8_0")  # that products are computed with as they are
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
    widen = False  # whether `held` gives float32 too

    def __init__(self, file: Path, names: set[str]) -> None:
        self.file = file
        self.names = names
        self._prefix = ""
        self._taken: set[str] = set()

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

    def refuse_others(self, *known: str) -> None:
        """An error if there are tensors that were not taken: the file is of another make.

        `known` are expressions for names, below the prefix or not, that mean nothing here.
        """
        for name in sorted(self.names - self._taken):
            inner = name.removeprefix(self._prefix)
            if not any(re.fullmatch(each, inner) for each in known):
                raise ValueError(f"{self.file}: tensor {name} has no place in this model")

    def take(self, name: str, shape: tuple[int, ...]) -> Array:
        """One tensor, in float32."""
        return self._float(name, shape).astype(np.float32, copy=False)

    def held(self, name: str, shape: tuple[int, ...]) -> Any:
        """One tensor as it came: 16-bit or 32-bit floats, or the blocks of a GGUF file."""
        if self.widen:
            return self.take(name, shape)
        return self._float(name, shape)

    def beside(self, shapes: dict[str, tuple[int, int]]) -> list[Any]:
        """Several as `held` gives them, side by side where that can be: a stack is no copy then."""
        return [self.held(name, shape) for name, shape in shapes.items()]

    def _float(self, name: str, shape: tuple[int, ...]) -> Array:
        name = self._known(name)
        tensor = self._read(name)
        self._check(name, tensor.shape, shape)
        if tensor.dtype.name not in FLOATS:
            raise ValueError(f"{self.file}: tensor {name} must hold floats, got {tensor.dtype}")
        return tensor

    def _known(self, name: str) -> str:
        wanted = self._prefix + name
        # Older files have the norms' names of TensorFlow; a head stands beside the prefix.
        older = wanted.replace("LayerNorm.weight", "LayerNorm.gamma")
        for each in (wanted, older.replace("LayerNorm.bias", "LayerNorm.beta"), name):
            if each in self.names:
                self._taken.add(each)
                return each
        raise ValueError(f"{self.file}: tensor {wanted} is missing")

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

    def held(self, name: str, shape: tuple[int, ...]) -> Any:
        spelled = self._known(name)
        kind = self._gguf.tensors[spelled].kind
        if kind in FLOAT_KINDS or kind not in BLOCK_KINDS or self.widen or len(shape) != 2:
            return super().held(name, shape) if kind in FLOAT_KINDS else self.take(name, shape)
        self._check(spelled, self._gguf.tensors[spelled].shape, shape)
        return Blocks(self._gguf.rows(spelled), kind, shape)

    def beside(self, shapes: dict[str, tuple[int, int]]) -> list[Any]:
        known = {self._known(name): shape for name, shape in shapes.items()}
        stored = [self._gguf.tensors[name] for name in known]
        if (
            self.widen
            or {each.kind for each in stored} - {stored[0].kind}
            or (stored[0].kind not in BLOCK_KINDS)
        ):
            return super().beside(shapes)
        memory = np.empty(sum(each.size for each in stored), np.uint8)
        places = np.split(memory, np.cumsum([each.size for each in stored])[:-1])
        blocks = []
        for (name, shape), each, place in zip(known.items(), stored, places, strict=True):
            self._check(name, each.shape, shape)
            blocks.append(Blocks(self._gguf.rows(name, place), each.kind, shape))
        return blocks

    def _known(self, name: str) -> str:
        return super()._known(self._spelled(name))

    def _read(self, name: str) -> Array:
        return self._gguf.rows(name)
