"""What tests of several engines share."""

import pytest

import regard
from regard.engines import native

# Of a set that the processor cannot run there is nothing to test, as with every other set.
collect_ignore = [] if native.PAIRS else ["test_native_pairs.py"]


def pytest_terminal_summary(terminalreporter):
    if collect_ignore:
        why = native.WHY_NOT or "this processor has no dot products of bfloat16"
        terminalreporter.write_line(f"not collected: {', '.join(collect_ignore)}: {why}")


@pytest.fixture
def threads(monkeypatch):
    """Sets the number of threads for a test."""
    return lambda n: monkeypatch.setattr(regard.threads, "_chosen", n)
