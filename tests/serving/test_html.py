"""The pages for people, of values that a daemon would hardly have."""

from __future__ import annotations

import re
from base64 import b64encode
from hashlib import sha256
from html.parser import HTMLParser

import msgspec

from tailrace.serving import pages

EVIL = "<img src=x onerror=alert(1)>&\"'"


class Source(msgspec.Struct):
    type: str = "tcp"
    format: str = "heph"
    address: str = EVIL
    missing_events: int = 12_345
    awaited_events: int = 0
    errors: dict[str, int] = msgspec.field(default_factory=lambda: {EVIL: 3, "zero": 0})
    seconds: float | None = None


class Status(msgspec.Struct):
    sources: dict[str, Source] = msgspec.field(default_factory=lambda: {EVIL: Source()})
    state: str = "ok"
    failure: str | None = None
    conditions: dict[str, str] = msgspec.field(default_factory=lambda: {"store": EVIL})
    good: bool = True


class Reader(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.tags, self.rows, self._row = set(), {}, []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        if tag == "tr":
            self._row = []
        if tag == "td":
            self._bad = ("class", "bad") in attrs

    def handle_data(self, data):
        self._row.append(data)

    def handle_endtag(self, tag):
        if tag == "tr":
            name, *value = self._row
            self.rows[name] = ("".join(value), self._bad)


def test_every_figure_is_there_once_escaped_and_what_alarms_is_marked():
    reader = Reader(pages.status(Status()))
    assert reader.rows == {
        "state": ("ok", False), "failure": ("none", False), "good": ("yes", False),
        "conditions": (f"store: {EVIL}", True), "missing events": ("12,345", True),
        "awaited events": ("0", False), "type": ("tcp", False), "format": ("heph", False),
        "address": (EVIL, False), "errors": (f"{EVIL}: 3", True), "seconds": ("none", False),
    }  # fmt: skip
    assert reader.tags <= {
        "html", "head", "meta", "title", "style", "body", "h1", "h2", "p", "a", "table", "tr", "th",
        "td",
    }  # fmt: skip


def test_the_style_is_the_one_that_is_allowed():
    style = re.search("<style>(.*)</style>", pages.index("1"), re.DOTALL)[1]
    assert b64encode(sha256(style.encode()).digest()).decode() in pages.STYLE_SOURCE
