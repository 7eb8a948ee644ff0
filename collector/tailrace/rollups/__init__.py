"""Compute the spans, events, counter values and gaps that a timeline draws in a window of time.

The number of drawn rows is limited to what a screen can show."""

from __future__ import annotations
