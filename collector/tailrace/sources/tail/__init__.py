"""Following files while they grow."""

from __future__ import annotations

from tailrace.sources.tail.source import Chosen as Chosen, TailSource as TailSource
