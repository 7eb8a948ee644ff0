"""Define, read and check the configuration. `schema` defines the keys; `load` reads and checks their values."""

from __future__ import annotations
