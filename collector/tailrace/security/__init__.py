"""Decide who may talk to a listener, by certificates, tokens and networks."""

from __future__ import annotations
