"""The short form of a property, and the long one."""

from __future__ import annotations

import os

from hypothesis import settings

from tests.program import TRUE

SHARE = 3
"""One in so many examples is in the short form. Each run draws others."""


def examples(number, **others):
    """Return the settings of a property that has so many examples in the long form (`--slow`), and others of hypothesis."""
    number = number if TRUE in os.environ else number // SHARE
    return settings(max_examples=number, deadline=None, **others)
