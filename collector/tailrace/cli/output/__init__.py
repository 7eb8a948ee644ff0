"""Print rows as a grid, line by line, or as CSV, JSON and Arrow."""

from __future__ import annotations
