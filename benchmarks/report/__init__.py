"""Create the page about performance from the results, and from nothing else."""

from __future__ import annotations
