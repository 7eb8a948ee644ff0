"""Sign requests to S3 (AWS Signature Version 4, with the headers of S3)."""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from datetime import UTC, datetime
from hashlib import sha256
from typing import NamedTuple
from urllib.parse import quote

ALGORITHM = "AWS4-HMAC-SHA256"


class Keys(NamedTuple):
    """`token` is there only for keys that end after some hours."""

    access: str
    secret: str
    token: str | None = None


class StoreRequest(NamedTuple):
    """A request before it is encoded. `headers` have lower-case names, `host` among them."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes = b""

    @property
    def encoded_path(self) -> str:
        return quote(self.path, safe="/-_.~")

    @property
    def encoded_query(self) -> str:
        pairs = sorted((_encoded(name), _encoded(value)) for name, value in self.query.items())
        return "&".join(f"{name}={value}" for name, value in pairs)

    @property
    def target(self) -> str:
        """Return what stands in the request's line."""
        return self.encoded_path + (f"?{self.encoded_query}" if self.query else "")


def sign(request: StoreRequest, keys: Keys, region: str, now_ns: int) -> dict[str, str]:
    """Return the request's headers, and those that say who sent it and when."""
    moment = datetime.fromtimestamp(now_ns // 10**9, UTC).strftime("%Y%m%dT%H%M%SZ")
    headers = {
        **request.headers,
        "x-amz-content-sha256": sha256(request.body).hexdigest(),
        "x-amz-date": moment,
    }
    if keys.token is not None:
        headers["x-amz-security-token"] = keys.token
    names = ";".join(sorted(headers))
    canonical = "\n".join(
        [
            request.method,
            request.encoded_path,
            request.encoded_query,
            *(f"{name}:{' '.join(headers[name].split())}" for name in sorted(headers)),
            "",
            names,
            headers["x-amz-content-sha256"],
        ]
    )
    scope = f"{moment[:8]}/{region}/s3/aws4_request"
    text = "\n".join([ALGORITHM, moment, scope, sha256(canonical.encode()).hexdigest()])
    key = f"AWS4{keys.secret}".encode()
    for part in scope.split("/"):
        key = _hmac(key, part)
    signature = _hmac(key, text).hex()
    headers["authorization"] = (
        f"{ALGORITHM} Credential={keys.access}/{scope},SignedHeaders={names},Signature={signature}"
    )
    return headers


def _hmac(key: bytes, text: str) -> bytes:
    return hmac.digest(key, text.encode(), "sha256")


def _encoded(text: str) -> str:
    return quote(text, safe="-_.~")
