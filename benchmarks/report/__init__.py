"""The page about performance: a function of the results, without a look at anything else."""

from __future__ import annotations
