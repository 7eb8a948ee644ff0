"""Compute figures over spans: counts, durations, and differences between two runs.

Every figure depends only on one snapshot of the store. Durations are in nanoseconds or, if the session's clock has
no tick rate, in ticks; the two are never added."""

from __future__ import annotations
