"""Define the rows of the table, as all stages between the decoder and the Delta file pass them.

From Tailrace, this package imports only `model` and `kernels`. It imports pyarrow only if there are no compiled
kernels, because commands that never write a row import this package, too.
"""

from __future__ import annotations
