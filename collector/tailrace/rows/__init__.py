"""Define the table rows that all stages between the decoder and the file share.

This package imports only `model` and `kernels` from Tailrace. The package imports pyarrow only if there are no compiled
kernels, because commands that never write a row import this package, too.
"""

from __future__ import annotations
