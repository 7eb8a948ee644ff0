"""The benchmarks, a module for each kind; each module has a `BENCHMARKS`."""

from __future__ import annotations
