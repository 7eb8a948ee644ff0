"""Run the command `tailrace` for `python -m tailrace`."""

from __future__ import annotations

from tailrace.cli import main

main()
