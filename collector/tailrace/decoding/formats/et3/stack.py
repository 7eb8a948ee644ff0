"""Store the open frames of each thread of an ET3 trace, and the numbers of the frames."""

from __future__ import annotations

import msgspec

from tailrace.model.holding import Evicted

DEPTH_MAX = 4096
"""Maximum number of stored open frames of a thread. Java's default stack has room for a few times as many."""

THREADS_MAX = 512
"""Maximum number of threads whose open frames are stored."""

PASSED_MAX = 1024
"""Maximum number of methods in `Stacks.passed` of one thread. Beyond it, all counts of the thread are dropped."""

OpenFrame = tuple[str, int, bool]
"""An open frame: its method, its number, and whether its begin record lacks the name of the method."""


FRAME_BYTES, THREAD_BYTES = 224, 256
"""Memory (bytes) of an open frame or a method in `Stacks.passed`, and memory of a thread."""


class Stacks(msgspec.Struct):
    """The open frames of each thread, the innermost frame last, numbered 1, 2, 3 … in the order of their begins.

    An exit removes the innermost frame of its method, and all frames above it: an exception, which writes no line, has
    ended them, or lines are missing."""

    frames: dict[str, list[OpenFrame]] = {}
    # number of frames that the exit of an outer frame has removed, by thread and method
    passed: dict[str, dict[str, int]] = {}
    number: int = 0
    # false once frames were dropped by a limit or an eviction: an exit then does not prove that its entry is missing
    whole: bool = True
    # highest number of a frame whose line was read as decimal in a hexadecimal trace
    decimal: int = 0

    def of(self, thread: str) -> list[OpenFrame]:
        """Return the list of a thread's open frames, which is empty for a new thread."""
        frames = self.frames.get(thread)
        if frames is None:
            if len(self.frames) >= THREADS_MAX:
                oldest = next(iter(self.frames))
                del self.frames[oldest]
                self.passed.pop(oldest, None)
                self.whole = False
            frames = self.frames[thread] = []
        return frames

    def leave(self, thread: str, frames: list[OpenFrame], method: str) -> OpenFrame | None:
        """Remove the innermost frame of a method, and the frames above it. Return this frame, or None without one."""
        for at in range(len(frames) - 1, -1, -1):
            if frames[at][0] == method:
                frame = frames[at]
                self._pass_over(thread, frames[at + 1 :])
                del frames[at:]
                return frame
        return None

    def proves(self, thread: str, method: str) -> bool:
        """Return whether an exit without a frame proves that its entry is missing.

        The exit proves nothing if the exit of an outer frame removed the frame, or an eviction may have removed it."""
        passed = self.passed.get(thread, {})
        if method not in passed:
            return self.whole
        passed[method] -= 1
        if not passed[method]:
            del passed[method]
        return False

    def shorten(self, frames: list[OpenFrame]) -> None:
        """Remove the older half of a thread's open frames, because of `DEPTH_MAX` or because memory is short."""
        del frames[: (len(frames) + 1) // 2]
        self.whole = False

    def clear(self) -> None:
        self.frames.clear()
        self.passed.clear()
        self.number, self.whole, self.decimal = 0, True, 0

    def in_hexadecimal(self) -> None:
        """Correct threads and methods that were read as decimal numbers, because the trace has hexadecimal numbers."""
        self.decimal = self.number
        again = {
            _again(thread): [
                (_again(method), number, nameless) for method, number, nameless in frames
            ]
            for thread, frames in self.frames.items()
        }
        self.frames.clear()
        self.frames.update(again)
        if self.passed:
            self.passed.clear()
            self.whole = False

    def _pass_over(self, thread: str, frames: list[OpenFrame]) -> None:
        passed = self.passed.setdefault(thread, {})
        for method, _, _ in frames:
            passed[method] = passed.get(method, 0) + 1
        if len(passed) > PASSED_MAX:
            passed.clear()
            self.whole = False


class EvictableStacks:
    """Evicts open frames when memory is short, first the older half of the deepest stack."""

    what = Evicted.FRAMES

    def __init__(self, stacks: Stacks) -> None:
        self.evicted = 0
        self._stacks = stacks

    @property
    def held(self) -> int:
        frames, passed = self._stacks.frames, self._stacks.passed
        entries = sum(map(len, frames.values())) + sum(map(len, passed.values()))
        return FRAME_BYTES * entries + THREAD_BYTES * len(frames)

    def give_way(self, size: int) -> None:
        stacks = self._stacks
        while size > 0 and stacks.frames:
            thread = max(stacks.frames, key=self._entries)
            before = self._entries(thread)
            stacks.passed.pop(thread, None)
            stacks.shorten(stacks.frames[thread])
            given = before - len(stacks.frames[thread])
            size -= FRAME_BYTES * given
            if not stacks.frames[thread]:
                del stacks.frames[thread]
                size -= THREAD_BYTES
            self.evicted += given

    def _entries(self, thread: str) -> int:
        return len(self._stacks.frames[thread]) + len(self._stacks.passed.get(thread, ()))


def _again(decimal: str) -> str:
    return str(int(decimal, 16)) if decimal.isdigit() and len(decimal) <= 16 else decimal
