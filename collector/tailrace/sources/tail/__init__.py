"""Follow files while they grow."""

from __future__ import annotations

from tailrace.sources.tail.watch import Chosen as Chosen, TailSource as TailSource
