"""Collect facts about a collector and its host for support, without its data and without secrets."""

from __future__ import annotations
