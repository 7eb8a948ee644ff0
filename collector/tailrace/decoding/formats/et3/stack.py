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
    # by thread, exits without an entry: the number of the innermost frame when they came, and how many they are. Under
    # "" those of threads that were forgotten
    doubted: dict[str, list[tuple[int, int]]] = {}
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
                self.forget_doubts(oldest)
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

    def lacks(self, thread: str, method: str) -> bool:
        """Return whether the entry of an exit without a frame is not in the input. It may be if the exit of an outer
        frame has removed the frame, or if the frame may have been evicted."""
        passed = self.passed.get(thread, {})
        if method not in passed:
            return self.whole
        passed[method] -= 1
        if not passed[method]:
            del passed[method]
        return False

    @property
    def doubts(self) -> int:
        """Return the number of exits without an entry about which nothing is proven."""
        return sum(count for exits in self.doubted.values() for _, count in exits)

    def doubt(self, thread: str, frames: list[OpenFrame]) -> None:
        """Remember an exit whose entry is not in the input, in a thread with open frames."""
        exits = self.doubted.setdefault(thread, [])
        number = frames[-1][1]
        before = exits.pop()[1] if exits and exits[-1][0] == number else 0
        exits.append((number, before + 1))

    def proven(self, thread: str, number: int) -> int:
        """Return how many exits without an entry came while the frame `number`, which an exit now ends, was open. Their
        entries are missing behind the entry of this frame."""
        exits = self.doubted.get(thread, [])
        count = 0
        while exits and exits[-1][0] >= number:
            count += exits.pop()[1]
        if not exits:
            self.doubted.pop(thread, None)
        return count

    def forget_doubts(self, thread: str) -> None:
        """Remember only how many exits of a thread lack an entry, because memory is short."""
        exits = self.doubted.pop("", []) + self.doubted.pop(thread, [])
        if exits:
            self.doubted[""] = [(0, sum(count for _, count in exits))]

    def shorten(self, frames: list[OpenFrame]) -> None:
        """Remove the older half of a thread's open frames, because of `DEPTH_MAX` or because memory is short."""
        del frames[: (len(frames) + 1) // 2]
        self.whole = False

    def clear(self) -> None:
        self.frames.clear()
        self.passed.clear()
        self.doubted.clear()
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
        self.doubted = {_again(thread): exits for thread, exits in self.doubted.items()}
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
        entries += sum(len(exits) for thread, exits in self._stacks.doubted.items() if thread)
        return FRAME_BYTES * entries + THREAD_BYTES * len(frames)

    def give_way(self, size: int) -> None:
        stacks = self._stacks
        while size > 0 and stacks.frames:
            thread = max(stacks.frames, key=self._entries)
            before = self._entries(thread)
            stacks.passed.pop(thread, None)
            stacks.forget_doubts(thread)
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
