"""Follow files while they grow, and pass their content on as chunks."""

from __future__ import annotations
