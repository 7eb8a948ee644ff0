"""Chunks made durable before anyone decodes them."""

from __future__ import annotations
