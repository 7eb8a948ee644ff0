"""Test that the keys may put, get, list and delete below the store's prefix, at each address."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from tailrace.doctor.finding import Finding, Severity, good
from tailrace.doctor.object_store.client import Client, EndpointAnswer, EndpointProbe
from tailrace.doctor.object_store.place import StorePlace

CHECK = "endpoint rights"


class Right(NamedTuple):
    name: str
    action: str
    """S3's name of it."""
    without: str
    """The work that a collector without it cannot do."""


PUT = Right("put", "s3:PutObject", "store events")
GET = Right("get", "s3:GetObject", "read the table")
LIST = Right("list", "s3:ListBucket", "find the newest version")
DELETE = Right("delete", "s3:DeleteObject", "remove what was merged or is too old")

NEEDED = frozenset({PUT, GET, LIST})
"""The rights without which nothing else can be tested."""

_TO_DO: Mapping[str, str] = {
    "NoSuchBucket": "# make the bucket, or name another one: the collector makes none",
    "InvalidAccessKeyId": "# AWS_ACCESS_KEY_ID is not known to this server",
    "SignatureDoesNotMatch": "# AWS_SECRET_ACCESS_KEY does not belong to AWS_ACCESS_KEY_ID, or a proxy changes requests",
    "RequestTimeTooSkewed": "timedatectl status  # the clocks differ too much",
    "AuthorizationHeaderMalformed": "# set AWS_REGION to the bucket's region",
    "PermanentRedirect": "# set AWS_ENDPOINT_URL and AWS_REGION to the bucket's",
}


def refused(probe: EndpointProbe) -> dict[Right, tuple[str, EndpointAnswer]]:
    """Try each right at each address. Return those that are not granted, with the address and its answer."""
    found: dict[Right, tuple[str, EndpointAnswer]] = {}
    for client in probe.clients:
        key = probe.key(f"rights-{client.address}")
        for right, ask in _attempts(client, key):
            answer = ask()
            # It is not there if it could not be put; a server that is slow to show it is found out later.
            if not answer.done and not (right == GET and answer.is_missing):
                found.setdefault(right, (client.address, answer))
    return found


def _attempts(client: Client, key: str) -> Iterator[tuple[Right, Callable[[], EndpointAnswer]]]:
    yield PUT, lambda: client.put(key, b"rights")
    yield GET, lambda: client.get(key)
    yield LIST, lambda: client.page(key, most=1).answer
    yield DELETE, lambda: client.delete(key)


def check(
    place: StorePlace, found: Mapping[Right, tuple[str, EndpointAnswer]]
) -> Iterator[Finding]:
    if not found:
        yield good(CHECK, f"These keys may put, get, list and delete below {place.url}.")
    by_answer: dict[str, list[Right]] = {}
    for right, (_, answer) in found.items():
        by_answer.setdefault(str(answer), []).append(right)
    for text, rights in by_answer.items():
        yield _refused(place, text, rights, *found[rights[0]])


def _refused(
    place: StorePlace, text: str, rights: list[Right], address: str, answer: EndpointAnswer
) -> Finding:
    names = _joined([right.name for right in rights], "and")
    untested = NEEDED.intersection(rights)
    allow = f"# allow {', '.join(r.action for r in rights)} below {place.url} for this key"
    return Finding(
        check=CHECK,
        severity=Severity.PROBLEM,
        what=f"{names} below {place.url}: {text}, at {address}.",
        why=f"A collector cannot {_joined([right.without for right in rights], 'or')}."
        + (" Conditional puts, reads and listings were not tested." if untested else ""),
        commands=[_TO_DO.get(answer.code, allow)],
        figures={"status": answer.status},
    )


def _joined(words: list[str], last: str) -> str:
    head = ", ".join(words[:-1])
    return f"{head} {last} {words[-1]}" if head else words[-1]
