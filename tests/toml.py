"""Sections of a configuration file, as text: `toml.source("tcp", "tcp") + toml.section("store", commit_rows=20)`."""

from __future__ import annotations

import json

EPHEMERAL = "127.0.0.1:0"
"""Address at which network sources listen if a test names none."""


def section(name, /, **keys):
    """Return a section of a configuration file as text. A value may be a path, or a list of paths."""
    lines = [
        f"{key} = {json.dumps(value, default=str, ensure_ascii=False)}\n"
        for key, value in keys.items()
    ]
    return f"[{name}]\n{''.join(lines)}"


def source(name, type_, format_="heph", /, **keys):
    """Return the section of a source as text."""
    where = {"listen": EPHEMERAL} if type_ in {"tcp", "udp"} else {}
    return section(f"sources.{name}", type=type_, format=format_, **where | keys)
