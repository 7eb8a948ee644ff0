"""Compute what a timeline draws in a window of time, with at most as many rows as a screen can show."""

from __future__ import annotations
