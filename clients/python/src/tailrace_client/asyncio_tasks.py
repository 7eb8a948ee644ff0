"""Spans of asyncio tasks.

    async def main():
        tailrace_client.asyncio_tasks.install()

From then on each task made in this loop is a span, from its creation until the loop runs its "done"
callbacks, on a substream that no other living task has; so are the spans and events inside it. The
span's name is that of the task's coroutine. Attributes:

    task, parent    the task's number in this process, and that of the task that made it, or 0
    task_name       as asyncio has it: "Task-7", unless the program chose one
    result          "ok", "cancelled" or "error"
    error           the type's name of the exception that ended it

A task that is given a context by the program stays on that context's substream. A task that never
ends, its loop being closed, has no span.
"""

# ruff: noqa: ANN401 - a task, a coroutine or a factory is whatever the loop takes for one
from __future__ import annotations

import asyncio
from asyncio import AbstractEventLoop
from collections.abc import Callable
from contextlib import suppress
from contextvars import Context
from functools import partial
from typing import Any

from tailrace_client import _process
from tailrace_client._recording import Span
from tailrace_client._substream import SUBSTREAM
from tailrace_client._tasks import TASK, Substreams, next_task


class TaskSpans:
    """A task factory that has another one make the tasks, and makes a span of each.

    `loop.set_task_factory(TaskSpans(loop.get_task_factory()))`, one for each loop: any loop and any
    factory with asyncio's interface will do. It raises nothing of its own; while nothing is
    connected, it only passes on.
    """

    def __init__(self, factory: Callable[..., Any] | None = None) -> None:
        """`factory` makes the tasks; None: `asyncio.Task`."""
        self._factory = factory
        self._substreams = Substreams()

    def __call__(self, loop: AbstractEventLoop, coroutine: Any, /, **options: Any) -> Any:
        """Make a task; `options` are what the loop says besides: `context`, `name`…"""
        emitter = _process.current
        if emitter is None:
            return self._make(loop, coroutine, options)
        task_number = next_task()
        name = getattr(coroutine, "__qualname__", type(coroutine).__qualname__)
        span = emitter.span(name, task=task_number, parent=TASK.get())
        span.__enter__()
        context = options.get("context")
        if context is not None:
            return self._follow(self._make(loop, coroutine, options), span, 0, context)
        substream = self._substreams.take()
        # The task's context, and that of its callbacks, are copied from the one that this is in.
        outer_substream, outer_task = SUBSTREAM.set(substream), TASK.set(task_number)
        try:
            return self._follow(self._make(loop, coroutine, options), span, substream, None)
        except BaseException:
            self._substreams.give_back(substream)
            raise
        finally:
            SUBSTREAM.reset(outer_substream)
            TASK.reset(outer_task)

    def _make(self, loop: AbstractEventLoop, coroutine: Any, options: dict[str, Any]) -> Any:
        if self._factory is None:
            return asyncio.Task(coroutine, loop=loop, **options)
        return self._factory(loop, coroutine, **options)

    def _follow(self, task: Any, span: Span, substream: int, context: Context | None) -> Any:
        """See that the span ends with its task; return the task."""
        end = partial(self._end, span, substream)
        with suppress(Exception):  # a task of another kind than asyncio's: then it has no span
            if task.done():  # it was started eagerly, and has ended in here
                end(task)
            else:
                task.add_done_callback(end, context=context)
        return task

    def _end(self, span: Span, substream: int, task: Any) -> None:
        if substream:
            self._substreams.give_back(substream)
        span.set(task_name=task.get_name())
        if task.cancelled():
            span.set(result="cancelled")
        # To ask `exception()` would count as looking at it: asyncio would not report it any more.
        elif (error := getattr(task, "_exception", None)) is not None:
            span.set(result="error", error=type(error).__name__)
        else:
            span.set(result="ok")
        span.__exit__(None, None, None)


def install(loop: AbstractEventLoop | None = None) -> None:
    """Make spans of all tasks made from now on in `loop`, or in the one that is running. To do it
    twice is as to do it once."""
    loop = loop or asyncio.get_running_loop()
    factory = loop.get_task_factory()
    if not isinstance(factory, TaskSpans):
        loop.set_task_factory(TaskSpans(factory))
