"""The configuration: `schema` defines the keys, `load` reads and checks them."""

from __future__ import annotations
