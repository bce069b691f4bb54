"""All heads of the page, its links, and a token over all heads, in a real browser."""

import numpy as np
import pytest
from browser import made_trace

from regard.pictures.palette import LIGHT, colours

L, H, N = 3, 2, 20
SPECIAL = np.isin(np.arange(N), [0, N - 1])
TOKENS = ["[CLS]", "un", "##touch", "##able", *(f"w{i}" for i in range(4, N - 1)), "[SEP]"]


@pytest.fixture(scope="module")
def trace():
    return made_trace(L, H, N, tokens=TOKENS, special=SPECIAL)


def test_thumbnails_open_heads_and_the_address_follows(visit, trace):
    page = visit(trace, "#L1H0")
    assert page.text("#head-name") == "L1H0"
    page.press('.thumb[data-layer="2"][data-head="1"]')
    assert page.text("#head-name") == "L2H1"
    assert page.page.url.endswith("#L2H1")
    assert page.all('.thumb[aria-current="true"]', "e => e.ariaLabel") == ["Layer 2, head 1"]
    page.press('[data-action="next"]')
    assert page.text("#head-name") == "L0H0"
    page.page.keyboard.press("[")
    page.settle()
    assert page.text("#head-name") == "L2H1"
    page.page.evaluate("location.hash = '#L0H1&view=links'")
    page.settle()
    assert page.text("#head-name") == "L0H1"
    assert page.page.locator("#links svg").is_visible()


def test_thumbnails_by_the_arrow_keys(visit, trace):
    page = visit(trace, "#L0H0")
    page.page.locator('.thumb[tabindex="0"]').focus()
    for key in ("ArrowDown", "ArrowRight", "ArrowDown", "ArrowLeft"):
        page.page.keyboard.press(key)
    page.page.keyboard.press("Enter")
    page.settle()
    assert page.text("#head-name") == "L2H0"


@pytest.mark.parametrize(
    "fragment",
    [
        "",
        "#L9H9",
        "#L-1H0",
        "#nonsense",
        "#L0H0&view=%E0%A4%A&token=99&scale=big&zoom=1e9",
        "#&&=&__proto__=1",
    ],
)
def test_an_address_that_makes_no_sense_is_passed_over(visit, trace, fragment):
    page = visit(trace, fragment, head=(1, 1))
    assert page.text("#head-name") in ("L1H1", "L0H0")


def test_thumbnails_are_drawn(visit, trace):
    page = visit(trace, "#L0H0&scale=linear")
    ramp = colours(LIGHT, 256).astype(int)
    for layer in range(L):
        for head in range(H):
            dots = np.array(
                page.page.locator(
                    f'.thumb[data-layer="{layer}"][data-head="{head}"] canvas'
                ).evaluate(
                    "c => [...c.getContext('2d').getImageData(0, 0, c.width, c.height).data]"
                )
            ).reshape(N, N, 4)[..., :3]
            steps = np.rint(255 * trace.weights(layer)[head]).astype(int)
            assert np.abs(dots - ramp[steps]).max() <= 8


def test_heads_are_sorted_and_filtered(visit, trace):
    page = visit(trace)
    records = trace.heads()
    for name in ("entropy", "previous", "separator"):
        page.set("statistic", name)
        values = {f"L{r['layer']}H{r['head']}": r[name] for r in records}
        for order, sign in (("highest", -1), ("lowest", 1)):
            page.set("order", order)
            shown = [text.split()[0] for text in page.all(".thumb .under")]
            assert shown == sorted(values, key=lambda head: sign * values[head])
    page.set("order", "highest")
    page.set("least", 60)
    low, high = min(values.values()), max(values.values())
    kept = [head for head in values if values[head] >= low + 0.6 * (high - low)]
    assert {text.split()[0] for text in page.all(".thumb .under")} == set(kept)
    assert f"{len(kept)} of {L * H} heads" in page.text("#thumbs-note")
    page.set("order", "layer")
    assert len(page.all(".thumb.dim")) == L * H - len(kept)


def test_links_draw_the_strongest_alone(visit, trace):
    page = visit(trace, "#L1H1")
    page.set("view", "links")
    w = trace.weights(1)[1]
    for count in (1, 7, 30):
        page.set("links", count)
        said = [
            title.split(": ")[0] for title in page.all("#links path title", "e => e.textContent")
        ]
        best = np.argsort(-w, axis=None)[:count]
        expected = {f"{TOKENS[k // N]} → {TOKENS[k % N]}" for k in best}
        assert len(said) == count
        assert len(set(said) & expected) >= count - 1  # two of one byte may change places
        assert f"the {count} strongest of {N * N}" in page.text("#readout")
    page.press('.link-token[data-token="3"]')
    bright = page.all('#links path[opacity="0.85"] title', "e => e.textContent")
    assert all("##able" in title for title in bright)


@pytest.mark.parametrize("where", ["chip", "label", "link"])
def test_a_token_over_all_heads(visit, trace, where):
    page = visit(trace, "#L0H0&view=links" if where == "link" else "#L0H0")
    if where == "label":
        stage = page.page.locator("#stage").bounding_box()
        y = page.place(6, 0)[1]
        page.page.mouse.click(stage["x"] + 30, y)
        page.settle()
    else:
        page.press({"chip": '.chip[data-place="6"]', "link": '.link-token[data-token="6"]'}[where])
    w = np.array([trace.weights(layer) for layer in range(L)])  # (L, H, N, N)
    for side, lines in (("attends", w[..., 6, :]), ("attended", w[..., 6])):
        lines = lines.reshape(L * H, N)
        rows = [
            [cell.strip() for cell in row.split("\t")]
            for row in page.all(f"#{side}-table tbody tr")
        ]
        best = np.argsort(-lines.max(axis=0))[: len(rows)]
        assert len(rows) == 8
        for row, k in zip(rows, best, strict=True):
            token, most, head, mean = row
            assert token == f"{k} {TOKENS[k]}"
            value, _, bound = most.replace("≈ ", "").partition(" ± ")
            assert abs(float(value) - lines[:, k].max()) <= float(bound or 0) + 1e-6
            assert head == f"L{lines[:, k].argmax() // H}H{lines[:, k].argmax() % H}"
            assert float(mean) == pytest.approx(lines[:, k].mean(), abs=3e-3)
    head = page.text("#attends-table [data-open]")
    page.press("#attends-table [data-open]")
    assert page.text("#head-name") == head
    page.press('[data-action="forget"]')
    assert page.page.locator("#token").is_hidden()
