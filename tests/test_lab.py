"""The lab: every verdict holds, and fails when the thing that it shows is broken on purpose."""

import numpy as np
import pytest

import regard
from regard import lab, reference
from regard.lab import (
    causality,
    coreference,
    cost,
    heads,
    kv_cache,
    mask_order,
    sinks,
    tiling,
)

SMALL = {
    "first-run": (8, 32), "scaling": (16, 128), "overflow": (5, 17), "mask-order": (7,),
    "heads": (12,), "shapes": (3, 5), "causality": (7,), "cost": (64, 256, 1024),
    "tiling": (64, 128), "kv-cache": (2, 11),
}  # fmt: skip
OF_MODELS = ("coreference", "sinks")


def run(name, **options):
    return lab.experiment(name).run(sizes=SMALL[name], **options)


def test_every_experiment_is_tried_here():
    assert sorted([*SMALL, *OF_MODELS]) == sorted(lab.EXPERIMENTS)


@pytest.mark.parametrize("seed", [0, 1, 7])
@pytest.mark.parametrize("name", SMALL)
def test_the_verdict_holds(name, seed):
    result = run(name, seed=seed)
    assert result.verdict, str(result)
    assert result.table.rows
    assert result.answer


def test_coreference_holds(minilm):
    assert coreference.run().verdict, str(coreference.run())


def test_sinks_and_induction_hold(minilm, smollm2_file):
    assert sinks.run().verdict, str(sinks.run())


@pytest.mark.parametrize("name", OF_MODELS)
def test_without_its_model_an_experiment_is_named_and_not_passed(name, monkeypatch):
    monkeypatch.setattr(regard.models, "cached", lambda name: None)
    result = lab.experiment(name).run()
    assert result.verdict.word == "not run"
    assert "minilm" in result.verdict.missing


# ------------------------------------------------------------------------ what is broken on purpose


def attend(change=lambda scores: scores, divide=True, ahead=0, after=False):
    """The articles' heart of attention, with a mistake in it."""

    def mistaken(q, k, v, do_mask=False):
        scores = change(q @ k.swapaxes(-2, -1) / (np.sqrt(k.shape[-1]) if divide else 1))
        seen = np.tri(*scores.shape[-2:], ahead) > 0 if do_mask else np.ones(scores.shape, bool)
        if after:
            weights = np.where(seen, reference.softmax(scores), 0)
        else:
            weights = reference.softmax(np.where(seen, scores, -np.inf))
        return weights @ v, weights

    return mistaken


def with_options(function, **changed):
    return lambda *args, **options: function(*args, **{**options, **changed})


def no_maximum(x, axis=-1):
    with np.errstate(all="ignore"):
        exponentials = np.exp(x)
        return exponentials / exponentials.sum(axis=axis, keepdims=True)


def hides_with_a_low_number(q, k, v, *, scale, mask):
    scores = np.where(mask, scale * q @ k.T, np.finfo(float).min)
    weights = reference.softmax(scores)
    return weights @ v, weights, None


def packed_without_swapaxes(x, W, NH, Wp):
    B, N, D = x.shape
    q, k, v = (t.reshape(B, NH, N, D // NH) for t in np.split(x @ W, 3, axis=-1))
    return reference._attend(q, k, v)[0].swapaxes(1, 2).reshape(B, N, D) @ Wp


def swapped_cross(xq, xv, *Ws):
    return CROSS(xv, xq, *Ws)


def heads_in_reverse(x, Wqs, Wks, Wvs, Wp, do_mask=False):
    return LIST(x, Wqs[::-1], Wks[::-1], Wvs[::-1], Wp, do_mask)


def one_key_ahead(q, k, v, causal, engine):
    mask = regard.masks.window(None, 1) if causal else None
    return regard.attention(q, k, v, mask=mask, engine=engine)


def sum_not_scaled(state, scores, values):
    m, _, blend = STEP(state, scores, values)
    return m, state[1] + np.exp(scores - m).sum(axis=1, keepdims=True), blend


def maximum_of_the_tile_alone(state, scores, values):
    return STEP((np.full_like(state[0], -np.inf), *state[1:]), scores, values)


def held_by_the_matrix(q, k, v, block, tile):
    output, counts = BY_TILES(q, k, v, block, tile)
    counts.held = len(q) * len(k)
    return output, counts


CROSS, LIST = reference.multihead_cross_attention_list, reference.multihead_attention_list
SDPA, STEP, BY_TILES = reference.scaled_dot_product_attention, tiling.step, tiling.by_tiles
PROJECT = kv_cache.Toy.project

# Experiment, mistake, where, name, what stands in its place.
MISTAKES = [
    ("first-run", "no 1/√d", reference, "_attend", attend(divide=False)),
    ("first-run", "0 after the softmax", reference, "_attend", attend(after=True)),
    ("first-run", "sees one token ahead", reference, "_attend", attend(ahead=1)),
    ("scaling", "no 1/√d", reference, "scaled_dot_product_attention", with_options(SDPA, scale=1.0)),
    ("scaling", "always 1/√d", reference, "scaled_dot_product_attention",
     with_options(SDPA, scale=None)),
    ("overflow", "maximum not subtracted", reference, "softmax", no_maximum),
    ("overflow", "the naive form is no longer naive", lab.overflow, "naive_softmax",
     reference.softmax),
    ("mask-order", "0 after the softmax", mask_order, "WAYS",
     {**mask_order.WAYS, "−∞ before": mask_order.zero_after}),
    ("mask-order", "finfo.min for −∞", reference, "scaled_dot_product_attention",
     hides_with_a_low_number),
    ("mask-order", "0 after is −∞ before", mask_order, "WAYS",
     {**mask_order.WAYS, "0 after": mask_order.before}),
    ("heads", "packed heads split without swapaxes", reference, "multihead_attention_vec",
     packed_without_swapaxes),
    ("heads", "heads in reverse order", reference, "multihead_attention_list", heads_in_reverse),
    ("heads", "a copy at each step", heads, "copies", lambda D: [("a", "", True), ("b", "", True)]),
    ("shapes", "queries and keys of cross attention swapped", reference,
     "multihead_cross_attention_list", swapped_cross),
    ("shapes", "no 1/√d", reference, "_attend", attend(divide=False)),
    ("causality", "not causal", causality, "attend",
     lambda q, k, v, causal, engine: regard.attention(q, k, v, engine=engine)),
    ("causality", "sees one key ahead", causality, "attend", one_key_ahead),
    ("cost", "an engine forms the matrix", cost, "attend",
     lambda q, k, v, engine: cost.formed(q, k, v)),
    ("cost", "an engine forgets causal", cost, "attend",
     lambda q, k, v, engine: regard.attention(q, k, v, engine=engine)),
    ("tiling", "sum not rescaled", tiling, "step", sum_not_scaled),
    ("tiling", "maximum not carried", tiling, "step", maximum_of_the_tile_alone),
    ("tiling", "holds the whole matrix", tiling, "by_tiles", held_by_the_matrix),
    ("kv-cache", "cache off by one", kv_cache, "attend_new",
     lambda q, cache, at: regard.attention(q, cache.key, cache.value, causal=True, align=at - 1)),
    ("kv-cache", "the newest key is not kept", kv_cache, "attend_new",
     lambda q, cache, at: regard.attention(q, cache.key[:, :max(at, 1)],
                                           cache.value[:, :max(at, 1)])),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "mistake", "where", "attribute", "wrong"), MISTAKES, ids=[f"{m[0]}: {m[1]}" for m in MISTAKES]
)  # fmt: skip
def test_the_verdict_fails_when_the_thing_is_broken(
    name, mistake, where, attribute, wrong, monkeypatch
):
    monkeypatch.setattr(where, attribute, wrong)
    assert run(name).verdict.word == "fails"


def test_the_verdict_fails_for_heads_that_attend_elsewhere(minilm, monkeypatch):
    class Backwards:
        def look(self, text):
            trace = minilm.look(text)
            trace.layers.reverse()
            return trace

    monkeypatch.setattr(regard.models, "load", lambda name: Backwards())
    assert coreference.run().verdict.word == "fails"


def test_the_verdict_fails_where_no_token_draws_more(minilm, smollm2_file, monkeypatch):
    monkeypatch.setattr(sinks, "drawn", lambda trace, causal: np.ones(6))
    assert sinks.run().verdict.word == "fails"


def test_the_verdict_fails_where_nothing_is_repeated(minilm, smollm2_file, monkeypatch):
    read_twice = sinks.read_twice
    monkeypatch.setattr(sinks, "read_twice", lambda *args: (read_twice(*args)[1],) * 2)
    assert sinks.run().verdict.word == "fails"


def test_induction_of_a_head_that_does_nothing_else():
    n, W = 4, np.zeros((1, 8, 8))
    W[0, np.arange(4, 7), np.arange(1, 4)] = 1  # from each repeat to what came next before
    trace = regard.Trace.from_arrays([W], list("abcdefgh"))
    assert sinks.induction(trace, n).tolist() == [[1.0]]
    assert sinks.induction(
        regard.Trace.from_arrays([np.eye(8)[None]], list("abcdefgh")), n
    ).tolist() == [[0.0]]


def test_even_weights_draw_an_even_share():
    for causal in (False, True):
        W = np.tri(5)[None] if causal else np.ones((1, 5, 5))
        trace = regard.Trace.from_arrays([W / W.sum(axis=-1, keepdims=True)], list("abcde"))
        assert sinks.drawn(trace, causal) == pytest.approx(1)


# ----------------------------------------------------------------------------------- what it computes


def test_the_known_numbers_of_scaling():
    result = lab.scaling.run(sizes=(64, 512))
    (_, unscaled, scaled, entropy, most, *_), (_, saturated, _, little, *_) = result.table.rows
    assert float(unscaled) == pytest.approx(0.784, abs=0.02)
    assert float(scaled) == pytest.approx(0.107, abs=0.002)
    assert float(entropy) == pytest.approx(0.60, abs=0.03)
    assert float(most) == pytest.approx(3.68, abs=0.02)
    assert float(saturated) == pytest.approx(0.928, abs=0.01)
    assert float(little) == pytest.approx(0.18, abs=0.02)


def test_the_jacobian_is_how_weights_move():
    x = np.random.default_rng(0).standard_normal(5)
    step = 1e-6 * np.eye(5)
    moved = (reference.softmax(x + step) - reference.softmax(x - step)) / 2e-6
    norm = lab.scaling.jacobian_norm(reference.softmax(x))
    assert norm == pytest.approx(np.linalg.norm(moved), rel=1e-7)


def test_entropy_from_certain_to_even():
    assert lab.scaling.entropy(np.eye(4)[0]) == 0
    assert lab.scaling.entropy(np.full(4, 0.25)) == pytest.approx(np.log(4))


def test_the_exponent_of_a_power():
    sizes = np.array([3, 5, 11])
    assert lab.measure.exponent(sizes, 7 * sizes**1.5) == pytest.approx(1.5)


def test_peak_memory_counts_what_numpy_holds():
    assert 8e6 <= lab.measure.peak_bytes(lambda: np.zeros(10**6)) < 8.2e6


@pytest.mark.parametrize(
    ("name", "sizes"), [("scaling", (64,)), ("tiling", (1, 8)), ("heads", (13,)), ("cost", ())]
)
def test_sizes_that_make_no_sense_are_refused(name, sizes):
    with pytest.raises(ValueError, match="sizes must be"):
        lab.experiment(name).run(sizes=sizes)


def test_no_such_experiment():
    with pytest.raises(
        ValueError, match="experiment must be one of first-run, scaling, .*'alchemy'"
    ):
        lab.experiment("alchemy")
    with pytest.raises(AttributeError, match="alchemy"):
        lab.alchemy  # noqa: B018
    assert set(lab.__all__) <= set(dir(lab))
