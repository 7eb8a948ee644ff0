"""Test what answers may cost, and that an answer that cannot be made ends nothing else."""

from __future__ import annotations

import msgspec
import pytest
import trio
import trio.testing

from tailrace.figures import AdminFigures
from tailrace.serving.http import Request
from tailrace.serving.pages import HealthAnswer, Pages, Probe
from tailrace.serving.server import Server

SECONDS = 0.5
"""The time that an answer takes."""


class Status(msgspec.Struct):
    fine: bool = True


@pytest.fixture
def made():
    """When answers were made."""
    return []


@pytest.fixture
def server(made, autojump_clock):
    def status():
        made.append(trio.current_time())
        autojump_clock.jump(SECONDS)
        if len(made) == 2:
            raise ValueError
        return Status()

    pages = Pages(
        probe=lambda: Probe(HealthAnswer("ok"), alive=True, ready=True), status=status,
        families=list, accepts=None,
    )  # fmt: skip
    return Server(
        pages.answer,
        AdminFigures(),
        connections_max=40,
        allows=lambda _: True,
        context=lambda: None,
    )


async def test_answers_take_a_quarter_of_the_time_however_many_ask(autojump_clock, server, made):
    began = trio.current_time()
    async with trio.open_nursery() as nursery:
        for _ in range(10):
            nursery.start_soon(server.answer, Request("GET", "/status", {}))
    assert [at - began for at in made] == pytest.approx(
        [n * 4 * SECONDS for n in range(10)], abs=0.1
    )


async def test_an_answer_that_cannot_be_made_is_500_and_logged(autojump_clock, server, caplog):
    answers = [(await server.answer(Request("GET", "/status", {}))).status for _ in range(3)]
    assert answers == [200, 500, 200]
    assert "no answer to a request for /status" in caplog.text


async def test_health_does_not_wait_for_other_answers_and_too_many_of_these_are_refused(
    autojump_clock, server, made
):
    statuses = []

    async def ask():
        statuses.append((await server.answer(Request("GET", "/status", {}))).status)

    async with trio.open_nursery() as nursery:
        for _ in range(50):
            nursery.start_soon(ask)
        await trio.testing.wait_all_tasks_blocked()
        before = len(made)
        assert (await server.answer(Request("GET", "/healthz", {}))).status == 200
        assert len(made) == before
    assert sorted(statuses) == [200] * 19 + [500] + [503] * 30
