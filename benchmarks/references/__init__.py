"""Physical references: the least work that any collector has to do with the same bytes or rows."""

from __future__ import annotations
