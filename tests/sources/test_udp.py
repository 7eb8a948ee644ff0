"""Datagrams: what is handed back to whom, and how much at most."""

from __future__ import annotations

import contextlib
import os
import socket
from contextlib import asynccontextmanager

import pytest
import trio
from hypothesis import given, settings, strategies as st

from tailrace.clock import SystemClock
from tailrace.config.schema import UdpConfig
from tailrace.model.gap import Reason
from tailrace.sources.udp import STRANGERS, UdpSource
from tests.ingest.log import heph_event
from tests.sources.recorder import Recorder, until

EVENT = heph_event(1, 0)


@asynccontextmanager
async def running(listen="127.0.0.1:0", **keys):
    """A source at work, and what it hands on."""
    source = UdpSource("s", UdpConfig(format="heph", listen=listen, **keys), SystemClock())
    intake = Recorder()
    async with trio.open_nursery() as nursery:
        await nursery.start(source.run, intake)
        yield source, intake
        nursery.cancel_scope.cancel()


def client(source):
    """A connected socket: it hears the source and nobody else."""
    host, _, port = source.address.rpartition(":")
    sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM)
    sock.connect((host.strip("[]"), int(port)))
    sock.settimeout(0)
    return sock


async def receive(sock):
    with trio.fail_after(30):
        await trio.lowlevel.wait_readable(sock)
    return sock.recv(65535)


def nothing_came(sock):
    try:
        sock.recv(65535)
    except BlockingIOError:
        return True
    return False


async def test_a_peer_never_gets_more_bytes_than_it_sent():
    async with running() as (source, intake):
        with client(source) as sock:
            sock.send(EVENT)
            await until(lambda: intake.received() == EVENT)
            source.reply(1, b"a" * (len(EVENT) + 1))
            source.reply(1, b"a" * (len(EVENT) - 2))
            source.reply(1, b"b" * 3)
            source.reply(1, b"c" * 2)
            source.reply(1, b"d")
            assert await receive(sock) == b"a" * (len(EVENT) - 2)
            assert await receive(sock) == b"cc"
            assert nothing_came(sock)
            assert source.figures().replies == {"sent": 2, "excess": 3}
            sock.send(EVENT)
            await until(lambda: intake.received() == 2 * EVENT)
            source.reply(1, b"e" * len(EVENT))
            assert await receive(sock) == b"e" * len(EVENT)


@settings(deadline=None, max_examples=30)
@given(st.lists(st.integers(0, 4) | st.integers(-300, -1), max_size=30))
def test_whatever_is_sent_and_answered_the_sum_holds(steps):
    """So many datagrams come, or a reply of so many bytes goes."""

    async def main():
        async with running() as (source, intake):
            with client(source) as sock:
                sock.send(EVENT)
                sent, answered = len(EVENT), 0
                for step in steps:
                    for _ in range(step):
                        sock.send(EVENT)
                        sent += len(EVENT)
                    await until(lambda sent=sent: len(intake.received()) == sent)
                    if step < 0:
                        before = source.figures().replies.get("sent", 0)
                        source.reply(1, b"x" * -step)
                        if source.figures().replies.get("sent", 0) > before:
                            assert await receive(sock) == b"x" * -step
                            answered -= step
                        else:
                            assert answered - step > sent
                    assert answered <= sent
                assert nothing_came(sock)

    trio.run(main)


async def test_after_one_that_was_too_large_it_hears_when_there_is_room_for_it():
    async with running() as (source, intake):
        with client(source) as sock:
            assert not source.can_reply(1)
            sock.send(EVENT)
            await until(lambda: intake.received() == EVENT)
            assert source.can_reply(1)
            assert not source.reply(1, b"x" * 2 * len(EVENT))
            assert not source.can_reply(1)
            sock.send(EVENT)
            await until(lambda: source.can_reply(1))
            assert source.reply(1, b"x" * (2 * len(EVENT) - 1))
            assert source.can_reply(1)
            assert source.reply(1, b"x")
            assert not source.can_reply(1)


async def test_strangers_and_those_forgotten_are_sent_nothing():
    async with running(peers_max=1) as (source, intake):
        with client(source) as noisy, client(source) as first, client(source) as second:
            noisy.send(b"\xff" * 1000)
            await until(lambda: ("udp", STRANGERS) in intake.opened.values())
            first.send(EVENT)
            await until(lambda: intake.received(2) == EVENT)
            second.send(EVENT)
            await until(lambda: intake.received(3) == EVENT)
            for number in (1, 2, 4):
                source.reply(number, b"x")
            source.reply(3, b"y")
            assert await receive(second) == b"y"
            assert nothing_came(noisy)
            assert nothing_came(first)
            assert source.figures().replies == {"gone": 3, "sent": 1}


async def test_a_peer_that_is_gone_harms_nobody():
    async with running() as (source, intake):
        with client(source) as sock:
            sock.send(100 * EVENT)
            await until(lambda: intake.received() == 100 * EVENT)
        for _ in range(10):
            source.reply(1, b"x" * len(EVENT))
            await trio.lowlevel.checkpoint()
        with client(source) as sock:
            sock.send(EVENT)
            await until(lambda: intake.received(2) == EVENT)
            source.reply(2, b"y")
            assert await receive(sock) == b"y"


async def test_what_no_datagram_can_hold_is_refused():
    async with running() as (source, intake):
        with client(source) as sock:
            for _ in range(30):
                sock.send(100 * EVENT)
            await until(lambda: len(intake.received()) == 3000 * len(EVENT))
            source.reply(1, bytes(70_000))
            source.reply(1, b"y")
            assert await receive(sock) == b"y"
    assert source.figures().replies == {"refused": 1, "sent": 1}
    source.reply(1, b"y")
    assert source.figures().replies["gone"] == 1


async def test_peers_of_ipv6_are_answered_too():
    async with running("[::1]:0") as (source, intake):
        with client(source) as sock:
            sock.send(EVENT)
            await until(lambda: intake.received() == EVENT)
            source.reply(1, b"y")
            assert await receive(sock) == b"y"


async def test_what_comes_from_outside_the_networks_is_counted_and_nothing_else():
    async with running(allow=["192.0.2.0/24"]) as (source, intake):
        with client(source) as sock:
            for _ in range(3):
                sock.send(EVENT)
                sock.send(b"\xff" * 1000)
            await until(lambda: source.figures().refused == {"address not allowed": 6})
    assert intake.opened == {}
    assert source.figures().bytes == 0


async def test_what_comes_from_inside_the_networks_is_taken_in():
    async with running(allow=["127.0.0.0/8"]) as (source, intake):
        with client(source) as sock:
            sock.send(EVENT)
            await until(lambda: intake.received() == EVENT)
    assert source.figures().refused == {}


async def test_of_peers_that_are_too_many_at_a_time_the_datagrams_are_shed_and_said():
    """Those who are known go on; the strangers' session says how much was shed."""
    async with running(peers_max=3, new_peers_rate=1) as (source, intake):
        with contextlib.ExitStack() as stack:
            known = stack.enter_context(client(source))
            for count in (1, 2):  # heard twice, it is not forgotten for newcomers
                known.send(EVENT)
                await until(lambda n=count: intake.received() == n * EVENT)
            for _ in range(300):
                stack.enter_context(client(source)).send(EVENT)
            await until(lambda: sum(loss.size for _, loss in intake.losses) > 290 * len(EVENT))
            known.send(EVENT)
            await until(lambda: intake.received() == 3 * EVENT)
    shed = source.figures().refused["too many new peers"]
    assert sum(loss.size for _, loss in intake.losses) == shed * len(EVENT)
    assert {loss.reason for _, loss in intake.losses} == {Reason.SHED}
    peers = [number for number, (_, peer) in intake.opened.items() if peer != STRANGERS]
    assert len(peers) == 301 - shed
    assert {intake.opened[number][1] for number, _ in intake.losses} == {STRANGERS}
    assert sum(len(intake.received(number)) for number in peers) == (303 - shed) * len(EVENT)


async def test_datagrams_without_a_byte_leave_nothing_but_a_figure():
    """From a stranger, and from a peer that has a session."""
    async with running() as (source, intake):
        with client(source) as empty, client(source) as peer:
            for _ in range(20):
                empty.send(b"")
            await until(lambda: source.figures().empty == 20)
            source.look_around(intake)
            assert intake.opened == {}
            peer.send(EVENT)
            await until(lambda: intake.received() == EVENT)
            peer.send(b"")
            await until(lambda: source.figures().empty == 21)
            assert intake.chunks == {1: [EVENT]}


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user")
@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
async def test_datagrams_of_another_user_are_dropped_and_counted(address):
    async with running(listen="localhost:0", same_user=True) as (source, intake):
        there = (address, int(source.address.rpartition(":")[2]))
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        os.seteuid(65534)
        other, connected = (socket.socket(family, socket.SOCK_DGRAM) for _ in range(2))
        os.seteuid(0)
        own, gone = (socket.socket(family, socket.SOCK_DGRAM) for _ in range(2))
        with other, connected, own, gone:
            other.sendto(EVENT, there)
            connected.connect(there)
            connected.send(EVENT)
            await until(lambda: source.figures().refused == {"another user": 2})
            own.sendto(EVENT, there)
            await until(lambda: intake.received() == EVENT)
            own.connect(there)
            own.send(EVENT)
            await until(lambda: intake.received() == 2 * EVENT)
            gone.sendto(EVENT, there)
        await until(lambda: source.figures().refused.get("unknown user") == 1)
        assert len(intake.opened) == 1
