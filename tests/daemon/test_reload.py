"""Reloads of a daemon that receives: a bad one changes nothing and says so, a good one changes all."""

from __future__ import annotations

import socket
from contextlib import asynccontextmanager

import trio

from tailrace.daemon.service import Reloading
from tailrace.service_manager.notify import Notifier
from tests import toml
from tests.daemon.virtual import CONFIG, configuration, opened, running
from tests.ingest.log import heph_event


class Reloads:
    """Asks for reloads of what `text` is by then."""

    def __init__(self, life, tmp_path):
        self.text = CONFIG
        self.replaced = 0
        self._life = life
        self._tmp_path = tmp_path
        self._reloading = Reloading(life.daemon, self._load, self._count, Notifier())

    def _load(self):
        return configuration(self._tmp_path, self.text)

    def _count(self):
        self.replaced += 1

    async def run(self):
        await self._reloading.run(self._life.receiving)

    async def ask(self, text):
        """Ask for a reload, and return what its status is once it is over."""
        self.text = text
        reloads = self._life.daemon.current.status().reloads
        before = sum(reloads.values())
        self._reloading.ask()
        await self._life.until(lambda: sum(reloads.values()) == before + 1)
        return self._life.daemon.current.status()


@asynccontextmanager
async def reloads_of(life, tmp_path):
    async with running(life), trio.open_nursery() as nursery:
        reloads = Reloads(life, tmp_path)
        nursery.start_soon(reloads.run)
        yield reloads
        nursery.cancel_scope.cancel()


async def test_a_bad_configuration_is_said_and_the_one_before_goes_on(
    autojump_clock, calls, tmp_path
):
    loaded = configuration(tmp_path)
    with opened(loaded) as life:
        async with reloads_of(life, tmp_path) as reloads:
            addresses = {n: s.address for n, s in life.daemon.sources.items()}
            bad = CONFIG.replace('format = "heph"', 'format = "hepf"', 1)
            status = await reloads.ask(bad)
            assert (status.reload_success, status.reloads) == (0, {"done": 0, "failed": 1})
            assert "hepf" in status.last_reload.problems[0]
            assert "the configuration before it goes on: " in life.conditions["reload"]
            assert (life.daemon.config, status.sha256) == (loaded.config, loaded.sha256)
            assert {n: s.address for n, s in life.daemon.sources.items()} == addresses
            assert reloads.replaced == 0
            await life.send(heph_event(1, 0))
            await life.committed()
            assert life.daemon.ingest.account("udp").seen == 1

            good = CONFIG + toml.section("store", commit_interval="7 s")
            status = await reloads.ask(good)
            assert (status.reload_success, status.reloads) == (1, {"done": 1, "failed": 1})
            assert "reload" not in life.conditions
            assert life.daemon.config.store.commit_interval == 7
            assert {n: s.address for n, s in life.daemon.sources.items()} == addresses
            assert reloads.replaced == 1


async def test_what_needs_a_restart_prevents_the_whole_reload(autojump_clock, calls, tmp_path):
    with opened(configuration(tmp_path)) as life:
        async with reloads_of(life, tmp_path) as reloads:
            both = (
                CONFIG
                + toml.section("store", commit_interval="7 s")
                + toml.section("spool", max_size="4 GiB")
            )
            status = await reloads.ask(both)
            assert status.last_reload.problems == [
                "spool.max_size: cannot change while the daemon runs; it needs a restart"
            ]
            assert life.daemon.config.store.commit_interval != 7


async def test_an_address_that_is_taken_leaves_all_sources_as_they_are(
    autojump_clock, calls, tmp_path
):
    with opened(configuration(tmp_path)) as life:
        async with reloads_of(life, tmp_path) as reloads:
            with socket.create_server(("127.0.0.1", 0)) as taken:
                where = "{}:{}".format(*taken.getsockname())
                more = toml.source("more", "tcp", "jets", listen=where)
                # The source `udp` is not in it, and must not be gone after the failure.
                text = CONFIG.partition("[sources.udp]")[0] + more
                status = await reloads.ask(text)
            assert status.reload_success == 0
            assert where in life.conditions["reload"]
            assert set(life.daemon.sources) == {"udp", "tcp"}
            await life.send(heph_event(1, 0))
            await life.committed()
            assert life.daemon.ingest.account("udp").seen == 1

            status = await reloads.ask(text.replace(where, "127.0.0.1:0"))
            assert status.reload_success == 1
            assert set(life.daemon.sources) == {"more"}
            await life.until(lambda: life.daemon.ingest.tally("udp").closed == 1)


async def test_a_source_that_had_to_make_way_for_a_reload_that_failed_is_back(
    autojump_clock, calls, tmp_path
):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    before, _, last = CONFIG.rpartition("127.0.0.1:0")
    with opened(configuration(tmp_path, f"{before}127.0.0.1:{port}{last}")) as life:
        async with reloads_of(life, tmp_path) as reloads:
            with socket.create_server(("127.0.0.1", 0)) as taken:
                where = "{}:{}".format(*taken.getsockname())
                # The whole host in place of one address: `tcp` cannot listen meanwhile.
                text = CONFIG.partition("[sources.udp]")[0]
                text += toml.source("all", "tcp", listen=f"0.0.0.0:{port}", open_to_all=True)
                text += toml.source("more", "tcp", "jets", listen=where)
                status = await reloads.ask(text)
            assert where in status.last_reload.problems[0]
            assert set(life.daemon.sources) == {"udp", "tcp"}
            async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
                await stream.send_all(heph_event(1, 0))
            await life.until(lambda: life.daemon.ingest.account("tcp").seen == 1)
