"""The mutation check as tests: each known mistake must make some test fail."""

import pytest

import native_mutations
from mutations import MUTATIONS, cores, occurrences, run_all

NATIVE = native_mutations.MUTATIONS


def test_every_mutation_still_applies():
    stale = [m.name for m in MUTATIONS + NATIVE if occurrences(m) != 1 or m.old == m.new]
    assert not stale, f"the old text must occur exactly once in its file, and differ: {stale}"


def test_there_are_enough_mutations_and_each_has_its_own_name():
    for mutations in (MUTATIONS, NATIVE):
        assert len({mutation.name for mutation in mutations}) == len(mutations) >= 20


@pytest.mark.slow
def test_every_mutation_is_caught():
    missed = [v for v in run_all(MUTATIONS, cores()) if v.status != "caught"]
    assert not missed, "not caught:\n" + "\n".join(map(str, missed))
