"""Decode the bytes of traces into records, without I/O."""

from __future__ import annotations
