"""Define the loops that move data from the sources to the table, as generators of steps."""

from __future__ import annotations
