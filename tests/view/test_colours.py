"""The colours of theme.css are told apart from what they stand on, in light and in dark."""

from __future__ import annotations

import re
from importlib.resources import files

import pytest

THEME = (files("tailrace.view") / "page/styles/theme.css").read_text(encoding="utf-8")
COLOURS = {
    name: {"light": light, "dark": dark}
    for name, light, dark in re.findall(
        r"--([\w-]+): light-dark\((#[0-9a-f]{6}), (#[0-9a-f]{6})\)", THEME
    )
}
FILLS = [name for name in COLOURS if re.fullmatch(r"span-\d+", name)]
LINES = [name for name in COLOURS if re.fullmatch(r"line-\d+", name)]
FILL, TEXT = 3.0, 4.5
"""Least contrasts of WCAG 2.2: of graphics (1.4.11) and of text (1.4.3)."""


def luminance(colour):
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    ]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(one, other, scheme):
    low, high = sorted(luminance(COLOURS[name][scheme]) for name in (one, other))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_fills_and_lines_stand_out_from_the_surface(scheme):
    assert (len(FILLS), len(LINES)) == (16, 6)
    for name in (*FILLS, *LINES, "accent", "loss-stripe"):
        assert contrast(name, "surface", scheme) >= FILL, name


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_names_on_fills_can_be_read(scheme):
    for name in FILLS:
        assert contrast("span-ink", name, scheme) >= TEXT, name


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_two_fills_are_equal(scheme):
    assert len({COLOURS[name][scheme] for name in FILLS}) == len(FILLS)
