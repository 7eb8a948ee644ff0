"""Keep the Delta table: rows, gap rows and the spool position, which are committed together."""

from __future__ import annotations
