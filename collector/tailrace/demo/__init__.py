"""Generate example traffic, and run the tour of `tailrace demo`.

The generators do no I/O and return the same traffic for the same seed, so that tests use them, too. The tour uses
Tailrace as a user would: through processes, sockets and HTTP.
"""

from __future__ import annotations
