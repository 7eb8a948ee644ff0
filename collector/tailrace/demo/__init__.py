"""Generated traffic, and the tour that `tailrace demo` gives with it.

The generators (`heph`, `jets`, `mangle`) are pure and give the same for the same seed, so tests use
them too. The tour talks to Tailrace as anyone outside would: processes, sockets, HTTP.
"""

from __future__ import annotations
