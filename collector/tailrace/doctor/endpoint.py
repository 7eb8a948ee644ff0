"""Send requests to the endpoint of an object store, which the storage options and environment variables specify.

These options and variables have the names that the collector's Delta library reads. obstore uses the same S3 client as
that library, and reports errors as text. The result of a request is an `EndpointAnswer`, even if no reply arrived.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from itertools import chain, islice
from typing import NamedTuple, ParamSpec
from urllib.parse import urlsplit

import obstore
from obstore.exceptions import BaseError
from obstore.store import S3Store

from tailrace.doctor.finding import HostFinding, problem

CHECK = "endpoint"

SCHEMES = ("s3", "s3a")

NAMES = {
    "access_key_id": ("aws_access_key_id", "access_key_id"),
    "secret_access_key": ("aws_secret_access_key", "secret_access_key"),
    "session_token": ("aws_session_token", "aws_token", "session_token", "token"),
    "region": ("aws_region", "region", "aws_default_region", "default_region"),
    "endpoint": ("aws_endpoint_url_s3", "aws_endpoint_url", "aws_endpoint", "endpoint_url", "endpoint"),
    "allow_http": ("aws_allow_http", "allow_http"),
    "virtual_hosted_style_request": ("aws_virtual_hosted_style_request", "virtual_hosted_style_request"),
    "skip_signature": ("aws_skip_signature", "skip_signature"),
    "allow_invalid_certificates": ("aws_allow_invalid_certificates", "allow_invalid_certificates"),
}  # fmt: skip
"""The names, in upper or lower case, under which the collector's Delta library reads each storage option of obstore.
The first name that is set takes precedence. Environment variables count only under the names with `aws_`."""

SENT = ("access_key_id", "session_token", "region")

_VISIBLE = re.compile(r"[!-~]*")
_ENDPOINT = re.compile(r"https?://(?:[\w.-]+|\[[\w.:]+\])(?::\d+)?(?:/[\w.~/%-]*)?", re.ASCII)
_SECRETS = re.compile(r"(?<=//)[^/]*@|\?.*", re.DOTALL)
"""Pattern for the parts of a URL that may be secret: a user with a password, and a query."""


class StorePlace(NamedTuple):
    """The location of a store at a URL: a prefix in a bucket at an endpoint."""

    bucket: str
    prefix: str
    endpoint: str
    given: Mapping[str, str]
    """Values of the storage options and environment variables that are set, by obstore's names."""

    @property
    def url(self) -> str:
        return f"s3://{self.bucket}/{self.prefix}".rstrip("/")

    def has(self, flag: str) -> bool:
        return self.given.get(flag, "").lower() in {"1", "true", "on", "yes", "y"}


def place_of(
    url: str, options: Mapping[str, str], environ: Mapping[str, str]
) -> StorePlace | HostFinding:
    """Return the location of a store, or a finding that explains why its endpoint cannot be tested."""
    store = urlsplit(url)
    if store.scheme not in SCHEMES or not store.netloc:
        return untested("The store is no URL as s3://bucket/prefix: others are not tested.")
    # Remove a secret key from a URL such as s3://KEY@bucket.
    bucket = store.netloc.rpartition("@")[2]
    place = StorePlace(bucket, store.path.strip("/"), "", _given(options, environ))
    host = f"{bucket}." if place.has("virtual_hosted_style_request") else ""
    usual = f"https://{host}s3.{place.given['region']}.amazonaws.com"
    place = place._replace(endpoint=place.given.get("endpoint", usual).rstrip("/"))
    return _obstacle(place) or place


def _obstacle(place: StorePlace) -> HostFinding | None:
    """Return a finding, without secrets, if the store's settings make requests impossible, else None."""
    text = _SECRETS.sub("", place.endpoint)
    for name in SENT:
        # Refuse an invisible character here: it makes obstore panic, and `except Exception` does not catch a panic.
        if not _VISIBLE.fullmatch(place.given.get(name, "")):
            return untested(f"The option {name} has a character that no request can carry.")
    try:
        _ = urlsplit(text).port
    except ValueError as error:
        return untested(f"The endpoint {text} cannot be used: {error}.")
    if not _ENDPOINT.fullmatch(place.endpoint):
        return untested(
            f"The endpoint {text} is no URL as https://host:port, without a user or a query."
        )
    if text.startswith("http:") and not place.has("allow_http"):
        return untested(
            f"The endpoint {text} is not encrypted, and the collector's library refuses it.",
            "export AWS_ALLOW_HTTP=true",
        )
    keys = {"access_key_id", "secret_access_key"}
    if not place.has("skip_signature") and not keys <= place.given.keys():
        return untested(
            "The options and the environment have no keys for the store, and this test looks nowhere else.",
            "export AWS_ACCESS_KEY_ID=KEY AWS_SECRET_ACCESS_KEY=SECRET",
        )
    return None


def _given(options: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, str]:
    """Return the storage options and environment variables that are set, by obstore's names. Options take
    precedence."""
    variables = {name.lower(): value for name, value in environ.items() if name.startswith("AWS_")}
    lower = {name.lower(): value for name, value in options.items()}
    found = {"region": "us-east-1"}
    for ours, names in NAMES.items():
        values = [where[name] for where in (lower, variables) for name in names if where.get(name)]
        if values:
            found[ours] = values[0]
    return found


def untested(what: str, *commands: str) -> HostFinding:
    return problem(
        CHECK,
        what,
        "The endpoint was not tested, so it is unknown whether a store is safe there.",
        *commands,
    )


TIMEOUT = 10
"""Maximum duration (seconds) of a request."""

CHUNKS_MAX = 1000
"""Maximum number of chunks of 50 keys that a client reads from a list. A server that returns more chunks probably
repeats them."""

CONFIG = ("access_key_id", "secret_access_key", "session_token", "region")

_STATUS = re.compile(r"status code: (\d+)")
_CODE = re.compile(r"<Code>([^<]*)</Code>|\(code: (\w+)\)")
_LATE = re.compile(r"\bTime(?:d[oO]|o)ut\b")
_CAUSE = re.compile(
    r'(?:message|error): "(?:[^":]*: )?([^"]+)"|(InvalidCertificate)\(\s*(\w+)|hyper::Error\(\s*(\w+)'
)


class EndpointAnswer(NamedTuple):
    """The result of a request to an object store. `status` is the HTTP status, or 0 if no reply arrived; the server may
    still have executed the request."""

    status: int = 200
    code: str = ""
    """The server's error code or, if no reply arrived, the reason for this."""
    body: bytes = b""
    written: datetime | None = None
    """The time at which the server wrote the requested object, according to its own clock."""
    keys: frozenset[str] = frozenset()

    @property
    def done(self) -> bool:
        return self.status == 200

    @property
    def exists_already(self) -> bool:
        """Return whether the key of a conditional put exists: S3 then returns 412, or 409 for concurrent requests."""
        return self.status in {409, 412}

    @property
    def is_missing(self) -> bool:
        """Return whether the server replied that there is no object under the requested key."""
        return self.status == 404 and self.code != "NoSuchBucket"

    def __str__(self) -> str:
        return f"{self.status} {self.code}".rstrip() if self.status else f"no answer: {self.code}"


P = ParamSpec("P")


def _answered(ask: Callable[P, EndpointAnswer]) -> Callable[P, EndpointAnswer]:
    """Wrap a function that sends a request, so that the wrapper returns an answer instead of raising an exception. The
    answer is parsed from the exception's text."""

    def answer(*args: P.args, **kwargs: P.kwargs) -> EndpointAnswer:
        try:
            return ask(*args, **kwargs)
        except (BaseError, OSError, ValueError) as error:
            text = str(error)
        status, code, cause = _STATUS.search(text), _CODE.search(text), _CAUSE.search(text)
        if status or code:
            # The error text may contain a code but no status: the server may answer a deletion of several keys with the
            # status 200, but refuse some of the keys. Use the status 403 then.
            return EndpointAnswer(
                int(status[1]) if status else 403, code.group(code.lastindex or 0) if code else ""
            )
        if _LATE.search(text):
            return EndpointAnswer(0, f"nothing within {TIMEOUT} s")
        # Use the part of the error text after the last dash. The URL and the time come before it.
        line = text.partition("\n")[0].rpartition(" - ")[2]
        words = " ".join(filter(None, cause.groups())) if cause else line
        return EndpointAnswer(0, words.lower())

    return answer


class Client:
    """A client of an object store, with connections of its own. Keys are relative to the store's prefix."""

    def __init__(self, place: StorePlace) -> None:
        """Prepare a client, without sending a request. Raise BaseError or ValueError for an invalid location."""
        self._store = S3Store(
            place.bucket,
            prefix=place.prefix or None,
            endpoint=place.endpoint,
            virtual_hosted_style_request=place.has("virtual_hosted_style_request"),
            skip_signature=place.has("skip_signature"),
            client_options={
                "timeout": timedelta(seconds=TIMEOUT),
                "allow_http": place.has("allow_http"),
                "allow_invalid_certificates": place.has("allow_invalid_certificates"),
                "randomize_addresses": True,
            },
            retry_config={"max_retries": 0},
            **{name: place.given[name] for name in CONFIG if name in place.given},  # type: ignore[arg-type]
        )

    @_answered
    def put(self, key: str, body: bytes, *, create: bool = False) -> EndpointAnswer:
        obstore.put(self._store, key, body, mode="create" if create else "overwrite")
        return EndpointAnswer()

    @_answered
    def get(self, key: str) -> EndpointAnswer:
        found = obstore.get(self._store, key)
        return EndpointAnswer(body=bytes(found.bytes()), written=found.meta["last_modified"])

    @_answered
    def list(self, folder: str, after: str | None = None) -> EndpointAnswer:
        """List the keys in a folder. With `after`, list only the keys that sort after `after`."""
        chunks = islice(obstore.list(self._store, folder, offset=after), CHUNKS_MAX)
        found = chain.from_iterable(chunks)
        return EndpointAnswer(keys=frozenset(each["path"] for each in found))

    @_answered
    def delete(self, *keys: str) -> EndpointAnswer:
        obstore.delete(self._store, keys)
        return EndpointAnswer()
