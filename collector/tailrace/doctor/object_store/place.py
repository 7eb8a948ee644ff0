"""Where a store's endpoint is, by the options and variables that the collector's library reads."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import urlsplit

from tailrace.doctor.finding import Finding, Severity
from tailrace.doctor.object_store.signing import Keys

CHECK = "endpoint"

SCHEMES = ("s3", "s3a")

NAMES = {
    "access": ("aws_access_key_id", "access_key_id"),
    "secret": ("aws_secret_access_key", "secret_access_key"),
    "token": ("aws_session_token", "aws_token", "session_token", "token"),
    "region": ("aws_region", "region", "aws_default_region", "default_region"),
    "endpoint": ("aws_endpoint_url_s3", "aws_endpoint_url", "aws_endpoint", "endpoint_url", "endpoint"),
    "allow_http": ("aws_allow_http", "allow_http"),
    "virtual": ("aws_virtual_hosted_style_request", "virtual_hosted_style_request"),
    "unsigned": ("aws_skip_signature", "skip_signature"),
    "any_certificate": ("aws_allow_invalid_certificates", "allow_invalid_certificates"),
}  # fmt: skip
"""Names of the library's options, in any case; of several the first counts. Variables have the long ones."""


class StorePlace(NamedTuple):
    """A prefix in a bucket behind an endpoint."""

    url: str
    secure: bool
    host: str
    port: int
    base: str
    """The part before a key in a request's path: the bucket, unless the host names it."""
    prefix: str
    """The store's prefix: empty, or with a slash at its end."""
    region: str
    keys: Keys | None
    """None if requests are not signed."""
    any_certificate: bool

    @property
    def endpoint(self) -> str:
        return f"{'https' if self.secure else 'http'}://{self.authority}"

    @property
    def authority(self) -> str:
        """Return the host, and the port unless it is the usual one, as the header `host` has it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.secure else 80) else f"{host}:{self.port}"

    def addresses(self) -> list[str]:
        """Return the addresses of the endpoint's name. Raise OSError if it has none."""
        found = socket.getaddrinfo(
            self.host, self.port, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG
        )
        return list(dict.fromkeys(str(address[0]) for *_, address in found))


def place_of(
    url: str, options: Mapping[str, str], environ: Mapping[str, str]
) -> StorePlace | Finding:
    """Return the place of a store, or why its endpoint cannot be tested."""
    store = urlsplit(url)
    if store.scheme not in SCHEMES or not store.netloc:
        return _untested("The store is no URL as s3://bucket/prefix: others are not tested.", [])
    given = _given(options, environ)
    region = given.get("region", "us-east-1")
    virtual = _true(given.get("virtual"))
    bucket = store.netloc.rpartition("@")[2]  # a key before it would be a secret
    usual = f"https://{bucket + '.' if virtual else ''}s3.{region}.amazonaws.com"
    text = given.get("endpoint", usual)
    try:
        endpoint = urlsplit(text)
        secure = endpoint.scheme == "https"
        port = endpoint.port or (443 if secure else 80)
    except ValueError as error:
        return _untested(f"The endpoint {text} cannot be used: {error}.", [])
    if endpoint.scheme not in {"http", "https"} or not endpoint.hostname:
        return _untested(f"The endpoint {text} is no URL as https://host:port.", [])
    if not secure and not _true(given.get("allow_http")):
        return _untested(
            f"The endpoint {text} is not encrypted, and the collector's library refuses it.",
            ["export AWS_ALLOW_HTTP=true"],
        )
    keys = None
    if not _true(given.get("unsigned")):
        if not {"access", "secret"} <= given.keys():
            return _untested(
                "The options and the environment have no keys for the store, and this test looks nowhere else.",
                ["export AWS_ACCESS_KEY_ID=KEY AWS_SECRET_ACCESS_KEY=SECRET"],
            )
        keys = Keys(given["access"], given["secret"], given.get("token"))
    prefix = store.path.strip("/")
    base = endpoint.path.rstrip("/") + ("" if virtual else f"/{bucket}")
    return StorePlace(
        url=f"{store.scheme}://{bucket}/{prefix}".rstrip("/"),
        secure=secure,
        host=endpoint.hostname,
        port=port,
        base=base,
        prefix=f"{prefix}/" if prefix else "",
        region=region,
        keys=keys,
        any_certificate=_true(given.get("any_certificate")),
    )


def unresolved(place: StorePlace, error: OSError) -> Finding:
    """Return the finding about a name that has no address."""
    what = f"{place.host} has no address: {error.strerror or error}."
    return _untested(what, [f"getent ahosts {place.host}"])


def _given(options: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, str]:
    """Return what is set, by our names. Options override the environment."""
    variables = {name.lower(): value for name, value in environ.items() if name.startswith("AWS_")}
    lower = {name.lower(): value for name, value in options.items()}
    return {
        ours: next(where[name] for where in (lower, variables) for name in names if where.get(name))
        for ours, names in NAMES.items()
        if any(where.get(name) for where in (lower, variables) for name in names)
    }


def _true(value: str | None) -> bool:
    return (value or "").lower() in {"1", "true", "on", "yes", "y"}


def _untested(what: str, commands: list[str]) -> Finding:
    return Finding(
        check=CHECK,
        severity=Severity.PROBLEM,
        what=what,
        why="Nothing is known of this endpoint: none of its promises was tested.",
        commands=commands,
    )
