"""Tailrace: takes in execution traces and knows exactly which events are missing, and why."""

from __future__ import annotations

__version__ = "0.1.0"
