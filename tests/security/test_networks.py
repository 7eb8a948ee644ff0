"""Lists of networks, and the addresses that are in them."""

from __future__ import annotations

import pytest

from tailrace.security.guard import Networks


@pytest.mark.parametrize(
    ("networks", "inside", "outside"),
    [
        (["192.0.2.0/24"], ["192.0.2.0", "192.0.2.255", "::ffff:192.0.2.7"], ["192.0.3.0", "::1", "::192.0.2.7"]),
        (["192.0.2.7"], ["192.0.2.7"], ["192.0.2.6", "192.0.2.8"]),
        (["192.0.2.6/255.255.255.254"], ["192.0.2.6", "192.0.2.7"], ["192.0.2.8"]),
        (["2001:db8::/32", "::1"], ["2001:db8::5", "2001:db8:ffff::", "::1"], ["2001:db9::", "127.0.0.1", "::2"]),
        (["fe80::/10"], ["fe80::1%eth0", "fe80::1"], ["fec0::%eth0"]),
        (["::ffff:10.0.0.0/104"], ["10.255.0.1", "::ffff:10.0.0.1"], ["11.0.0.0"]),
        (["::/0"], ["::", "ffff::"], ["192.0.2.1", "::ffff:192.0.2.1"]),
        (["0.0.0.0/0"], ["192.0.2.1", "::ffff:192.0.2.1"], ["::1"]),
    ],
)  # fmt: skip
def test_an_address_is_inside_or_not(networks, inside, outside):
    listed = Networks(networks)
    assert listed
    for _ in range(2):  # the second time from memory
        assert [address for address in inside if not listed.allows(address)] == []
        assert [address for address in outside if listed.allows(address)] == []


def test_no_list_is_everybody():
    anybody = Networks([])
    assert not anybody
    assert anybody.allows("192.0.2.1")
    assert anybody.allows("2001:db8::1")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("10.0.0.5/8", "'10.0.0.5/8' has bits set after its prefix; did you mean 10.0.0.0/8?"),
        ("2001:db8::1/32", "'2001:db8::1/32' has bits set after its prefix; did you mean 2001:db8::/32?"),
        *((bad, f"'{bad}' is not a network; allowed: CIDR notation, as in \"192.0.2.0/24\" or \"2001:db8::/32\"")
          for bad in ("", "localhost", "10.0.0.0/33", "10.0.0", "10.0.0.0/8, ::1", "[::1]", "1.2.3.4:80", "*")),
    ],
)  # fmt: skip
def test_what_is_no_network_is_said(text, message):
    with pytest.raises(ValueError, match=r"network|prefix") as caught:
        Networks([text])
    assert str(caught.value) == message
