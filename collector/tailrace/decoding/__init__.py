"""Bytes to records, sans I/O."""

from __future__ import annotations
