"""The admin endpoint's pages: /, /status, /metrics, /healthz, /readyz. They read and never change.

/healthz answers 200 while the process lives and can mend itself (ok, degraded, starting, stopping)
and 503 once it cannot; /readyz answers 200 only while what is sent is taken in. Both say in JSON
what is wrong; where tokens are asked for, without one they say the status alone. /status is HTML for
a browser and JSON for all others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from urllib.parse import parse_qs

import msgspec
import trio
from prometheus_client import exposition
from prometheus_client.core import Metric
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.registry import Collector

from tailrace import __version__
from tailrace.serving import html
from tailrace.serving.http import Request, Response, plain

SECURITY_HEADERS = (
    ("Cache-Control", "no-store"),
    (
        "Content-Security-Policy",
        f"default-src 'none'; style-src {html.STYLE_SOURCE}; base-uri 'none'; form-action 'none';"
        " frame-ancestors 'none'",
    ),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Referrer-Policy", "no-referrer"),
    ("X-Content-Type-Options", "nosniff"),
)
"""With every answer: nothing here is for other sites, and nothing is more than text and its style."""

_SCHEME = "bearer "


class Health(msgspec.Struct):
    """What the probes answer."""

    status: str
    conditions: dict[str, str] | msgspec.UnsetType = msgspec.UNSET
    failure: str | msgspec.UnsetType | None = msgspec.UNSET


class Probe(msgspec.Struct):
    health: Health
    alive: bool
    ready: bool


class Pages:
    """Three functions that look at the daemon, and who may see what they say."""

    def __init__(
        self,
        *,
        probe: Callable[[], Probe],
        status: Callable[[], msgspec.Struct],
        families: Callable[[], Iterable[Metric]],
        accepts: Callable[[bytes], bool] | None,
    ) -> None:
        """`accepts` a token; None to ask for none."""
        self._probe = probe
        self._status = status
        self._accepts = accepts
        self._families = families

    async def answer(self, request: Request) -> Response:
        response = await self._page(request)
        return response._replace(headers=response.headers + SECURITY_HEADERS)

    async def _page(self, request: Request) -> Response:
        may_see = self._accepts is None or self._has_token(request, self._accepts)
        if request.path in {"/healthz", "/readyz"} and request.method in {"GET", "HEAD"}:
            return self._health(request.path, details=may_see)
        if not may_see:
            return plain(401, "a token is asked for", ("WWW-Authenticate", "Bearer"))
        if request.method not in {"GET", "HEAD"}:
            return plain(405, "allowed: GET, HEAD", ("Allow", "GET, HEAD"))
        match request.path:
            case "/metrics":
                response = await self._metrics(request.headers.get("accept", ""))
            case "/status":
                response = self._status_page(request)
            case "/":
                response = _html(html.index(__version__))
            case _:
                response = plain(404, "there are: /, /status, /metrics, /healthz, /readyz")
        return response

    def _status_page(self, request: Request) -> Response:
        match wanted(request):
            case "html":
                return _html(html.status(self._status()))
            case "json":
                return _json(200, self._status())
            case _:
                return plain(400, "/status?format= takes html or json")

    @staticmethod
    def _has_token(request: Request, accepts: Callable[[bytes], bool]) -> bool:
        given = request.headers.get("authorization", "")
        is_bearer = given[: len(_SCHEME)].lower() == _SCHEME
        return is_bearer and accepts(given[len(_SCHEME) :].strip().encode("latin-1"))

    def _health(self, path: str, *, details: bool) -> Response:
        now = self._probe()
        fine = now.alive if path == "/healthz" else now.ready
        health = now.health if details else Health(now.health.status)
        return _json(200 if fine else 503, health)

    async def _metrics(self, accept: str) -> Response:
        # Of one moment. To write them takes much longer than to make them: receiving does not wait for that.
        families = _Families(list(self._families()))
        return await trio.to_thread.run_sync(_written, families, accept)


def wanted(request: Request) -> str:
    """Return the form that a request asks for: by `format` or else, in its headers, HTML by name (as
    browsers do), and otherwise JSON, as those get it who say nothing."""
    given = parse_qs(request.query).get("format")
    if given:
        return given[-1]
    ranges = [_range(each) for each in request.headers.get("accept", "").split(",")]
    html_weight = max((weight for name, weight in ranges if name == "text/html"), default=0.0)
    json_weight = max(
        (weight for name, weight in ranges if name == "application/json"), default=0.0
    )
    return "html" if html_weight > json_weight else "json"


def _range(text: str) -> tuple[str, float]:
    """Return a media range of an Accept header, and its weight."""
    name, _, parameters = text.partition(";")
    weight = parameters.replace(" ", "").rpartition("q=")[2]
    try:
        return name.strip().lower(), float(weight) if weight else 1.0
    except ValueError:
        return name.strip().lower(), 1.0


class _Families(Collector):
    """Families as prometheus_client wants them to be handed over."""

    def __init__(self, families: Iterable[Metric]) -> None:
        self._all = families

    def collect(self) -> Iterator[Metric]:
        yield from self._all


def _written(families: _Families, accept: str) -> Response:
    if "application/openmetrics-text" in accept:
        # prometheus_client has no types for this one
        body = openmetrics.generate_latest(families)  # type: ignore[no-untyped-call]
        return Response(200, body, openmetrics.CONTENT_TYPE_LATEST)
    return Response(200, exposition.generate_latest(families), exposition.CONTENT_TYPE_PLAIN_0_0_4)


def _html(text: str) -> Response:
    return Response(200, text.encode(errors="replace"), "text/html; charset=utf-8")


def _json(status: int, value: msgspec.Struct) -> Response:
    return Response(status, msgspec.json.encode(value), "application/json")
