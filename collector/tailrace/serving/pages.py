"""Answer requests for the read-only pages of the admin endpoint: /, /status, /metrics, /healthz, /readyz.

The status code of /healthz is 200 while the daemon runs or can recover by itself (states ok, degraded, starting,
stopping), else 503; that of /readyz is 200 only while the daemon receives input. To a request without a required
token, both return only the daemon's state. /status is HTML for browsers and JSON for other clients. HTML pages contain
no scripts.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from html import escape
from urllib.parse import parse_qs

import msgspec
import trio
from prometheus_client.core import Metric

from tailrace import __version__
from tailrace.serving.http import Request, Response, exposed, plain
from tailrace.threads import WRITERS

PAGES = {
    "/status": "the state of every source, the spool and the store, and what is wrong",
    "/status?format=json": "the same for programs, with every figure",
    "/metrics": "metrics for Prometheus",
    "/healthz": "liveness: 200 while healthy, 503 if a restart would help",
    "/readyz": "200 while the daemon receives what is sent",
}
"""Descriptions of the endpoint's pages for users, by path."""

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
"""Hash of the only style sheet that the header Content-Security-Policy allows."""

ALARMING = frozenset(
    {
        "missing_events", "awaited_events", "unknown_gaps", "malformed_bytes", "malformed_records",
        "imbalance_bytes", "imbalance_events", "kernel_drops", "errors", "refused", "conditions",
        "failure", "admin_refused",
    }
)  # fmt: skip
"""Names of the figures that the status page highlights as alarming unless they are zero or empty."""

FIRST = (
    "expected_events", "seen_events", "missing_events", "awaited_events", "unknown_gaps",
    "asked_names", "duplicate_events", "received_bytes", "rows",
)  # fmt: skip
"""Names of the figures that come first in each source's table on the status page."""


def index(version: str) -> str:
    links = (f'<li><a href="{path}">{path}</a>: {about}</li>' for path, about in PAGES.items())
    return _page(f"Tailrace {version}", ["<ul>", *links, "</ul>"])


def status(value: msgspec.Struct) -> str:
    """Return the HTML of the status page: all figures of the daemon, then those of each source."""
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
    """Return a value as text for the status page, without zero and empty members of a dictionary."""
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


SECURITY_HEADERS = (
    ("Cache-Control", "no-store"),
    (
        "Content-Security-Policy",
        f"default-src 'none'; style-src {STYLE_SOURCE}; base-uri 'none'; form-action 'none';"
        " frame-ancestors 'none'",
    ),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Referrer-Policy", "no-referrer"),
    ("X-Content-Type-Options", "nosniff"),
)
"""HTTP headers of all responses. They forbid other sites to use a page, and allow a page only text and its style."""

_SCHEME = "bearer "


class HealthAnswer(msgspec.Struct):
    """The body of /healthz and /readyz as JSON."""

    status: str
    conditions: dict[str, str] | msgspec.UnsetType = msgspec.UNSET
    failure: str | msgspec.UnsetType | None = msgspec.UNSET


class Probe(msgspec.Struct):
    health: HealthAnswer
    alive: bool
    ready: bool


HEALTH = {"/healthz", "/readyz"}
"""Paths of the health pages. They cost little, and a request for them needs no token."""


class Pages:
    """The pages of the daemon's admin endpoint, including the check of tokens."""

    def __init__(
        self,
        *,
        probe: Callable[[], Probe],
        status: Callable[[], msgspec.Struct],
        families: Callable[[], Iterable[Metric]],
        accepts: Callable[[bytes], bool] | None,
    ) -> None:
        """Use the given functions to read the daemon's health, status and metrics. `accepts` returns whether a token
        is valid; None means that no token is required."""
        self._probe = probe
        self._status = status
        self._accepts = accepts
        self._families = families
        self._writing = trio.CapacityLimiter(WRITERS)

    async def answer(self, request: Request) -> Response:
        response = await self._page(request)
        return response._replace(headers=response.headers + SECURITY_HEADERS)

    async def _page(self, request: Request) -> Response:
        may_see = has_token(request, self._accepts)
        if request.path in HEALTH and request.method in {"GET", "HEAD"}:
            now = self._probe()
            fine = now.alive if request.path == "/healthz" else now.ready
            health = now.health if may_see else HealthAnswer(now.health.status)
            return _json(200 if fine else 503, health)
        if refused := refusal(request, may_see=may_see):
            return refused
        match request.path:
            case "/metrics":
                # Collect all metrics on the event loop, so that they all show the same point in time. Format them in a
                # thread, because this takes much longer: meanwhile the sources continue to receive.
                accept = request.headers.get("accept", "")
                response = await trio.to_thread.run_sync(
                    exposed, list(self._families()), accept, limiter=self._writing
                )
            case "/status":
                match wanted(request):
                    case "html":
                        response = _html(status(self._status()))
                    case "json":
                        response = _json(200, self._status())
                    case _:
                        response = plain(400, "/status?format= must be html or json")
            case "/":
                response = _html(index(__version__))
            case _:
                response = plain(404, "not found; pages: /, /status, /metrics, /healthz, /readyz")
        return response


def refusal(request: Request, *, may_see: bool) -> Response | None:
    """Return the response to a request that lacks a token or does not read a page; None for any other request."""
    if not may_see:
        return plain(401, "a token is required", ("WWW-Authenticate", "Bearer"))
    if request.method not in {"GET", "HEAD"}:
        return plain(405, "allowed: GET, HEAD", ("Allow", "GET, HEAD"))
    return None


def has_token(request: Request, accepts: Callable[[bytes], bool] | None) -> bool:
    """Return whether a request has a token in its header `Authorization` that `accepts` accepts. If `accepts` is None,
    no token is required."""
    if accepts is None:
        return True
    given = request.headers.get("authorization", "")
    is_bearer = given[: len(_SCHEME)].lower() == _SCHEME
    return is_bearer and accepts(given[len(_SCHEME) :].strip().encode("latin-1"))


def wanted(request: Request) -> str:
    """Return the format that a request asks for: its parameter `format`, else "html" if the header `Accept` prefers
    HTML to JSON, as browsers do, or "json"."""
    given = parse_qs(request.query).get("format")
    if given:
        return given[-1]
    ranges = [_range(each) for each in request.headers.get("accept", "").split(",")]
    html_weight, json_weight = (
        max((weight for name, weight in ranges if name == type_), default=0.0)
        for type_ in ("text/html", "application/json")
    )
    return "html" if html_weight > json_weight else "json"


def _range(text: str) -> tuple[str, float]:
    """Parse one entry of a header `Accept`. Return its media type and its weight."""
    name, _, parameters = text.partition(";")
    weight = parameters.replace(" ", "").rpartition("q=")[2]
    try:
        return name.strip().lower(), float(weight) if weight else 1.0
    except ValueError:
        return name.strip().lower(), 1.0


def _html(text: str) -> Response:
    return Response(200, text.encode(errors="replace"), "text/html; charset=utf-8")


def _json(status: int, value: msgspec.Struct) -> Response:
    return Response(status, msgspec.json.encode(value), "application/json")
