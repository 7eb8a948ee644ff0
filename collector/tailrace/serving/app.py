"""The admin endpoint: /metrics, /healthz, /readyz, /status. Thin: it reads and never changes.

/healthz answers 200 while the process lives and can mend itself (ok, degraded, starting, stopping)
and 503 once it cannot; /readyz answers 200 only while what is sent is taken in. Both say in JSON
what is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import msgspec
from prometheus_client import exposition
from prometheus_client.core import Metric
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.registry import Collector, CollectorRegistry
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route


class Health(msgspec.Struct):
    """What the probes answer."""

    status: str
    conditions: dict[str, str]
    failure: str | None = None


class Probe(msgspec.Struct):
    health: Health
    alive: bool
    ready: bool


def application(
    *,
    probe: Callable[[], Probe],
    status: Callable[[], msgspec.Struct],
    families: Callable[[], Iterable[Metric]],
) -> Starlette:
    """The ASGI application over three functions that look at the daemon."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Families(families))

    async def metrics(request: Request) -> Response:
        body: bytes
        if "application/openmetrics-text" in request.headers.get("accept", ""):
            # prometheus_client has no types for this one
            body = openmetrics.generate_latest(registry)  # type: ignore[no-untyped-call]
            return Response(body, media_type=openmetrics.CONTENT_TYPE_LATEST)
        body = exposition.generate_latest(registry)
        return Response(body, media_type=exposition.CONTENT_TYPE_PLAIN_0_0_4)

    async def healthz(_: Request) -> Response:
        now = probe()
        return _json(now.health, 200 if now.alive else 503)

    async def readyz(_: Request) -> Response:
        now = probe()
        return _json(now.health, 200 if now.ready else 503)

    async def status_(_: Request) -> Response:
        return _json(status())

    return Starlette(
        routes=[
            Route("/metrics", metrics),
            Route("/healthz", healthz),
            Route("/readyz", readyz),
            Route("/status", status_),
        ]
    )


class _Families(Collector):
    def __init__(self, families: Callable[[], Iterable[Metric]]) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        yield from self._families()


def _json(value: msgspec.Struct, status: int = 200) -> Response:
    return Response(msgspec.json.encode(value), status, media_type="application/json")
