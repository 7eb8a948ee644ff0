"""DFTracer: lines of JSON in files, followed while they grow."""

from __future__ import annotations

from tailrace.decoding.formats.dftracer.format import FORMAT

__all__ = ["FORMAT"]
