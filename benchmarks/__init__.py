"""Benchmarks of the real daemon beside peers; run with `make bench` (benchmarks/README.md)."""

from __future__ import annotations
