"""Import finished trace files: find the files, skip files whose content the table already has, read all other files,
and return a summary."""

from __future__ import annotations
