"""Throughput, latency and idle cost of the real daemon; run with `make bench`."""

from __future__ import annotations
