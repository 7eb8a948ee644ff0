"""Write metric families as Prometheus reads them, in whichever of its two formats is asked for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from prometheus_client import exposition
from prometheus_client.core import Metric
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.registry import Collector

from tailrace.serving.http import Response


class _Families(Collector):
    """Families in the form that prometheus_client requires."""

    def __init__(self, families: Iterable[Metric]) -> None:
        self._all = families

    def collect(self) -> Iterator[Metric]:
        yield from self._all


def exposed(families: Iterable[Metric], accept: str = "") -> Response:
    """Return the answer to a request for metrics, whose header Accept names the format."""
    all_ = _Families(families)
    if "application/openmetrics-text" in accept:
        # prometheus_client has no types for this function
        body = openmetrics.generate_latest(all_)  # type: ignore[no-untyped-call]
        return Response(200, body, openmetrics.CONTENT_TYPE_LATEST)
    return Response(200, exposition.generate_latest(all_), exposition.CONTENT_TYPE_PLAIN_0_0_4)
