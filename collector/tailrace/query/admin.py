"""Request pages from the admin endpoint of a collector, with its token, and check its TLS certificate."""

from __future__ import annotations

import ssl
from http import HTTPStatus
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import HTTPSHandler, ProxyHandler, Request, build_opener

from tailrace.config.load import expanded
from tailrace.config.schema import AdminConfig
from tailrace.config.text import unmarked
from tailrace.errors import StoreError

ANSWER_SECONDS = 5.0
ANSWER_BYTES = 4 * 2**20


def page(admin: AdminConfig, address: str, path: str) -> bytes:
    """Return at most ANSWER_BYTES bytes of the page `path` from the admin endpoint at `address`, also of an unhealthy
    collector. Raise OSError if the endpoint refuses or does not answer, and StoreError without a token."""
    scheme = "https" if admin.tls_certificate else "http"
    request = Request(f"{scheme}://{address}{path}")  # noqa: S310 - our own endpoint
    if admin.tokens:
        request.add_header("Authorization", f"Bearer {_token(expanded(admin.tokens))}")
    # Ignore a proxy in environment variables, because the endpoint is on this host or in this network.
    opener = build_opener(ProxyHandler({}), HTTPSHandler(context=_context(admin)))
    try:
        with opener.open(request, timeout=ANSWER_SECONDS) as answer:
            return bytes(answer.read(ANSWER_BYTES))
    except HTTPError as error:
        with error:
            if error.code != HTTPStatus.SERVICE_UNAVAILABLE:
                raise
            return error.read(ANSWER_BYTES)


def _token(path: Path) -> str:
    for line in map(bytes.strip, unmarked(path.read_bytes()).splitlines()):
        if line and not line.startswith(b"#"):
            return line.decode("latin-1")
    raise StoreError(f"{path}: contains no token")


def _context(admin: AdminConfig) -> ssl.SSLContext | None:
    """Return a TLS context that trusts only the configured certificate, under any host name; None without one."""
    if not admin.tls_certificate:
        return None
    context = ssl.create_default_context(cafile=str(expanded(admin.tls_certificate)))
    context.check_hostname = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return context
