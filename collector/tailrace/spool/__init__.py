"""A durable log of all received chunks, written before any chunk is decoded."""

from __future__ import annotations
