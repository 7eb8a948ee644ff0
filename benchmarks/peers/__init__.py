"""Define the peers: programs that users choose instead of ours. The configuration of each is beside its module."""

from __future__ import annotations
