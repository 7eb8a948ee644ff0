"""What the daemon knows of itself, for Prometheus."""

from __future__ import annotations
