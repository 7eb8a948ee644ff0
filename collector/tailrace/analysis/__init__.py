"""Compute figures over spans: counts, durations, and differences between two runs.

Every figure is a pure function of one snapshot of the views. Durations are in nanoseconds or, if the
session's clock has no tick rate, in ticks. Nanoseconds and ticks are never added.
"""

from __future__ import annotations
