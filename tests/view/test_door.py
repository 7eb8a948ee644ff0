"""Test who gets in: tokens, cookies, hosts, origins; and the headers of every answer."""

from __future__ import annotations

import html
import os
import stat

import pytest

from tests.program import COMMAND, run
from tests.system.collector import until

STORE = "/api/v1/store"
SQL = "/api/v1/sql"
QUESTION = '{"sql": "SELECT 1"}'


def entered(viewer):
    """Return the cookie and the path of the page after a request for the printed address."""
    answer = viewer.send("GET", f"/?token={viewer.token}")
    return answer.headers["set-cookie"].partition(";")[0], answer.headers["location"].rstrip("/")


def test_the_printed_address_answers_with_a_cookie_and_forgets_the_token(viewer):
    answer = viewer.send("GET", f"/?token={viewer.token}&view=timeline&from=5")
    path, _, rest = answer.headers["location"].partition("?")
    assert (answer.status, rest) == (303, "view=timeline&from=5")
    given = answer.headers["set-cookie"]
    assert f"Path={path};" in given
    assert "HttpOnly" in given
    assert "SameSite=strict" in given
    assert "Domain" not in given
    cookie = {"Cookie": f"other=1; {given.partition(';')[0]}"}
    assert viewer.send("GET", path + STORE[1:], cookie).status == 200
    assert viewer.send("GET", path).body == viewer.send("GET", "/").body


def test_who_gets_the_cookie_at_another_port_gets_in_nowhere(viewer):
    """Browsers send cookies to all ports of a host. The path is in no request to another port, and is not in the cookie."""
    cookie, path = entered(viewer)
    _, _, value = cookie.partition("=")
    assert viewer.token not in cookie
    assert path.strip("/") not in cookie
    for headers in ({"Cookie": cookie}, {"Authorization": f"Bearer {value}"}):
        assert viewer.send("GET", STORE, headers).status == 401
    assert viewer.send("GET", f"/?token={value}").status == 401
    assert viewer.send("GET", path + STORE).status == 401
    assert viewer.send("GET", f"{path}0{STORE}", {"Cookie": cookie}).status == 404


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": "Bearer wrong"},
        {"Authorization": "Bearer"},
        {"Authorization": "Basic eDp5"},
        {"Cookie": "tailrace-0=1"},
        {"Cookie": '"=;;\x01'},
    ],
)
def test_without_the_token_the_api_answers_nothing(viewer, headers):
    answer = viewer.send("GET", STORE, headers)
    assert answer.status == 401
    assert "token" in answer.json["error"]["what"]


def test_a_cookie_of_another_server_is_none_of_ours(viewer):
    cookie, path = entered(viewer)
    name, _, _ = cookie.partition("=")
    assert viewer.send("GET", path + STORE, {"Cookie": f"{name}=x"}).status == 401


def test_a_wrong_token_is_told_at_once(viewer):
    answer = viewer.send("GET", "/?token=x")
    assert answer.status == 401
    assert "set-cookie" not in answer.headers


def test_the_page_itself_needs_no_token(viewer):
    answer = viewer.send("GET", "/")
    assert (answer.status, answer.headers["content-type"]) == (200, "text/html; charset=utf-8")
    again = viewer.send("GET", "/", {"If-None-Match": answer.headers["etag"]})
    assert (again.status, again.body) == (304, b"")


@pytest.mark.parametrize("path", ["/../cli/view.py", "/%2e%2e/opening.py", "/opening.py", "/x"])
def test_nothing_but_the_page_is_served(viewer, path):
    assert viewer.send("GET", path).status == 404


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example:80", "", "[::", "10.0.0.1"]
)
def test_a_host_of_another_name_is_refused_even_with_the_token(viewer, host):
    headers = {"Host": host, "Authorization": f"Bearer {viewer.token}"}
    assert viewer.send("GET", STORE, headers).status == 421
    assert viewer.send("GET", "/", headers).status == 421


@pytest.mark.parametrize(
    "host", ["localhost", "localhost:9", "127.0.0.1:8080", "[::1]:7", "LOCALHOST"]
)
def test_a_tunnel_may_have_another_port(viewer, host):
    headers = {"Host": host, "Authorization": f"Bearer {viewer.token}"}
    assert viewer.send("GET", STORE, headers).status == 200


def test_a_name_that_is_allowed_is_answered(viewer_of, few_store):
    viewer = viewer_of(few_store, "--host", "node7.example")
    headers = {"Host": "node7.example:80", "Authorization": f"Bearer {viewer.token}"}
    assert viewer.send("GET", STORE, headers).status == 200


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_another_page_is_refused_even_with_the_cookie(viewer, site):
    cookie, path = entered(viewer)
    headers = {"Cookie": cookie, "Sec-Fetch-Site": site}
    assert viewer.send("GET", path + STORE, headers).status == 403


@pytest.mark.parametrize("origin", [None, "null", "http://evil.example", "http://127.0.0.1:1"])
def test_what_sends_something_must_come_from_our_page(viewer, origin):
    cookie, path = entered(viewer)
    headers = {"Cookie": cookie} | ({} if origin is None else {"Origin": origin})
    assert viewer.send("POST", path + SQL, headers, QUESTION).status == 403
    assert viewer.send("DELETE", f"{path}/api/v1/notes?id=0", headers).status == 403


def test_our_page_may_send(viewer):
    cookie, path = entered(viewer)
    headers = {"Cookie": cookie, "Origin": f"http://{viewer.host}:{viewer.port}"}
    assert viewer.send("POST", path + SQL, headers, QUESTION).json["rows"] == [[1]]


@pytest.mark.parametrize(
    ("method", "path", "host"),
    [
        ("GET", "/", "localhost"),
        ("GET", STORE, "localhost"),
        ("GET", "/nothing", "localhost"),
        ("PUT", STORE, "localhost"),
        ("GET", "/", "evil.example"),
        ("GET", "/api/v1/live?x", "localhost"),
    ],
)
def test_every_answer_has_the_strict_headers(viewer, method, path, host):
    headers = viewer.send(method, path, {"Host": host}).headers
    policy = dict(
        each.strip().partition(" ")[::2] for each in headers["content-security-policy"].split(";")
    )
    assert policy == {
        "default-src": "'none'",
        "script-src": "'self'",
        "style-src": "'self'",
        "img-src": "'self' data:",
        "connect-src": "'self'",
        "font-src": "'self'",
        "base-uri": "'none'",
        "form-action": "'none'",
        "frame-ancestors": "'none'",
        "require-trusted-types-for": "'script'",
    }
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["cross-origin-resource-policy"] == "same-origin"
    assert headers["referrer-policy"] == "same-origin"
    assert "server" not in headers
    assert "access-control-allow-origin" not in headers


def test_a_socket_of_the_file_system_needs_no_token_and_is_its_owners(
    viewer_of, few_store, tmp_path
):
    path = tmp_path / "view.sock"
    viewer = viewer_of(few_store, "--unix", path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert viewer.get("store")["stores"] == [str(few_store)]
    assert viewer.send("GET", STORE, {"Host": "evil.example"}).status == 421
    assert viewer.send("POST", SQL, {}, QUESTION).status == 403
    assert viewer.ask("sql", {"sql": "SELECT 1"}).status == 200
    assert viewer.end() == (0, "")
    assert not path.exists()


def test_a_socket_that_a_killed_viewer_left_is_replaced(viewer_of, few_store, tmp_path):
    path = tmp_path / "view.sock"
    viewer_of(few_store, "--unix", path).end(9)
    assert path.exists()
    assert viewer_of(few_store, "--unix", path).ask("store").status == 200


@pytest.mark.parametrize("address", ["0.0.0.0:0", "[::]:0", "192.0.2.1:0", "node7.example:0"])
def test_an_address_that_other_hosts_reach_is_refused(few_store, address):
    done = run(
        [*COMMAND, "view", "--listen", address, few_store],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (2, "")
    said = " ".join(done.stderr.replace("│", " ").split())
    for remedy in ("ssh -L", "--unix PATH", "--host NAME"):
        assert remedy in said


def test_who_names_the_host_may_listen_on_every_address(viewer_of, few_store):
    viewer = viewer_of(few_store, "--listen", "0.0.0.0:0", "--host", "node7.example")
    viewer.host = "127.0.0.1"
    assert viewer.get("store")["version"] == 1


BROWSER = """#!/bin/sh
echo "$@" > arguments.new
file=${1#file://}
stat -c %a "$file" "$(dirname "$file")" > modes
cp "$file" opened.html
mv arguments.new arguments
"""


def test_the_arguments_of_the_browser_hold_no_token(viewer_of, few_store, tmp_path):
    """Every user of the host can read them."""
    browser = tmp_path / "browser"
    browser.write_text(BROWSER)
    browser.chmod(0o700)
    environ = os.environ | {"BROWSER": str(browser), "XDG_RUNTIME_DIR": str(tmp_path)}
    viewer = viewer_of(few_store, "--open", cwd=tmp_path, env=environ)
    until((tmp_path / "arguments").exists, "the browser to be opened")
    arguments = (tmp_path / "arguments").read_text()
    assert viewer.token not in arguments
    assert (tmp_path / "modes").read_text().split() == ["600", "700"]
    assert html.escape(viewer.url) in (tmp_path / "opened.html").read_text()
    assert viewer.end() == (0, "")
    assert list(tmp_path.glob("tailrace-view-*")) == []
