"""Rows, gap rows and offsets committed together."""

from __future__ import annotations
