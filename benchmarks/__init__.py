"""Benchmarks of the real daemon beside other programs. Run them with `make bench` (benchmarks/README.md)."""

from __future__ import annotations
