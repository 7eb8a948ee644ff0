from __future__ import annotations

import errno
import resource
import signal
from collections import deque

import pytest
from hypothesis import given, settings, strategies as st

from clients.python.tests.collectors import TcpCollector, UdpCollector, until
from tailrace_client._transport import DATAGRAM_BYTES, File, Tcp, Udp, parse


def send_all(transport, packets):
    while packets or transport.unsent():
        transport.send(packets)
        transport.wait(1)


@pytest.mark.parametrize(
    "address",
    [
        "", "udp", "udp://", "udp://host", "tcp://host:0", "tcp://host:x", "tcp://host:70000", "http://host:1",
        "file://", "file:///", "file://elsewhere/path", "udp://host:1/path", "tcp://:1", "tcp://[::1:1",
    ],
)  # fmt: skip
def test_what_is_no_address_is_refused_and_the_forms_are_named(address):
    with pytest.raises(ValueError, match=r"udp://host:port, tcp://host:port or file:///path"):
        parse(address)


def test_each_form_of_address_gives_its_transport(tmp_path):
    assert isinstance(parse("udp://localhost:1"), Udp)
    assert isinstance(parse("tcp://[::1]:65535/"), Tcp)
    file = parse(f"file://{tmp_path}/a%20b")
    assert isinstance(file, File)
    file.open()
    file.close()
    assert (tmp_path / "a b").exists()


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(1, 2000), min_size=1, max_size=60))
def test_datagrams_hold_whole_packets_in_order_and_stay_within_a_frame(sizes):
    packets = [bytes([number]) * size for number, size in enumerate(sizes)]
    with UdpCollector() as collector:
        transport = parse(collector.address)
        transport.preamble = b"\xff" * 23
        transport.open()
        queue = deque(packets)
        while queue:
            assert transport.send(queue) > 0
        transport.close()
        datagrams = collector.waiting()
    assert b"".join(datagrams) == transport.preamble + b"".join(packets)
    ends = {0}
    for packet in [transport.preamble, *packets]:
        ends.add(max(ends) + len(packet))
    at = 0
    for datagram in datagrams:
        assert at in ends
        at += len(datagram)
        own = datagram.removeprefix(transport.preamble)
        assert len(datagram) <= DATAGRAM_BYTES or len(set(own)) == 1  # one packet travels alone


def test_a_datagram_refused_on_behalf_of_an_earlier_one_is_sent_again_with_the_preamble():
    with UdpCollector() as collector:
        port = collector.socket.getsockname()[1]
    transport = parse(f"udp://127.0.0.1:{port}")
    transport.preamble = b"preamble"
    transport.open()
    assert transport.send(deque([b"into the void"])) == 13
    with UdpCollector(port) as collector:  # the refusal of the first waits in the socket by now
        assert transport.send(deque([b"one"])) == 3
        assert transport.send(deque([b"two"])) == 3
        transport.close()
        assert b"".join(collector.waiting()) == b"onepreambletwo"
    assert transport.lost == 0


def test_a_datagram_that_the_kernel_will_never_take_is_counted_and_passed_over():
    with UdpCollector() as collector:
        transport = parse(collector.address)
        transport.open()
        assert transport.send(deque([bytes(66_000)])) == 66_000
        assert transport.send(deque([b"next"])) == 4
        transport.close()
        assert transport.lost == 1
        assert collector.receive() == b"next"


def test_a_connection_that_breaks_within_a_packet_begins_anew_with_that_packet():
    with TcpCollector(receive_buffer=4096) as collector:
        collector.reading.clear()
        transport = parse(collector.address)
        transport.preamble = b"<"
        transport.open()
        packets = deque([bytes([number]) * 100_000 for number in range(200)])
        through = 0
        while done := transport.send(packets):
            through += done
        assert transport.unsent() > 0
        collector.reading.set()
        until(lambda: collector.sessions)
        collector.hang_up()
        with pytest.raises(ConnectionError):
            send_all(transport, packets)
        assert not transport.is_open
        transport.open()
        send_all(transport, packets)
        transport.close()
        until(lambda: collector.ended == 2)
        first, second = map(bytes, collector.sessions)
    assert transport.connections == 2
    assert second[:1] == b"<"
    again = second[1]
    assert again > 0
    assert second == b"<" + b"".join(bytes([number]) * 100_000 for number in range(again, 200))
    assert (b"<" + b"".join(bytes([n]) * 100_000 for n in range(200))).startswith(first)


def test_an_orderly_end_of_the_connection_is_seen_before_a_packet_goes_into_it():
    with TcpCollector() as collector:
        transport = parse(collector.address)
        transport.open()
        transport.send(deque([b"one"]))
        until(lambda: collector.sessions and bytes(collector.sessions[0]) == b"one")
        collector.hang_up()
        until(lambda: collector.ended == 1)
        packets = deque([b"two"])
        with pytest.raises(ConnectionResetError):
            transport.send(packets)
        assert packets == deque([b"two"])


def test_a_file_is_gone_on_with_or_emptied_as_its_format_wants(tmp_path):
    path = tmp_path / "trace"
    for append, expected in ((True, b"old<new"), (False, b"<new")):
        path.write_bytes(b"old")
        transport = parse(f"file://{path}", append=append)
        transport.preamble = b"<"
        transport.open()
        transport.send(deque([b"new"]))
        transport.close()
        assert path.read_bytes() == expected


def test_a_full_disk_is_waited_for():
    transport = parse("file:///dev/full")
    transport.open()
    assert transport.send(deque([b"one"])) == 0
    assert transport.is_open
    assert transport.unsent() == 1
    transport.close()


def test_a_file_that_fails_within_a_packet_is_opened_again_and_begins_with_that_packet(tmp_path):
    """A limit of the process makes the kernel take a part of a packet and refuse the rest."""
    path = tmp_path / "trace"
    transport = parse(f"file://{path}", append=False)
    transport.preamble = b"<"
    transport.open()
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    packets = deque([b"a" * 60, b"b" * 60])
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
        assert transport.send(packets) == 60
        with pytest.raises(OSError) as raised:  # noqa: PT011 - its errno says which
            transport.send(packets)
        assert raised.value.errno == errno.EFBIG
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert not transport.is_open
    assert transport.unsent() == 1
    transport.open()
    assert transport.send(packets) == 60
    transport.close()
    assert path.read_bytes() == b"<" + b"a" * 60 + b"b" * 39 + b"<" + b"b" * 60
