"""Define the rows of the table, from the decoder to the Delta file.

With compiled kernels, an import of this package does not import pyarrow, because not all commands write rows."""

from __future__ import annotations
