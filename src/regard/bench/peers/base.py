"""What a peer is: a library that is asked for the same answer."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from importlib import import_module
from importlib.metadata import version
from typing import Any, ClassVar, NamedTuple

from ...predicates import Array
from ..case import Case


class Candidate(NamedTuple):
    """One way of a peer to make a call."""

    run: Callable[[], Any]  # what is timed: it returns when the output is there
    read: Callable[[Any], Array]  # what `run` returned, as (B, H, Nq, D)
    held: object = None  # memory that the library reads and does not own


class Peer(ABC):
    """A library. Its fastest variant that answers right stands for it."""

    title: ClassVar[str]
    package: ClassVar[str]

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self.library: Any = import_module(self.package)

    @property
    def version(self) -> str:
        return version(self.package)

    def variants(self, case: Case) -> list[str]:
        """The operators or modes that may do this call."""
        return [""]

    @abstractmethod
    def prepare(self, case: Case, variant: str) -> Candidate | str:
        """The call with its arrays in the layout that the peer likes, or why it cannot be made."""
