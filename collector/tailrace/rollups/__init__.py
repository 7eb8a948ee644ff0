"""Return the rows that a timeline draws in a window of time, in a number that a screen can show."""

from __future__ import annotations
