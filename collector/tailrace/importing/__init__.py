"""Import finished files: find them, see what was read before, choose what is new, read it, and sum up."""

from __future__ import annotations
