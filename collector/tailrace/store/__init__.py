"""The table: rows, gap rows and the spool position, committed together."""

from __future__ import annotations
