"""Generators of traces, one module a format: the same seed gives the same bytes."""

from __future__ import annotations
