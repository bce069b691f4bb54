"""The command line: parses and prints, nothing else. A command is a file of its own."""

from __future__ import annotations

import os
import sys
import warnings
from typing import Any

# Each adds its command, in this order of the help.
from . import bench, embed, generate, info, lab, look  # noqa: F401
from .base import app

__all__ = ["app", "run"]


def run() -> None:
    """The entry point: a user's mistake is one line on standard error, never a traceback."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(encoding="utf-8")
    warnings.showwarning = _show_warning
    try:
        app()
    except BrokenPipeError:  # the reader, `head` perhaps, has had enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except ModuleNotFoundError as error:
        _fail(f"{error.name} is not installed; pip install 'regard[look]' brings it", 2)
    except (ValueError, TypeError, OSError) as error:
        _fail(str(error), 1)


def _fail(message: str, code: int) -> None:
    print(f"regard: {message}", file=sys.stderr)
    raise SystemExit(code)


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    print(f"regard: warning: {message}", file=sys.stderr)
