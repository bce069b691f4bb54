"""Colours in numbers: even steps, one way in lightness, readable by those who see fewer hues."""

import numpy as np
import pytest

from regard.pictures.palette import DARK, LIGHT, colours, theme_of

THEMES = [LIGHT, DARK]
# Ottosson's OKLab, and Machado et al. 2009 for the lack of one kind of cone (severity 1).
TO_CONES = np.array([
    [0.4122214708, 0.5363325363, 0.0514459929], [0.2119034982, 0.6806995451, 0.1073969566],
    [0.0883024619, 0.2817188376, 0.6299787005],
])  # fmt: skip
TO_LAB = np.array([
    [0.2104542553, 0.7936177850, -0.0040720468], [1.9779984951, -2.4285922050, 0.4505937099],
    [0.0259040371, 0.7827717662, -0.8086757660],
])  # fmt: skip
LACKS = {
    "none": np.eye(3),
    "protan": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216],
               [-0.003882, -0.048116, 1.051998]],
    "deutan": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413],
               [-0.011820, 0.042940, 0.968881]],
    "tritan": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602],
               [0.004733, 0.691367, 0.303900]],
}  # fmt: skip


def linear(rgb):
    rgb = np.asarray(rgb, float) / 255
    return np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)


def oklab(light):
    return np.cbrt(np.clip(light, 0, None) @ TO_CONES.T) @ TO_LAB.T


def of_hex(*words):
    return np.array([[int(w[i : i + 2], 16) for i in (1, 3, 5)] for w in words])


def contrast(a, b):
    """As the web's accessibility guidelines count it."""
    shade = sorted(float(linear(of_hex(x)[0]) @ [0.2126, 0.7152, 0.0722]) for x in (a, b))
    return (shade[1] + 0.05) / (shade[0] + 0.05)


@pytest.mark.parametrize("theme", THEMES)
def test_steps_of_the_ramp_look_alike(theme):
    steps = np.linalg.norm(np.diff(oklab(linear(of_hex(*theme.ramp))), axis=0), axis=1)
    assert steps.min() > 0.88 * steps.mean()
    assert steps.max() < 1.12 * steps.mean()


@pytest.mark.parametrize("lacking", LACKS)
@pytest.mark.parametrize("theme", THEMES)
def test_lightness_goes_one_way_whatever_hues_are_seen(theme, lacking):
    seen = np.clip(linear(of_hex(*theme.ramp)) @ np.transpose(LACKS[lacking]), 0, 1)
    lightness = oklab(seen)[:, 0]
    way = np.diff(lightness) * (1 if theme is DARK else -1)
    assert way.min() > 0.02
    assert abs(lightness[-1] - lightness[0]) > 0.65


@pytest.mark.parametrize("theme", THEMES)
def test_words_can_be_read_and_hidden_is_not_the_colour_of_zero(theme):
    assert contrast(theme.ink, theme.paper) > 12
    assert contrast(theme.faint, theme.paper) > 4.5
    zero, hidden, hatch = oklab(linear(of_hex(theme.ramp[0], theme.hidden, theme.hatch)))
    assert np.linalg.norm(zero - hidden) > 0.05
    assert np.linalg.norm(hidden - hatch) > 0.1


def test_the_ramp_in_steps():
    assert theme_of(False) is LIGHT
    assert theme_of(True) is DARK
    steps = colours(LIGHT, 256)
    assert steps.shape == (256, 3)
    assert steps.dtype == np.uint8
    np.testing.assert_array_equal(steps[[0, -1]], of_hex(LIGHT.ramp[0], LIGHT.ramp[-1]))
    np.testing.assert_array_equal(colours(DARK, 9), of_hex(*DARK.ramp))
