"""Collect facts about a collector and its host, to be sent to people who help with problems.

Leave out the collector's data and secrets."""

from __future__ import annotations
