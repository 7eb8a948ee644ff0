"""The log of received chunks, durable before anything is decoded."""

from __future__ import annotations
