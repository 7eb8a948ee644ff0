"""Heph 0.1.0: size-prefixed packets, over sockets and in files."""

from __future__ import annotations

from tailrace.decoding.formats.heph.format import FORMAT

__all__ = ["FORMAT"]
