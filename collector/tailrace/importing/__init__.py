"""Import finished trace files: find the files, skip files that were read before, read the new
files, and return a summary."""

from __future__ import annotations
