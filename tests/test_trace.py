"""Finding links in a trace whose weights are known."""

import numpy as np
import pytest

import regard
from regard.trace import Trace

TOKENS = ["[CLS]", "un", "##believ", "##able", "law", ",", "Law", "its", "[SEP]"]
TEXT = "Unbelievable law, Law its"
SPANS = [(0, 0), (0, 2), (2, 8), (8, 12), (13, 16), (16, 17), (18, 21), (22, 25), (0, 0)]


@pytest.fixture
def trace():
    """Two layers of three heads with random weights."""
    rng = np.random.default_rng(0)
    maps = []
    for _ in range(2):
        q, k = rng.standard_normal((2, 3, 9, 4)) * 2
        maps.append(regard.look(q, k))
    return Trace(TEXT, TOKENS, SPANS, [t.startswith("[") for t in TOKENS], maps)


def formed(trace):
    return np.array([np.asarray(attended.weights) for attended in trace.layers])  # (L, H, N, N)


def test_find_ranks_all_heads_and_occurrences(trace):
    links = trace.find("ITS", "law")
    assert len(links) == 2 * 3 * 2  # layers, heads, and two laws
    assert [link.weight for link in links] == sorted((link.weight for link in links), reverse=True)
    weights = formed(trace)
    for link in links:
        assert link.weight == weights[link.layer, link.head, link.query, link.key]
        assert (link.query, link.query_token) == (7, "its")
        assert link.key_token.lower() == "law"
    assert {link.key for link in links} == {4, 6}


def test_a_word_of_pieces_adds_as_a_key_and_averages_as_a_query(trace):
    weights = formed(trace)
    best = trace.find("unbelievable", 7)[0]
    assert best.query_token == "Unbelievable"
    np.testing.assert_allclose(best.weight, weights[..., 1:4, 7].mean(-1).max(), rtol=1e-12)
    best = trace.find(7, "Unbelievable")[0]
    np.testing.assert_allclose(best.weight, weights[..., 7, 1:4].sum(-1).max(), rtol=1e-12)
    words = ["unbelievable", 0, 4, 5, 6, 7, 8]
    row = [trace.find(7, word) for word in words]
    total = sum(next(x.weight for x in r if (x.layer, x.head) == (1, 2)) for r in row)
    np.testing.assert_allclose(total, 1, rtol=1e-12)


@pytest.mark.parametrize(
    ("word", "index"), [(-1, 8), (0, 0), ("[CLS]", 0), ("##able", 3), (",", 5), ("ITS", 7)]
)
def test_words_tokens_and_indices(trace, word, index):
    assert {link.query for link in trace.find(word, 0)} == {index}


def test_an_unknown_word_lists_the_tokens(trace):
    for word in ("believe", "", "la"):
        with pytest.raises(
            ValueError, match=r"no word '.*'; its tokens are: 0 \[CLS\], 1 un, 2 ##b"
        ):
            trace.find("its", word)
    with pytest.raises(ValueError, match="there are 9 tokens, got index 9"):
        trace.find(9, 0)


@pytest.mark.parametrize(
    ("text", "tokens", "word", "places"),
    [
        ("well, yes , no", ["well", ",", "yes", ",", "no"], ",", [1, 3]),
        ("wait...no", ["wait", ".", ".", ".", "no"], "...", [1]),
        ("東京は", ["東", "京", "は"], "東京", [0]),
        ("I love🎈it", ["I", "love", "[UNK]", "it"], "🎈", [2]),
        ("united\nstates", ["united", "states"], "United States", [0]),
        ("cafe\u0301 bar", ["cafe\u0301", "bar"], "caf\u00e9", [0]),
        ("bits its", ["bits", "its"], "its", [1]),
        ("law lawful law", ["law", "lawful", "law"], "law", [0, 2]),
    ],
)
def test_words_of_all_kinds(text, tokens, word, places):
    spans, at = [], 0
    for token in tokens:
        shown = "🎈" if token == "[UNK]" else token
        at = text.index(shown, at)
        spans.append((at, at + len(shown)))
        at += len(shown)
    q = np.zeros((1, len(tokens), 1))
    trace = Trace(text, tokens, spans, [False] * len(tokens), [regard.look(q, q)])
    assert sorted({link.query for link in trace.find(word, 0)}) == places


@pytest.mark.parametrize("special", [True, False])
@pytest.mark.parametrize("self_links", [True, False])
def test_strongest(trace, special, self_links):
    weights = formed(trace)
    if not self_links:
        weights[..., np.eye(9, dtype=bool)] = -1
    if not special:
        weights[:, :, [0, 8]], weights[..., [0, 8]] = -1, -1
    expected = np.sort(weights, axis=None)[::-1][:11]
    links = trace.strongest(11, special=special, self_links=self_links)
    np.testing.assert_array_equal([link.weight for link in links], expected)
    for link in links:
        assert weights[link.layer, link.head, link.query, link.key] == link.weight
        assert (trace.tokens[link.query], trace.tokens[link.key]) == link[-2:]


def test_strongest_gives_no_more_than_there_are(trace):
    assert len(trace.strongest(10_000)) == 2 * 3 * 7 * 6
    assert len(trace.strongest(10_000, special=True, self_links=True)) == 2 * 3 * 9 * 9
    with pytest.raises(ValueError, match="n must be 1 or more, got 0"):
        trace.strongest(0)


def test_repr_and_length(trace):
    assert repr(trace) == "Trace(9 tokens, 2 layers of 3 heads)"
    assert len(trace) == 9
