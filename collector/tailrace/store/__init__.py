"""The table: rows, gap rows and the spool offset, committed together."""

from __future__ import annotations
