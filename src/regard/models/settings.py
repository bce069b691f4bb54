"""The settings of a model, each checked as it is taken."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, TypeVar

__all__ = ["Settings", "read_json"]

T = TypeVar("T")


class Settings:
    """config.json, each setting checked as it is taken; errors name the file and the setting.

    `spelled` has what the file calls a setting, where that is another name.
    """

    def __init__(
        self,
        file: Path,
        config: dict[str, Any] | None = None,
        spelled: dict[str, str] | None = None,
        prefix: str = "",
    ) -> None:
        self.file = file
        self._config = read_json(file) if config is None else config
        self._spelled = spelled or {}
        self._prefix = prefix
        if not isinstance(self._config, dict):
            raise ValueError(f"{file} must hold one JSON object, got {type(self._config).__name__}")

    def size(self, name: str, divides: int | None = None, default: int | None = None) -> int:
        """An int of 1 or more, which divides another where that is given."""
        n = self._take(name, default)
        if not isinstance(n, int) or isinstance(n, bool) or n < 1:
            raise ValueError(f"{self._field(name)} must be an int of 1 or more, got {n!r}")
        if divides is not None and divides % n:
            raise ValueError(f"{self._field(name)} must divide {divides}, got {n}")
        return n

    def number(self, name: str, default: float | None = None) -> float:
        x = self._take(name, default)
        if not isinstance(x, (int, float)) or isinstance(x, bool) or not 0 <= x < float("inf"):
            raise ValueError(f"{self._field(name)} must be a number of 0 or more, got {x!r}")
        return float(x)

    def choice(self, name: str, among: dict[str, T], default: str | None = None) -> T:
        """What stands in `among` under the setting."""
        chosen = self._take(name, default)
        if not isinstance(chosen, str) or chosen not in among:
            raise ValueError(f"{self._field(name)} must be {' or '.join(among)}, got {chosen!r}")
        return among[chosen]

    def flag(self, name: str, default: bool) -> bool:
        x = self._take(name, default)
        if not isinstance(x, bool):
            raise ValueError(f"{self._field(name)} must be true or false, got {x!r}")
        return x

    def section(self, name: str) -> Settings:
        """Settings within a setting."""
        inner = self._take(name, {})
        if not isinstance(inner, dict):
            raise ValueError(f"{self._field(name)} must be an object, got {inner!r:.80}")
        return Settings(self.file, inner, prefix=f"{name}.")

    def refuse_sections(self) -> None:
        """An error if there are settings within these."""
        for name, value in self._config.items():
            if isinstance(value, dict):
                raise self.refuse(name, "must not be an object")

    def value(self, name: str, default: Any = None) -> Any:
        """Whatever stands there; the caller checks it."""
        found = self._config.get(name)
        return default if found is None else found

    def refuse(self, name: str, says: str) -> ValueError:
        """An error about a setting that is well formed and yet not to be had here."""
        return ValueError(f"{self._field(name)} {says}, got {self._config.get(name)!r:.80}")

    def has(self, name: str) -> bool:
        return self._config.get(name) is not None

    def _field(self, name: str) -> str:
        return f"{self.file}: {self._prefix}{self._spelled.get(name, name)}"

    def _take(self, name: str, default: Any = None) -> Any:
        found = self.value(name, default)
        if found is None:
            raise ValueError(f"{self._field(name)} is missing")
        return found


def read_json(file: Path) -> Any:
    """A JSON file, or an error that names it."""
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ValueError(f"{file} is missing: a model's folder must have it") from None
    except (OSError, UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise ValueError(f"{file} could not be read: {error}") from error
