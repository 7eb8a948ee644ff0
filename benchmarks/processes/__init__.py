"""Processes that are measured: what they use, and how they are started, fed and ended."""

from __future__ import annotations
