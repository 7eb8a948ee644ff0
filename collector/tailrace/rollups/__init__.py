"""Answer for any window of time what a timeline draws there, in a size that a screen can show."""

from __future__ import annotations
