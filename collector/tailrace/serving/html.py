"""The pages for people: plain HTML without scripts, which text browsers can show, too.

Pages contain names that producers and users chose, so all text is escaped.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Iterator, Mapping
from html import escape

import msgspec

PAGES = {
    "/status": "the state of every source, the spool and the store, and what is wrong",
    "/status?format=json": "the same for programs, with every figure",
    "/metrics": "metrics for Prometheus",
    "/healthz": "200 as long as a restart would not help",
    "/readyz": "200 while the daemon receives what is sent",
}
"""The paths that the endpoint serves, each with its purpose."""

STYLE = """\
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h2 { margin: 1.5rem 0 .3rem; }
table { border-collapse: collapse; }
th { text-align: left; font-weight: normal; padding: .1rem 1.5rem .1rem 0; color: #555; }
td { font-variant-numeric: tabular-nums; overflow-wrap: anywhere; }
.bad { color: #b00020; font-weight: bold; }
@media (prefers-color-scheme: dark) { body { background: #111; color: #ddd; } th { color: #aaa; } .bad { color: #ff6b81; } }
"""

STYLE_SOURCE = f"'sha256-{base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()}'"
"""The only style that the Content-Security-Policy allows."""

ALARMING = frozenset(
    {
        "missing_events", "awaited_events", "unknown_gaps", "malformed_bytes", "malformed_records",
        "imbalance_bytes", "imbalance_events", "kernel_drops", "errors", "refused", "conditions",
        "failure", "admin_refused",
    }
)  # fmt: skip
"""Figures that a page highlights unless they are zero or empty."""

FIRST = (
    "expected_events", "seen_events", "missing_events", "awaited_events", "unknown_gaps",
    "duplicate_events", "received_bytes", "rows",
)  # fmt: skip
"""The figures of a source that come first in its table."""


def index(version: str) -> str:
    """Return the page that lists the others."""
    links = (f'<li><a href="{path}">{path}</a>: {about}</li>' for path, about in PAGES.items())
    return _page(f"Tailrace {version}", ["<ul>", *links, "</ul>"])


def status(value: msgspec.Struct) -> str:
    """Return a page with every figure of a status: first those of the daemon, then those of each source."""
    figures = msgspec.to_builtins(value)
    sources = figures.pop("sources", {})
    parts = ['<p><a href="/">all pages</a></p>', *_table(figures)]
    for name, source in sources.items():
        first = {key: source[key] for key in FIRST if key in source}
        where = f"{source.get('format')} over {source.get('type')} on {source.get('address')}"
        parts += [f"<h2>{escape(name)}</h2>", f"<p>{escape(where)}</p>", *_table(first | source)]
    return _page(f"Tailrace: {figures.get('state', 'status')}", parts)


def _page(title: str, body: Iterable[str]) -> str:
    head = f'<meta charset="utf-8"><title>{escape(title)}</title><style>{STYLE}</style>'
    viewport = '<meta name="viewport" content="width=device-width">'
    lines = "\n".join(body)
    return (
        f'<!doctype html>\n<html lang="en"><head>{head}{viewport}</head>\n'
        f"<body><h1>{escape(title)}</h1>\n{lines}\n</body></html>\n"
    )


def _table(figures: Mapping[str, object]) -> Iterator[str]:
    yield "<table>"
    for name, value in figures.items():
        words = _words(value)
        bad = ' class="bad"' if name in ALARMING and words not in {"0", "none"} else ""
        label = escape(name.replace("_", " "))
        yield f"<tr><th>{label}</th><td{bad}>{escape(words)}</td></tr>"
    yield "</table>"


def _words(value: object) -> str:
    """Return a figure as text for people. For a dict of figures, show those that are not zero."""
    words = str(value)
    if isinstance(value, bool):
        words = "yes" if value else "no"
    elif isinstance(value, int):
        words = f"{value:,}"
    elif isinstance(value, float):
        words = f"{value:,.3f}"
    elif isinstance(value, dict) and value.keys() >= {"count", "sum", "at_most"}:
        words = f"{value['count']:,} in {value['sum']:,.3f} s"
    elif isinstance(value, dict):
        words = "; ".join(f"{key}: {_words(each)}" for key, each in value.items() if each)
    elif isinstance(value, list):
        words = "; ".join(map(_words, value))
    return (words or "none") if value is not None else "none"
