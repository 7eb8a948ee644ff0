"""Define the rows of the table, from the decoder to the Delta file.

With compiled kernels it does not import pyarrow, which commands that write no rows do not need."""

from __future__ import annotations
