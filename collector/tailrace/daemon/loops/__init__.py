"""The loops between sources and table, one file each, as generators of steps."""

from __future__ import annotations
