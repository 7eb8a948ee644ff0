"""Define physical references: the least work that any collector must do with the same bytes or rows."""

from __future__ import annotations
