"""Record trio tasks as spans.

    trio.run(main, instruments=[tailrace_client.trio_tasks.TaskSpans()])

`TaskSpans` records each task as a span, from its creation to its end. The span, and all spans and events inside the task, are
on a substream that no other running task has. The span has the task's name. Attributes:

    task       the task's number in this process
    parent     the number of the task whose nursery it was in; 0 if that is not known
    nursery    the index among the parent's open nurseries: 0 is the outermost

Trio does not report to its instruments how a task ended.

`StepSpans` records each step of a task as a span, from the task's resumption until the task waits. The steps show the work of
the loop's thread, on the substream of the caller of `trio.run`. The span has the task's name. Attributes:

    task       as above; 0 if there was no `TaskSpans` when the task began
    queued     nanoseconds from when the task could run to when it was resumed

Both instruments can be added to a running loop and removed from the loop (`trio.lowlevel.add_instrument`). A task that began
before the addition, or ends after the removal, has no span. An instrument serves only one loop at a time."""

from __future__ import annotations

from time import monotonic_ns
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from tailrace_client import _process
from tailrace_client._recording import Span, miss
from tailrace_client._tasks import SUBSTREAM, TASK, Substreams, next_task

if TYPE_CHECKING:
    from trio.abc import Instrument
    from trio.lowlevel import Task
else:  # trio checks only for the methods, not for the class. So this module need not import trio.
    Instrument = object


class TaskSpans(Instrument):
    """An instrument that records each task as a span on a substream of its own."""

    def __init__(self) -> None:
        """Begin without tasks. The instrument may serve only one loop at a time."""
        self._substreams = Substreams()
        # The keys are weak references: a removed instrument is not called when a task ends.
        self._living: WeakKeyDictionary[Task, tuple[Span, int]] = WeakKeyDictionary()

    def task_spawned(self, task: Task) -> None:
        """Begin the span of a new task."""
        emitter = _process.current
        if emitter is None:
            miss()
            return
        number = next_task()
        span = emitter.span(task.name, task=number)
        substream = self._substreams.take()
        task.context.run(SUBSTREAM.set, substream)
        task.context.run(TASK.set, number)
        self._living[task] = (span, substream)
        span.__enter__()

    def task_exited(self, task: Task) -> None:
        """End the task's span."""
        span, substream = self._living.pop(task, (None, 0))
        if span is None:
            return
        # The task may have begun in another nursery (`Nursery.start`).
        nursery = task.parent_nursery
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
    """An instrument that records each step of each task as a span."""

    def __init__(self) -> None:
        """Begin without tasks. The instrument may serve only one loop at a time."""
        self._step: Span | None = None
        self._ready: WeakKeyDictionary[Task, int] = WeakKeyDictionary()

    def task_scheduled(self, task: Task) -> None:
        """Record the time at which the task became ready to run."""
        if _process.current is not None:
            self._ready[task] = monotonic_ns()

    def before_task_step(self, task: Task) -> None:
        """Begin the span of a step."""
        ready = self._ready.pop(task, None)
        emitter = _process.current
        if emitter is None:
            miss()
            return
        queued = 0 if ready is None else monotonic_ns() - ready
        self._step = emitter.span(task.name, task=task.context.get(TASK, 0), queued=queued)
        self._step.__enter__()

    def after_task_step(self, task: Task) -> None:  # noqa: ARG002 - trio's signature
        """End the span of the step."""
        step, self._step = self._step, None
        if step is not None:
            step.__exit__(None, None, None)
