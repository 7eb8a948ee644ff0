"""Where the benchmarks find and leave things."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[1]
BUILD = ROOT / "build" / "benchmarks"
"""Results and pages of one's own runs; not in the repository."""
CACHE = BUILD / "inputs"
"""Traces that were made before; may be deleted at any time."""
PEERS = ROOT / ".venv" / "peers" / "bin"
"""Programs of the environment that `make peers` makes."""
CONFIGURATIONS = Path(__file__).parent / "peers"
PUBLISHED = ROOT / "docs"
