"""Request pages from the admin endpoint of a collector, with its token, and check its TLS certificate."""

from __future__ import annotations

import ssl
from http import HTTPStatus
from urllib.error import HTTPError
from urllib.request import HTTPSHandler, ProxyHandler, Request, build_opener

from tailrace.config.load import expanded
from tailrace.config.schema import AdminConfig
from tailrace.config.text import unmarked
from tailrace.errors import StoreError

ANSWER_SECONDS = 5.0
ANSWER_BYTES = 4 * 2**20


def page(admin: AdminConfig, address: str, path: str) -> bytes:
    """Return at most ANSWER_BYTES bytes of the page `path` from the admin endpoint at `address`, even if the collector
    reports that it is unhealthy. Raise OSError if the endpoint refuses or does not answer, and StoreError without a
    token."""
    context = None
    if admin.tls_certificate:
        # Trust only this certificate, under any name, because clients may reach the endpoint under any address.
        context = ssl.create_default_context(cafile=str(expanded(admin.tls_certificate)))
        context.check_hostname = False
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    scheme = "https" if context else "http"
    request = Request(f"{scheme}://{address}{path}")  # noqa: S310 - our own endpoint
    if admin.tokens:
        file = expanded(admin.tokens)
        lines = map(bytes.strip, unmarked(file.read_bytes()).splitlines())
        token = next((line for line in lines if line and not line.startswith(b"#")), None)
        if token is None:
            raise StoreError(f"{file}: contains no token")
        request.add_header("Authorization", f"Bearer {token.decode('latin-1')}")
    # Ignore a proxy in environment variables, because the endpoint is on this host or in this network.
    opener = build_opener(ProxyHandler({}), HTTPSHandler(context=context))
    try:
        with opener.open(request, timeout=ANSWER_SECONDS) as answer:
            return bytes(answer.read(ANSWER_BYTES))
    except HTTPError as error:
        with error:
            if error.code != HTTPStatus.SERVICE_UNAVAILABLE:
                raise
            return error.read(ANSWER_BYTES)
