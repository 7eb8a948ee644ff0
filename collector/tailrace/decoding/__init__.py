"""Decoders: bytes to records, without I/O."""

from __future__ import annotations
