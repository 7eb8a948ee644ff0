"""JETS 2.0: lines of JSON, over sockets and in files."""

from __future__ import annotations

from tailrace.decoding.formats.jets.format import FORMAT

__all__ = ["FORMAT"]
