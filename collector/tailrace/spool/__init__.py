"""Keep a durable log of everything that the sources receive. A chunk is decoded only after it is on disk."""

from __future__ import annotations
