"""Peers: programs that people use instead, each with its configuration beside its module."""

from __future__ import annotations
