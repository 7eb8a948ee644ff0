from __future__ import annotations

import contextvars
import subprocess
import sys
import threading
import weakref
from itertools import pairwise

import pytest
import trio
from trio.testing import MockClock

import tailrace_client
from clients.python.tests.reader import attributes
from clients.python.tests.test_asyncio_tasks import nested
from tailrace_client.trio_tasks import StepSpans, TaskSpans


def named(events, name):
    return [event for event in events if event.description.endswith(name)]


async def work(number):
    with tailrace_client.span("outer", number=number):
        await trio.sleep(0.001 * (number % 7))
        with tailrace_client.span("inner"):
            await trio.lowlevel.checkpoint()


def test_a_thousand_tasks_have_each_a_span_and_share_no_line(emitted):
    async def main():
        for _ in range(4):
            async with trio.open_nursery() as nursery:
                for number in range(250):
                    nursery.start_soon(work, number)

    trio.run(main, instruments=[TaskSpans()])
    found = emitted()
    tasks = named(found, "test_trio_tasks.work")
    assert len(tasks) == 1000
    assert len(named(found, "inner")) == len(named(found, "outer")) == 1000
    assert nested(found)
    assert len({attributes(task)["task"] for task in tasks}) == 1000
    assert len({task.substream for task in tasks}) == 250


def test_parents_and_nurseries(emitted):
    async def leaf():
        pass

    async def started(task_status):
        task_status.started()

    async def branch():
        async with trio.open_nursery() as outer, trio.open_nursery() as inner:
            outer.start_soon(leaf, name="in outer")
            inner.start_soon(leaf, name="in inner")
            await outer.start(started, name="started")

    async def main():
        async with trio.open_nursery() as nursery:
            nursery.start_soon(branch, name="branch")

    trio.run(main, instruments=[TaskSpans()])
    found = {event.description: attributes(event) for event in emitted()}
    branch_task = found["branch"]["task"]
    assert found["in outer"]["parent"] == found["in inner"]["parent"] == branch_task
    assert (found["in outer"]["nursery"], found["in inner"]["nursery"]) == (0, 1)
    assert (found["started"]["parent"], found["started"]["nursery"]) == (branch_task, 0)
    (main_name,) = [name for name in found if name.endswith(".main")]
    assert found["branch"]["parent"] == found[main_name]["task"]


def test_steps_are_one_after_the_other_on_one_line(emitted):
    async def main():
        async with trio.open_nursery() as nursery:
            for number in range(20):
                nursery.start_soon(work, number)

    trio.run(main, instruments=[TaskSpans(), StepSpans()])
    found = emitted()
    steps = [event for event in found if event.substream == 0]
    assert len(named(steps, "test_trio_tasks.work")) >= 3 * 20
    assert all(left.end <= right.start for left, right in pairwise(steps))
    assert all(attributes(step)["queued"] >= 0 for step in steps)
    tasks = {attributes(e)["task"]: e.description for e in found if "nursery" in attributes(e)}
    of_known = [step for step in steps if attributes(step)["task"] in tasks]
    assert len(of_known) >= 3 * 20
    assert all(tasks[attributes(step)["task"]] == step.description for step in of_known)


def test_an_instrument_may_come_late_and_go_early(emitted):
    instrument, steps = TaskSpans(), StepSpans()
    tasks = []

    async def sleeper():
        tasks.append(weakref.ref(trio.lowlevel.current_task()))
        await trio.sleep(0.01)

    async def main():
        async with trio.open_nursery() as nursery:
            nursery.start_soon(sleeper, name="before")
            await trio.lowlevel.checkpoint()
            trio.lowlevel.add_instrument(instrument)
            trio.lowlevel.add_instrument(steps)
            nursery.start_soon(sleeper, name="seen")
            await trio.sleep(0.05)
            nursery.start_soon(sleeper, name="cut short")
            await trio.lowlevel.checkpoint()
            trio.lowlevel.remove_instrument(instrument)
            trio.lowlevel.remove_instrument(steps)
            nursery.start_soon(sleeper, name="after")
        trio.lowlevel.add_instrument(instrument)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(sleeper, name="again")

    trio.run(main, clock=MockClock(autojump_threshold=0))
    found = [event.description for event in emitted() if event.substream]
    assert found == ["seen", "again"]
    assert all(task() is None for task in tasks)
    assert len(instrument._living) == len(steps._ready) == 0


def test_what_a_task_calls_in_a_thread_has_its_substream(emitted):
    async def main():
        await trio.to_thread.run_sync(tailrace_client.event, "in a thread")
        tailrace_client.event("in the task")

    trio.run(main, instruments=[TaskSpans()])
    (in_thread,), (in_task,) = (
        named(found := emitted(), "in a thread"),
        named(found, "in the task"),
    )
    assert in_thread.substream == in_task.substream > 0
    assert in_thread.stream != in_task.stream


def test_trio_goes_on_whatever_happens_to_nurseries_and_contexts(emitted, caplog):
    """Trio logs and removes an instrument that raises an exception. The client's instruments raise none."""

    async def abandon():
        manager = trio.open_nursery()
        await manager.__aenter__()

    async def nothing():
        pass

    async def main():
        context = contextvars.copy_context()
        for _ in range(2):
            trio.lowlevel.spawn_system_task(nothing, context=context)
        with pytest.RaisesGroup(RuntimeError):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(abandon)
        with trio.CancelScope() as scope:
            scope.cancel()
            await trio.lowlevel.checkpoint()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(nothing, name="last")

    trio.run(main, instruments=[TaskSpans(), StepSpans()])
    assert caplog.text == ""
    assert named(emitted(), "last")


def test_while_off_it_only_looks_on(tmp_path):
    tailrace_client.close()

    async def main():
        async with trio.open_nursery() as nursery:
            nursery.start_soon(work, 1)
            tailrace_client.connect(f"file://{tmp_path}/one")
            nursery.start_soon(work, 1)
            await trio.lowlevel.checkpoint()
            tailrace_client.close()

    trio.run(main, instruments=[TaskSpans(), StepSpans()])


def test_loops_in_several_threads(emitted):
    async def main():
        async with trio.open_nursery() as nursery:
            for number in range(20):
                nursery.start_soon(work, number)

    ended = threading.Barrier(3)

    def run():
        trio.run(main, instruments=[TaskSpans(), StepSpans()])
        ended.wait(20)  # otherwise a thread would continue the stream of a thread that has ended

    threads = [threading.Thread(target=run) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = emitted()
    assert len(named(found, "outer")) == 60
    assert nested(found)


def test_the_module_does_not_need_trio():
    program = (
        "import sys; sys.modules['trio'] = None\n"
        "import tailrace_client.trio_tasks as t; t.TaskSpans(); t.StepSpans()"
    )
    subprocess.run(
        [sys.executable, "-c", program], env={"PYTHONPATH": ":".join(sys.path)}, check=True
    )
