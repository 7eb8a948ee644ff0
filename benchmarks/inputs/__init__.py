"""Generate traces for benchmarks, with one module for each format. The same seed gives the same bytes."""

from __future__ import annotations
