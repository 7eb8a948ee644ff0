"""Run the collector of a node's ranks in a process of its own. `run.member` starts this process as `tailrace.run`."""

from __future__ import annotations

import gc
import sys
from importlib import import_module

from tailrace import heaps


def main() -> None:
    heaps.load_arrow()
    node = import_module("tailrace.run.node")
    # Exempt the loaded modules from garbage collection, as `serve` does.
    gc.freeze()
    raise SystemExit(node.main(sys.argv[1:]))


if __name__ == "__main__":
    main()
