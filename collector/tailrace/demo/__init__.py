"""Generate traffic, and run the tour of `tailrace demo`.

The generators (one module for each family of formats) do no I/O, and return the same traffic for the same seed. So tests use
the generators as well. The tour uses Tailrace as a user would: through processes, sockets and HTTP.
"""

from __future__ import annotations
