"""What tests of several engines share."""

import pytest

import regard


@pytest.fixture
def threads(monkeypatch):
    """Sets the number of threads for a test."""
    return lambda n: monkeypatch.setattr(regard.threads, "_chosen", n)
