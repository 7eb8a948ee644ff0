"""Authorize requests by the header `Host`, by the token, and by the page that sends the request.

Every user of the machine, and every page in a browser on it, can reach a port of a loopback address. Therefore requests
to the API need the token in the header `Authorization`, or a cookie. If a request has the token in its URL, the
response sets the cookie. Browsers send a cookie to all ports of a host, so a process that listens on another port could
read it. Therefore the value of the cookie is a different secret from the token, and is valid only at a random path. A
socket in the file system needs no token, because only its owner can open it.

The header `Host` of each request must name this server. Otherwise a foreign page could reach the server under another
name (DNS rebinding). Browsers also state which page sends a request. A request of a foreign page is refused, and a
request that changes something must come from a page of this server.

The static files of the page contain no secrets and need no token. So a link on any page can open this server's page,
which then sends the cookie with its own requests.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Iterable
from hashlib import sha256
from http import HTTPStatus
from http.cookies import CookieError, SimpleCookie
from urllib.parse import urlencode, urlsplit

from starlette.datastructures import Headers, MutableHeaders, QueryParams
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tailrace.view.answers import refusal

LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
"""Host names under which a browser reaches the server: from this machine, or through a tunnel."""

API = "/api/"

CHANGING = frozenset({"POST", "PUT", "PATCH", "DELETE"})

HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self';"
        " font-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none';"
        " require-trusted-types-for 'script'"
    ),
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "same-origin",  # With this policy, browsers still send `Origin` in the page's own requests.
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}
COOKIE = "tailrace"


class Token:
    """The secrets of one server: the token, the value of the cookie, and the path at which the cookie is valid."""

    def __init__(self) -> None:
        self.text = secrets.token_urlsafe(32)
        self.cookie = secrets.token_urlsafe(32)
        self.path = f"/{secrets.token_hex(16)}/"

    def is_bearer(self, headers: Headers) -> bool:
        scheme, _, given = headers.get("authorization", "").partition(" ")
        return scheme.lower() == "bearer" and equal(given, self.text)

    def is_cookie(self, headers: Headers) -> bool:
        try:
            cookie = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
        except CookieError:
            return False
        return cookie is not None and equal(cookie.value, self.cookie)


class Door:
    """Passes authorized requests on to `app`, and refuses all others."""

    def __init__(self, app: ASGIApp, token: Token | None, hosts: Iterable[str] = ()) -> None:
        """`token` is None for a socket in the file system. `hosts` are further names of this server."""
        self._app = app
        self._token = token
        self._hosts = LOOPBACK | {name.lower() for name in hosts}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        token, at_page = self._token, False
        if token is not None and scope["path"].startswith(token.path):
            scope, at_page = {**scope, "path": scope["path"][len(token.path) - 1 :]}, True
        answer = self._answer(scope, at_page=at_page)
        await (answer or self._app)(scope, receive, with_headers)

    def _answer(self, scope: Scope, *, at_page: bool) -> Response | None:
        """Return the response to a request that `app` must not answer, or None. `at_page` states whether the request
        came at the path at which the cookie is valid."""
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if _name(host) not in self._hosts:
            return refusal(
                HTTPStatus.MISDIRECTED_REQUEST,
                f"this server is not {host!r}",
                "header Host",
                "open the address that `tailrace view` printed, or allow the name with --host",
            )
        if not scope["path"].startswith(API):
            return self._entry(scope)
        if headers.get("sec-fetch-site", "none") not in {"same-origin", "none"}:
            return refusal(
                HTTPStatus.FORBIDDEN,
                "another page asks",
                "header Sec-Fetch-Site",
                "open the address that `tailrace view` printed",
            )
        token = self._token
        by_header = token is not None and token.is_bearer(headers)
        by_cookie = token is not None and at_page and token.is_cookie(headers)
        if token is not None and not by_header and not by_cookie:
            return refusal(
                HTTPStatus.UNAUTHORIZED,
                "the token is missing or wrong",
                "cookie",
                "open the address that `tailrace view` printed, or send Authorization: Bearer TOKEN",
            )
        ours = headers.get("origin", "").lower() == f"http://{host}".lower()
        if scope["method"] in CHANGING and not by_header and not ours:
            return refusal(
                HTTPStatus.FORBIDDEN,
                "a request that sends something must come from this server's page",
                "header Origin",
                "send Origin with this server's address, or Authorization: Bearer TOKEN",
            )
        return None

    def _entry(self, scope: Scope) -> Response | None:
        """If the URL contains the token, return a redirect that sets the cookie and removes the token from the URL."""
        parameters = QueryParams(scope["query_string"])
        given = parameters.get("token")
        if given is None or self._token is None:
            return None
        if not equal(given, self._token.text):
            return refusal(
                HTTPStatus.UNAUTHORIZED,
                "the token is wrong",
                "token",
                "open the address that `tailrace view` printed",
            )
        rest = urlencode([(k, v) for k, v in parameters.multi_items() if k != "token"])
        path = self._token.path
        answer = RedirectResponse(f"{path}?{rest}" if rest else path, HTTPStatus.SEE_OTHER)
        answer.set_cookie(COOKIE, self._token.cookie, path=path, httponly=True, samesite="strict")
        return answer


def equal(given: str, secret: str) -> bool:
    # Compare digests, because the time that this takes reveals nothing about the secret.
    digests = (sha256(text.encode(errors="surrogateescape")).digest() for text in (given, secret))
    return hmac.compare_digest(*digests)


def _name(host: str) -> str:
    """Return the host name in the value of a header `Host`, or an empty text if the value is invalid."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""
