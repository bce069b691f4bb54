"""Tokens as labels: nothing invisible stays so."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.pictures.labels import check_tokens, label, visible


@pytest.mark.parametrize(
    ("token", "shown"),
    [
        (" law", "·law"), ("a\nb", "a⏎b"), ("\t", "⇥"), ("\r\n", "␍⏎"), ("", "∅"), ("\x00", "\\x00"),
        ("\u202eabc", "\\u202eabc"), ("\u00a0", "\\xa0"), ("\u200b", "\\u200b"), ("東京", "東京"),
        ("</script>", "</script>"), ("\ud800", "\\ud800"), ("👩\u200d🚀", "👩\u200d🚀"),
    ],
)  # fmt: skip
def test_signs_for_what_cannot_be_seen(token, shown):
    assert visible(token) == shown


@given(st.text(max_size=40))
def test_a_label_is_short_and_visible(token):
    shown = visible(token)
    assert 1 <= len(shown) <= 18
    for character in shown.replace("\u200d", ""):
        assert unicodedata.category(character) not in {"Cc", "Cf", "Cs", "Zs", "Zl", "Zp"}


def test_a_long_token_is_cut():
    assert visible("x" * 19) == "x" * 17 + "…"
    assert visible("x" * 18) == "x" * 18


def test_a_label_carries_the_index():
    assert label(9, ["its"] * 10) == "9 its"
    assert label(9, None) == "9"


def test_tokens_must_be_one_for_each():
    assert check_tokens("tokens", ("a", "b"), 2) == ["a", "b"]
    assert check_tokens("tokens", None, 2) is None
    with pytest.raises(ValueError, match="keys must be one for each of 3, got 2"):
        check_tokens("keys", ["a", "b"], 3)
    with pytest.raises(TypeError, match="tokens must be a list of str, one for each token"):
        check_tokens("tokens", "ab", 2)
    with pytest.raises(TypeError, match=r"tokens must be a list of str, got \['a', 1\]"):
        check_tokens("tokens", ["a", 1], 2)
