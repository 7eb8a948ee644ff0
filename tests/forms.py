"""Choose between the short form of a property and the long one."""

from __future__ import annotations

import os

from hypothesis import settings

from tests.program import TRUE

SHARE = 3
"""In the short form, one example in this number is drawn. Each run draws others."""


def examples(number, **others):
    """Return the settings of a property with this number of examples in the long form (`--slow`), and further settings
    of hypothesis.
    """
    number = number if TRUE in os.environ else number // SHARE
    return settings(max_examples=number, deadline=None, **others)
