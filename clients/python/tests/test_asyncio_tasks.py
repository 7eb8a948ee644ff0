from __future__ import annotations

import asyncio
import contextvars
import logging
import sys
import threading

import pytest

import tailrace_client
from clients.python.tests.reader import attributes, events
from tailrace_client.asyncio_tasks import TaskSpans, install


def of_the_test(found):
    """Return the events without those of the tasks with which `asyncio.run` itself ends."""
    return [event for event in found if not event.description.startswith("BaseEventLoop.")]


def nested(found):
    """Return whether, in each stream and substream, of any two spans one contains the other or both are apart."""
    lines = {}
    for event in found:
        lines.setdefault((event.stream, event.substream), []).append((event.start, -event.end))
    for spans in lines.values():
        open_until = []
        for start, end in sorted(spans):
            while open_until and open_until[-1] <= start:
                open_until.pop()
            if open_until and -end > open_until[-1]:
                return False
            open_until.append(-end)
    return True


def test_a_thousand_tasks_have_each_a_span_and_share_no_line(emitted):
    async def work(number):
        with tailrace_client.span("outer", number=number):
            await asyncio.sleep(0.001 * (number % 7))
            with tailrace_client.span("inner"):
                await asyncio.sleep(0)

    async def main():
        install()
        for _ in range(4):
            await asyncio.gather(*(work(number) for number in range(250)))

    asyncio.run(main())
    found = of_the_test(emitted())
    tasks = [event for event in found if event.description.endswith("work")]
    assert len(tasks) == 1000
    assert len(found) == 3000
    assert nested(found)
    assert len({attributes(task)["task"] for task in tasks}) == 1000
    assert all(attributes(task)["result"] == "ok" for task in tasks)
    # Later tasks get the substreams of tasks that have ended.
    assert {task.substream for task in tasks} == set(range(1, 251))


def test_results_names_and_parents(emitted, caplog):
    async def fail():
        raise KeyError("x")

    async def forever():
        await asyncio.sleep(3600)

    async def child():
        return asyncio.get_running_loop().create_task(asyncio.sleep(0, 5))

    async def main():
        install()
        install()  # the second call has no effect
        failing = asyncio.create_task(fail(), name="doomed")
        waiting = asyncio.create_task(forever())
        await asyncio.sleep(0)
        waiting.cancel()
        assert await (await asyncio.create_task(child())) == 5
        await asyncio.wait([failing, waiting])

    with caplog.at_level(logging.ERROR):
        asyncio.run(main())
    assert "never retrieved" in caplog.text  # the client has only looked at it
    found = {event.description.rpartition(".")[2]: attributes(event) for event in emitted()}
    assert found["fail"]["result"] == "error"
    assert found["fail"]["error"] == "KeyError"
    assert found["fail"]["error_message"] == "'x'"
    assert found["fail"]["task_name"] == "doomed"
    assert found["forever"]["result"] == "cancelled"
    assert found["sleep"]["parent"] == found["child"]["task"]
    assert found["child"]["parent"] == 0
    assert found["child"]["task_name"]


def test_what_a_task_calls_in_a_thread_has_its_substream(emitted):
    async def work():
        await asyncio.to_thread(tailrace_client.event, "in a thread")

    async def main():
        install()
        await asyncio.create_task(asyncio.sleep(0))
        await asyncio.gather(work(), work())

    asyncio.run(main())
    found = of_the_test(emitted())
    in_threads = [event for event in found if event.description == "in a thread"]
    assert {event.substream for event in in_threads} == {1, 2}
    works = [event for event in found if event.description.endswith("work")]
    assert {event.stream for event in in_threads}.isdisjoint({event.stream for event in works})


def test_it_composes_with_the_factory_that_was_there(emitted):
    made = []

    def factory(loop, coroutine, **options):
        made.append(coroutine)
        return asyncio.Task(coroutine, loop=loop, **options)

    async def main():
        loop = asyncio.get_running_loop()
        loop.set_task_factory(factory)
        install(loop)
        return await asyncio.create_task(asyncio.sleep(0, 3))

    assert asyncio.run(main()) == 3
    assert len(made) >= 1
    assert [event.description for event in of_the_test(emitted())] == ["sleep"]


def test_a_factory_that_refuses_is_heard_and_costs_no_line(emitted):
    refuse = [True]

    def factory(loop, coroutine, **options):
        if refuse:
            refuse.pop()
            coroutine.close()
            raise MemoryError
        return asyncio.Task(coroutine, loop=loop, **options)

    async def main():
        asyncio.get_running_loop().set_task_factory(TaskSpans(factory))
        with pytest.raises(MemoryError):
            await asyncio.create_task(asyncio.sleep(0))
        await asyncio.create_task(asyncio.sleep(0))

    asyncio.run(main())
    assert [event.substream for event in of_the_test(emitted())] == [1]


def test_a_factory_may_make_something_else(emitted):
    class Odd:
        def __init__(self, coroutine):
            coroutine.close()

        def set_name(self, name):
            pass

    async def main():
        asyncio.get_running_loop().set_task_factory(TaskSpans(lambda _, c, **__: Odd(c)))
        assert isinstance(asyncio.get_running_loop().create_task(asyncio.sleep(0)), Odd)
        asyncio.get_running_loop().set_task_factory(None)

    asyncio.run(main())
    assert emitted() == []


@pytest.mark.skipif(sys.version_info < (3, 11), reason="create_task has no context before 3.11")
def test_a_task_in_a_context_of_the_programs_choice_stays_on_its_substream(emitted):
    async def work():
        with tailrace_client.span("inside"):
            await asyncio.sleep(0)

    async def main():
        install()
        context = contextvars.copy_context()
        await asyncio.create_task(work(), context=context)
        await asyncio.create_task(work())

    asyncio.run(main())
    assert [event.substream for event in of_the_test(emitted())] == [0, 0, 1, 1]


@pytest.mark.skipif(sys.version_info < (3, 12), reason="tasks begin eagerly from 3.12 on")
def test_tasks_that_begin_eagerly(emitted):
    async def at_once(number):
        tailrace_client.event("inside", number=number)

    async def later():
        await asyncio.sleep(0)
        await asyncio.create_task(at_once(2))

    async def main():
        asyncio.get_running_loop().set_task_factory(asyncio.eager_task_factory)
        install()
        await asyncio.create_task(at_once(1))
        await asyncio.create_task(later())
        context = contextvars.copy_context()
        await asyncio.create_task(at_once(3), context=context)

    asyncio.run(main())
    found = of_the_test(emitted())
    spans = {event.description.rpartition(".")[2]: event for event in found}
    assert len(found) == 7
    assert spans["later"].substream == 1
    assert attributes(spans["later"])["result"] == "ok"
    inside = {attributes(e)["number"]: e.substream for e in found if e.description == "inside"}
    assert inside == {1: 1, 2: 2, 3: 0}
    assert nested(found)


def test_loops_in_several_threads(emitted):
    async def main():
        install()
        await asyncio.gather(*(asyncio.sleep(0.001) for _ in range(50)))

    ended = threading.Barrier(4)

    def run():
        asyncio.run(main())
        ended.wait(20)  # otherwise a thread would continue the stream of a thread that has ended

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = of_the_test(emitted())
    assert len(found) == 200
    assert len({attributes(event)["task"] for event in found}) == 200
    assert nested(found)


def test_while_off_it_only_passes_on():
    tailrace_client.close()

    async def main():
        install()
        return await asyncio.create_task(asyncio.sleep(0, 4), name="plain")

    assert asyncio.run(main()) == 4


def test_connecting_and_closing_while_tasks_live(tmp_path):
    tailrace_client.close()

    async def main():
        install()
        before = asyncio.create_task(asyncio.sleep(0.01))
        tailrace_client.connect(f"file://{tmp_path}/one")
        during = asyncio.create_task(asyncio.sleep(0.01))
        tailrace_client.event("sent")
        await asyncio.sleep(0)
        tailrace_client.close()
        await asyncio.gather(before, during)

    asyncio.run(main())
    assert [event.description for event in events((tmp_path / "one").read_bytes())] == ["sent"]
