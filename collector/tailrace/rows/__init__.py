"""Define the rows of the table, as all stages between the decoder and the Delta file pass them.

The package imports only `model` and `kernels` from Tailrace. With compiled kernels, it does not import pyarrow, which
commands that write no rows do not need."""

from __future__ import annotations
