"""Finished files: which there are, what was read before, what is new, reading it, what it came to."""

from __future__ import annotations
