"""Define where benchmarks find their inputs and leave their results."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[1]
BUILD = ROOT / "build" / "benchmarks"
"""Directory for the results and pages of one's own runs. It is not part of the repository."""
CACHE = BUILD / "inputs"
"""Directory for traces that were generated before. It may be deleted at any time."""
PEERS = ROOT / ".venv" / "peers" / "bin"
"""Directory with the programs that `make peers` installs."""
CONFIGURATIONS = Path(__file__).parent / "peers"
PUBLISHED = ROOT / "docs"
