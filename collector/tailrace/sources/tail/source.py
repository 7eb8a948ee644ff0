"""A source of files: it takes the steps of a watch in the event loop."""

from __future__ import annotations

import trio

from tailrace.clock import Clock
from tailrace.config.schema import TailConfig
from tailrace.sources.source import FileIntake, SourceFigures
from tailrace.sources.tail.complaints import PATHS_SHOWN
from tailrace.sources.tail.system import SYSTEM, System
from tailrace.sources.tail.watch import Chosen, Watch


class TailSource:
    """Follows files. With `once`, it reads what is there to its end, ends all sessions and returns
    from `run`. With `chosen` files, none waits for another one that it may be a copy of."""

    def __init__(
        self,
        name: str,
        config: TailConfig,
        clock: Clock,
        *,
        once: bool = False,
        chosen: Chosen | None = None,
        system: System = SYSTEM,
    ) -> None:
        shown, more = config.paths[:PATHS_SHOWN], len(config.paths[PATHS_SHOWN:])
        self.address = ", ".join(shown) + (f" and {more} more" if more else "")
        self.watch: Watch | None = None
        """The watch that follows the files; None until the source runs."""
        self._name = name
        self._config = config
        self._clock = clock
        self._once = once
        self._chosen = chosen
        self._system = system

    async def run(
        self, intake: FileIntake, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        self.watch = Watch(
            self._name, self._config, self._clock, intake,
            once=self._once, chosen=self._chosen, system=self._system,
        )  # fmt: skip
        steps = self.watch.steps()
        task_status.started()
        try:
            for wait in steps:
                if wait == "room":
                    await intake.room()
                elif wait == "others":
                    await trio.lowlevel.checkpoint()
                else:
                    await trio.sleep(wait)
        finally:
            steps.close()

    def reconfigure(self, config: TailConfig) -> None:
        self._config = config
        if self.watch is not None:
            self.watch.reconfigure(config)

    def cut(self, number: int, reason: str) -> None:
        """Leave a file alone until it is another incarnation."""
        if self.watch is not None:
            self.watch.cut(number, reason)

    def hears(self, number: int) -> bool:  # noqa: ARG002 - nobody is at the other end of a file
        return False

    def reply(self, number: int, data: bytes) -> bool:  # noqa: ARG002 - nor here
        return False

    def figures(self) -> SourceFigures:
        return SourceFigures() if self.watch is None else self.watch.figures
