"""Addresses to listen on."""

from __future__ import annotations

import pytest
from hypothesis import given, settings, strategies as st

from tailrace.config.listen import PATH_MAX, parse, parse_mode, parse_path


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("127.0.0.1:7701", ("127.0.0.1", 7701)),
        ("10.0.0.1:0", ("10.0.0.1", 0)),
        ("localhost:65535", ("localhost", 65535)),
        ("Node-7.cluster_a:1", ("node-7.cluster_a", 1)),
        ("[::]:80", ("::", 80)),
        ("[0:0:0:0:0:0:0:1]:080", ("::1", 80)),
        ("[fe80::1%eth0]:80", ("fe80::1%eth0", 80)),
    ],
)
def test_a_host_and_a_port_are_read(text, expected):
    assert parse(text) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "'' is not an address; allowed: host:port or [v6]:port"),
        ("7701", "'7701' is not an address"),
        ("localhost", "'localhost' is not an address"),
        ("localhost:", "is not an address"),
        ("localhost:http", "is not an address"),
        ("localhost:-1", "is not an address"),
        ("localhost:٣", "is not an address"),
        (" localhost:1", "' localhost' is not a host name"),
        ("::1:80", "'::1:80' is not an address"),
        ("[::1]", "is not an address"),
        ("[localhost]:80", "'localhost' is not an IPv6 address"),
        ("[127.0.0.1]:80", "'127.0.0.1' is not an IPv6 address"),
        (":80", 'no host; allowed: host:port or [v6]:port, "0.0.0.0:port" for every interface'),
        ("localhost:65536", "has a port out of range; allowed: 0 to 65535"),
        ("localhost:" + "9" * 5000, "has a port out of range; allowed: 0 to 65535"),
        ("300.0.0.1:80", "'300.0.0.1' is not an IPv4 address"),
        ("1.2.3:80", "'1.2.3' is not an IPv4 address"),
        ("a..b:80", "'a..b' is not a host name"),
        ("a b:80", "'a b' is not a host name"),
        ("http://a:80", "is not an address"),
    ],
)
def test_what_is_no_address_is_refused_with_what_is_allowed(text, message):
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the whole text is compared below
        parse(text)
    assert message in str(caught.value)


@settings(deadline=None)
@given(st.ip_addresses(), st.integers(0, 65_535))
def test_every_ip_address_is_allowed_in_its_own_spelling(address, port):
    text = f"[{address}]:{port}" if address.version == 6 else f"{address}:{port}"
    assert parse(text) == (str(address), port)


@settings(deadline=None)
@given(st.text(), st.sampled_from(["", ":1", "]:1", ":99999"]))
def test_any_other_text_is_refused_or_read_and_nothing_else(text, end):
    try:
        host, port = parse(text + end)
    except ValueError:
        return
    assert host
    assert 0 <= port <= 65_535


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/run/a.sock", "/run/a.sock"),
        ("/run//x/../a.sock", "/run/a.sock"),
        ("/" + "a" * (PATH_MAX - 1), "/" + "a" * (PATH_MAX - 1)),
    ],
)
def test_a_path_of_a_socket_is_read(text, expected):
    assert parse_path(text) == expected


@pytest.mark.parametrize("text", ["", "a.sock", "@a", "./a", "/", "/run/", "/" + "a" * PATH_MAX])
def test_what_is_no_path_for_a_socket_is_refused(text):
    with pytest.raises(ValueError, match="; allowed: "):
        parse_path(text)


@settings(deadline=None)
@given(st.integers(0, 0o777))
def test_a_mode_is_octal_with_or_without_a_zero(mode):
    assert parse_mode(f"{mode:04o}") == parse_mode(f"{mode:03o}") == mode


@pytest.mark.parametrize("text", ["", "66", "0o660", "1660", "888", "-600", "٦٦٠", "rw-"])
def test_what_is_no_mode_is_refused(text):
    with pytest.raises(ValueError, match="; allowed: octal"):
        parse_mode(text)
