"""The loops between sources and table, as generators of steps, one file for each loop."""

from __future__ import annotations
