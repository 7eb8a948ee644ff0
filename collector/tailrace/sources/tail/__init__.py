"""Follow files while they grow."""

from __future__ import annotations
