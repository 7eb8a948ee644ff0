"""Spans of trio tasks.

    trio.run(main, instruments=[tailrace_client.trio_tasks.TaskSpans()])

`TaskSpans` makes each task a span, from its creation to its end, on a substream that no other
living task has; so are the spans and events inside it. The span's name is the task's. Attributes:

    task       the task's number in this process
    parent     that of the task whose nursery it was in; 0 where that is not known
    nursery    which of that task's open nurseries: 0 is the outermost

How a task ended, trio does not tell its instruments. `StepSpans` makes a span of each step, from
when trio resumes a task until the task waits: what the loop's thread was doing, one step after the
other, in the substream of who called `trio.run`. Its name is the task's. Attributes:

    task       as above; 0 where there is no `TaskSpans` beside it, or came later
    queued     nanoseconds from when the task could go on to when it was resumed

Both can be added to a running loop and removed from it (`trio.lowlevel.add_instrument`). A task that
was there before, or ends after, has no span. An instrument serves one loop at a time.
"""

from __future__ import annotations

from time import monotonic_ns
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from tailrace_client import _process
from tailrace_client._recording import Span
from tailrace_client._substream import SUBSTREAM
from tailrace_client._tasks import TASK, Substreams, next_task

if TYPE_CHECKING:
    from trio.abc import Instrument
    from trio.lowlevel import Task
else:  # trio asks for the methods, not for its class, so that nothing here needs trio
    Instrument = object


class TaskSpans(Instrument):
    """An instrument that makes each task a span on a substream of its own."""

    def __init__(self) -> None:
        """It serves one loop at a time."""
        self._substreams = Substreams()
        # Weak: the end of a task is not told to an instrument that was removed.
        self._living: WeakKeyDictionary[Task, tuple[Span, int]] = WeakKeyDictionary()

    def task_spawned(self, task: Task) -> None:
        """The task has been made."""
        emitter = _process.current
        if emitter is None:
            return
        number = next_task()
        span = emitter.span(task.name, task=number)
        substream = self._substreams.take()
        task.context.run(SUBSTREAM.set, substream)
        task.context.run(TASK.set, number)
        self._living[task] = (span, substream)
        span.__enter__()

    def task_exited(self, task: Task) -> None:
        """The task has ended."""
        span, substream = self._living.pop(task, (None, 0))
        if span is None:
            return
        nursery = task.parent_nursery  # that where it began may have been another (`Nursery.start`)
        if nursery is not None:
            siblings = nursery.parent_task.child_nurseries
            span.set(parent=nursery.parent_task.context.get(TASK, 0))
            if nursery in siblings:
                span.set(nursery=siblings.index(nursery))
        outer = SUBSTREAM.set(substream)
        span.__exit__(None, None, None)
        SUBSTREAM.reset(outer)
        self._substreams.give_back(substream)


class StepSpans(Instrument):
    """An instrument that makes each step of each task a span."""

    def __init__(self) -> None:
        """It serves one loop at a time."""
        self._step: Span | None = None
        self._ready: WeakKeyDictionary[Task, int] = WeakKeyDictionary()

    def task_scheduled(self, task: Task) -> None:
        """The task can go on."""
        if _process.current is not None:
            self._ready[task] = monotonic_ns()

    def before_task_step(self, task: Task) -> None:
        """The task is resumed."""
        ready = self._ready.pop(task, None)
        emitter = _process.current
        if emitter is None:
            return
        queued = 0 if ready is None else monotonic_ns() - ready
        self._step = emitter.span(task.name, task=task.context.get(TASK, 0), queued=queued)
        self._step.__enter__()

    def after_task_step(self, task: Task) -> None:  # noqa: ARG002 - trio's signature
        """The task waits, or has ended."""
        step, self._step = self._step, None
        if step is not None:
            step.__exit__(None, None, None)
