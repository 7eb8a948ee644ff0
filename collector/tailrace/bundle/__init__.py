"""Collect facts about a collector for support, without its data and its secrets."""

from __future__ import annotations
