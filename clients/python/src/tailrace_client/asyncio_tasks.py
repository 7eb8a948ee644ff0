"""Record asyncio tasks as spans.

    async def main():
        tailrace_client.asyncio_tasks.install()

From then on, each task created in this loop is a span, from its creation until the loop runs its "done" callbacks. The span,
and all spans and events inside the task, are on a substream that no other running task has. The span has the name of the task's
coroutine. Attributes:

    task, parent    the numbers, in this process, of the task and of the task that made it, or 0
    task_name       asyncio's name of the task: "Task-7", unless the program chose one
    result          "ok", "cancelled" or "error"
    error           the name of the type of the exception that ended the task
    error_message   the exception's message, if there is one

A task with a context of the program stays on that context's substream. A task that never ends, because its loop was closed, has
no span."""

# ruff: noqa: ANN401 - tasks, coroutines and factories may be of any type that the loop accepts
from __future__ import annotations

import asyncio
from asyncio import AbstractEventLoop
from collections.abc import Callable
from contextlib import suppress
from contextvars import Context
from functools import partial
from typing import Any

from tailrace_client import _process
from tailrace_client._recording import Span, miss
from tailrace_client._span import add_error
from tailrace_client._tasks import SUBSTREAM, TASK, Substreams, next_task


class TaskSpans:
    """A task factory that creates tasks with another factory, and records each task as a span. Use it as
    `loop.set_task_factory(TaskSpans(loop.get_task_factory()))`, one for each loop. Any loop and any factory with
    asyncio's interface is supported. This factory raises no errors of its own. While no emitter is open, it only
    counts the task and lets the other factory create it."""

    def __init__(self, factory: Callable[..., Any] | None = None) -> None:
        """Create the tasks with `factory`, or with `asyncio.Task` if `factory` is None."""
        self._factory = factory
        self._substreams = Substreams()

    def __call__(self, loop: AbstractEventLoop, coroutine: Any, /, **options: Any) -> Any:
        """Create a task with the loop's `options`, such as `context` and `name`."""
        emitter = _process.current
        if emitter is None:
            miss()
            return self._make(loop, coroutine, options)
        task_number = next_task()
        name = getattr(coroutine, "__qualname__", type(coroutine).__qualname__)
        span = emitter.span(name, task=task_number, parent=TASK.get())
        span.__enter__()
        context = options.get("context")
        if context is not None:
            return self._follow(self._make(loop, coroutine, options), span, 0, context)
        substream = self._substreams.take()
        # The task and its callbacks get copies of the context that is current here.
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
        """Let the span end together with its task. Return the task."""
        end = partial(self._end, span, substream)
        with suppress(Exception):  # A task without asyncio's interface gets no span.
            if task.done():  # This task was started eagerly and has ended already.
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
        # Do not call `exception()`: after it, asyncio would not report the exception any more.
        elif (error := getattr(task, "_exception", None)) is not None:
            attributes: dict[str, object] = {"result": "error"}
            add_error(attributes, type(error), error)
            span.set(**attributes)
        else:
            span.set(result="ok")
        span.__exit__(None, None, None)


def install(loop: AbstractEventLoop | None = None) -> None:
    """Record all tasks as spans that are created from now on in `loop`, by default the running loop. A second call has
    no effect."""
    loop = loop or asyncio.get_running_loop()
    factory = loop.get_task_factory()
    if not isinstance(factory, TaskSpans):
        loop.set_task_factory(TaskSpans(factory))
