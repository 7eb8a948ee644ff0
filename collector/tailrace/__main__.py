"""`python -m tailrace` runs the command `tailrace`."""

from __future__ import annotations

from tailrace.cli import main

main()
