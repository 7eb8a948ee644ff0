"""Each loop between sources and table as a generator of steps, one in each file."""

from __future__ import annotations
