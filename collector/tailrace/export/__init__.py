"""Write a store's events in the formats of other tools, with what is missing from them."""

from __future__ import annotations
