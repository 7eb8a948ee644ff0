"""Elephant Tracks 3: lines of text in files, followed while they grow."""

from __future__ import annotations

from tailrace.decoding.formats.et3.format import FORMAT

__all__ = ["FORMAT"]
