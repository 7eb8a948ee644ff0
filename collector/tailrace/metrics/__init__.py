"""Export the daemon's figures to Prometheus."""

from __future__ import annotations
