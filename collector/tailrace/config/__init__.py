"""The configuration. `schema` defines the keys; `load` reads and checks the values."""

from __future__ import annotations
