"""The table: rows, gap rows and the spool's position, committed together."""

from __future__ import annotations
