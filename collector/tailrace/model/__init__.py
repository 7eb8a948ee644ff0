"""The words every stage shares. Imports nothing of ours but errors, clock and units."""

from __future__ import annotations
