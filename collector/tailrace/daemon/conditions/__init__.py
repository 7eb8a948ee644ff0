"""Conditions of the daemon that are looked at from time to time: what runs short, and what cannot be used."""

from __future__ import annotations
