"""Generate example traffic, and run the tour of `tailrace demo`.

The generators do no I/O and return the same traffic for the same seed, so that tests use them, too.
"""

from __future__ import annotations
