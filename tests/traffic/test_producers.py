from __future__ import annotations

import pytest
import trio

from tailrace.demo.binary import epoch, heph_events, numbers
from tailrace.demo.lines import jets_trace
from tests.traffic.producers import Handed, send_datagrams, send_stream


class Listener:
    """Accepts connections on one port; closes one, in order, after it brought so many bytes."""

    def __init__(self, *, close_after):
        self.sessions = []
        self.close_after = close_after

    async def serve(self, task_status):
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        task_status.started(listeners[0].socket.getsockname()[:2])
        await trio.serve_listeners(self.session, listeners)

    async def session(self, stream):
        received = bytearray()
        self.sessions.append(received)
        async with stream:
            async for data in stream:
                received += data
                if len(received) > self.close_after:
                    return


@pytest.fixture
async def listener(nursery):
    made = Listener(close_after=15_000)
    made.address = await nursery.start(made.serve)
    return made


async def until(condition):
    with trio.fail_after(60):
        while not condition():  # noqa: ASYNC110 - bytes that arrive set no event
            await trio.sleep(0.005)


async def test_a_stream_goes_on_after_a_lost_connection_and_every_unit_is_handed_over_once(
    listener,
):
    packets = list(heph_events(1, 1000))
    handed = Handed()
    await send_stream(
        listener.address, [p.data for p in packets], handed, rate=20_000, preamble=epoch(5)
    )
    await until(lambda: len(listener.sessions) == len(handed.connections))
    assert len(handed.connections) > 2
    assert handed.places == list(range(1000))
    for received, places in zip(listener.sessions, handed.connections, strict=True):
        sent = epoch(5) + b"".join(packets[place].data for place in places)
        assert sent.startswith(received[: len(sent)])


async def test_lines_are_sent_like_packets(listener):
    listener.close_after = 10**9
    lines = [line.data for line in jets_trace(1)]
    handed = Handed()
    await send_stream(listener.address, lines[1:], handed, rate=100_000, preamble=lines[0])
    await until(lambda: listener.sessions and listener.sessions[0].endswith(lines[-1]))
    assert bytes(listener.sessions[0]) == b"".join(lines)
    assert handed.places == list(range(len(lines) - 1))


async def test_a_producer_waits_for_a_collector_to_come(nursery):
    with trio.socket.socket() as reserved:
        await reserved.bind(("127.0.0.1", 0))
        address = reserved.getsockname()
        handed = Handed()
        nursery.start_soon(lambda: send_stream(address, [b"x"], handed, rate=100))
        await trio.testing.wait_all_tasks_blocked()
        assert handed.connections == []
        reserved.listen()
        with trio.fail_after(60):
            connection, _ = await reserved.accept()
            assert await connection.recv(10) == b"x"
            connection.close()


async def test_datagrams_are_sent_to_nobody_as_to_somebody():
    with trio.socket.socket(type=trio.socket.SOCK_DGRAM) as gone:
        await gone.bind(("127.0.0.1", 0))
        address = gone.getsockname()
    handed = Handed()
    await send_datagrams(address, [b"x"] * 50, handed, rate=20_000)
    assert handed.places == list(range(50))


async def test_datagrams_come_in_order_and_whole():
    sent = [packet.data for packet in heph_events(1, 100)]
    with trio.socket.socket(type=trio.socket.SOCK_DGRAM) as sock:
        await sock.bind(("127.0.0.1", 0))
        await send_datagrams(sock.getsockname(), sent, Handed(), rate=20_000)
        received = [await sock.recv(65_536) for _ in sent]
    assert [numbers(r) for r in received] == [numbers(s) for s in sent]
