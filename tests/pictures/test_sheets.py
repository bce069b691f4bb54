"""What a page stores, read back as the page does, without a browser."""

import base64
import hashlib
import json
import re
import zlib

import numpy as np
import pytest
from browser import made_trace
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from regard.pictures.page import _web, as_json, page
from regard.pictures.sheets import block_of, codes_of, sheets_of
from regard.trace import Trace


@given(arrays.arrays(np.float32, 40, elements=st.floats(0, 1, width=32)))
def test_a_byte_tells_a_weight_within_the_stated_bound(w):
    c = codes_of(w).astype(float)
    middle = np.where(c > 0, (c**2 + 0.25) / 255**2, 0)
    bound = np.maximum(c, 0.25) / 255**2
    assert (np.abs(middle - w) <= bound * (1 + 1e-4)).all()
    assert (bound <= np.sqrt(w) / 255 + 0.51 / 255**2).all()


def test_codes_keep_the_order():
    w = np.sort(np.random.default_rng(0).random(1000, np.float32))
    assert (np.diff(codes_of(w).astype(int)) >= 0).all()


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("norms", [False, True])
def test_a_block_holds_what_it_says(causal, norms):
    H, n = 3, 7
    trace = made_trace(1, H, n, causal=causal)
    w, f = trace.weights(0), np.float32(trace.moved[0])
    raw = zlib.decompress(block_of(w, f if norms else None, causal=causal, hidden=w > 0.5))

    def take(dtype, count):
        nonlocal raw
        taken, raw = np.frombuffer(raw, dtype, count), raw[count * np.dtype(dtype).itemsize :]
        return taken

    for scaled in [w, w * f[:, None]][: 1 + norms]:
        if scaled is not w:
            np.testing.assert_array_equal(take("<f4", H * n).reshape(H, n), f)
        np.testing.assert_array_equal(take("<u4", H * n).reshape(H, n), scaled.argmax(-1))
        np.testing.assert_array_equal(take("<f4", H * n).reshape(H, n), scaled.max(-1))
        np.testing.assert_allclose(take("<f4", H * n).reshape(H, n), scaled.sum(-1), rtol=1e-6)
    codes = take("u1", H * (n * (n + 1) // 2 if causal else n * n)).reshape(H, -1)
    expected = codes_of(w)[:, np.tri(n, dtype=bool)] if causal else codes_of(w).reshape(H, -1)
    np.testing.assert_array_equal(codes, expected)
    bits = np.unpackbits(np.frombuffer(raw, "u1"), bitorder="little")[: w.size]
    np.testing.assert_array_equal(bits.reshape(w.shape), w > 0.5)


@given(st.recursive(st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))
def test_json_ends_no_script_and_no_line(found):
    text = as_json(found)
    assert text.isascii()
    assert not set(text) & set("<>&\n\r")
    assert json.loads(text) == found


def test_the_policy_names_the_one_script_and_style(tmp_path):
    html = page(made_trace(1, 2, 5), tmp_path / "page.html").read_text(encoding="utf-8")
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', html).group(1)
    assert policy.startswith("default-src 'none'; ")
    for kind in ("script", "style"):
        (content,) = re.findall(rf"<{kind}>(.*?)</{kind}>", html, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in policy
    assert not re.search(r"""(?:src|href|action)\s*=\s*["']?(?:https?:)?//""", html)
    assert " onclick" not in html
    assert " style=" not in html


def test_the_same_trace_gives_the_same_file(tmp_path):
    trace = made_trace(2, 2, 7)
    one, two = (page(trace, tmp_path / name).read_bytes() for name in ("1.html", "2.html"))
    assert one == two
    assert sorted(p.name for p in tmp_path.iterdir()) == ["1.html", "2.html"]


def test_the_parts_of_the_page_fit_in_the_head():
    from regard.pictures.page import SCRIPTS

    for name in [*(f"{script}.js" for script in SCRIPTS), "page.css", "page.html"]:
        content = _web(name)
        assert len(content.splitlines()) <= 400, name
        assert "</script" not in content.replace("</script>\n", "") or name == "page.html"
        assert "innerHTML" not in content


def test_causal_weights_are_stored_as_a_triangle():
    (whole,) = sheets_of(made_trace(2, 2, 11))
    (triangle,) = sheets_of(made_trace(2, 2, 11, causal=True))
    assert (whole.causal, triangle.causal) == (False, True)


def test_a_long_text_is_pooled():
    trace = Trace.from_arrays(np.zeros((1, 1, 1031, 1031), np.float16), ["a"] * 1031)
    pooled, window = sheets_of(trace)
    assert (pooled.n, window.n) == (128, 256)
    assert (pooled.edges[-1], window.edges[-1]) == (1031, 256)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"head": (2, 0)}, r"head must be \(layer, head\) below \(2, 3\), got \(2, 0\)"),
        ({"head": (0, -1)}, "head must be"),
        ({"token": 5}, "token must be below 5, got 5"),
        ({"window": (3, 3)}, r"window must be \(start, stop\), .* 5 tokens, got \(3, 3\)"),
        ({"window": (0, 6)}, "window must be"),
    ],
)
def test_mistakes(tmp_path, options, says):
    with pytest.raises(ValueError, match=says):
        made_trace(2, 3, 5).page(tmp_path / "page.html", **options)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("odd", [1.7, np.nan, np.inf])
def test_what_is_no_weight_is_refused_and_leaves_no_file(tmp_path, odd):
    w = np.full((2, 1, 3, 3), 1 / 3, np.float32)
    w[1, 0, 2, 1] = odd
    with pytest.raises(ValueError, match=f"weights from 0 to 1, layer 1 has {odd}"):
        Trace.from_arrays(w, ["a", "b", "c"]).page(tmp_path / "page.html")
    assert list(tmp_path.iterdir()) == []


def test_nothing_to_show(tmp_path):
    with pytest.raises(ValueError, match="nothing to show"):
        Trace.from_arrays(np.zeros((1, 1, 0, 0), np.float32), []).page(tmp_path / "page.html")


@pytest.mark.parametrize("space", ["Ġ", "▁"])
def test_tokens_that_mark_spaces_are_spelled_as_in_the_text(space):
    tokens, text = ["<s>", "na", "Ã¯ve", f"{space}law", f"{space}"], "naïve law "
    spans = [(0, 0), (0, 2), (2, 5), (5 + (space == "Ġ"), 9), (9, 10)]
    weights = np.full((1, 1, 5, 5), 0.2, np.float32)
    trace = Trace.from_arrays(weights, tokens, text=text, spans=spans, special=[True, *[False] * 4])
    (sheet,) = sheets_of(trace)
    assert sheet.about()["tokens"] == ["<s>", "na", "ïve", "·law", "·"]
    plain = Trace.from_arrays(weights[..., :2, :2], ["un", "##told"])
    assert sheets_of(plain)[0].about()["tokens"] == ["un", "##told"]
