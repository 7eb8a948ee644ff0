"""What a user writes: `schema` says which keys there are, `load` reads and checks them."""

from __future__ import annotations
