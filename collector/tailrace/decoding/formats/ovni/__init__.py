"""ovni: a tree of binary streams, followed while it grows."""

from __future__ import annotations

from tailrace.decoding.formats.ovni.format import FORMAT

__all__ = ["FORMAT"]
