"""Compute figures over spans: how many there are, how long they took, and how two runs differ.

Every figure is a pure function of one snapshot of the views. Durations are nanoseconds, or ticks where the
session's clock has no tick rate; the two are never added.
"""

from __future__ import annotations
