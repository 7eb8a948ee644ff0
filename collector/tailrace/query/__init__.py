"""Run SQL statements over views of a store's table."""

from __future__ import annotations
