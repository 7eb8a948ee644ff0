"""What somebody needs who is to help: facts about a collector, without its data and its secrets."""

from __future__ import annotations
