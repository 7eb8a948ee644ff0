"""Define the benchmarks, with one module for each kind. Each module has a list `BENCHMARKS`."""

from __future__ import annotations
