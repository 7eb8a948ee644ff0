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
"""An open frame: the method, the number of the frame, and whether its begin record lacks the name of the method."""


FRAME_BYTES, THREAD_BYTES = 224, 256
"""Memory (bytes) of an open frame or a method in `Stacks.passed`, and memory of a thread."""


class Stacks(msgspec.Struct):
    """The open frames of each thread, the innermost frame last, numbered 1, 2, 3 … in the order of their begins.

    An exit removes the innermost frame of its method, and all frames above it: an exception, which writes no line, has
    ended them, or lines are missing. In a file whose lines were reversed or shuffled, such a frame may be the entry of
    an earlier exit."""

    frames: dict[str, list[OpenFrame]] = {}
    # by thread and method: number of frames that the exit of an outer frame has removed and whose own exit has not
    # come. A negative number counts exits without an entry, which are in `doubted` or whose entry is reported missing.
    # Never 0: such an item is deleted
    passed: dict[str, dict[str, int]] = {}
    # by thread, exits without an entry. For each frame that was innermost when such exits came: the frame's number, and
    # the number of these exits by method
    doubted: dict[str, list[tuple[int, dict[str, int]]]] = {}
    # number of exits without an entry whose thread was removed from `doubted`
    unplaced: int = 0
    # by thread, number of entries that are reported missing but may be frames that are still open.
    # `AgentForm.take_back` takes these reports back
    behind: dict[str, int] = {}
    number: int = 0
    # highest number of a frame that `AgentForm.settle` has examined: such frames can explain no further exit
    settled: int = 0
    # false once frames were dropped by a limit or an eviction: an exit then does not prove that its entry is missing
    whole: bool = True
    # highest number of a frame whose line was read as decimal in a hexadecimal trace
    decimal: int = 0

    def of(self, thread: str) -> list[OpenFrame]:
        frames = self.frames.get(thread)
        if frames is None:
            if len(self.frames) >= THREADS_MAX:
                oldest = next(iter(self.frames))
                self.explain(oldest, self.frames.pop(oldest))
                self.passed.pop(oldest, None)
                self.forget_doubts(oldest)
                self.whole = False
            frames = self.frames[thread] = []
        return frames

    def leave(self, thread: str, frames: list[OpenFrame], method: str) -> OpenFrame | None:
        """Remove the innermost frame of a method, and the frames above it. Return the removed frame of the method, or
        None if the method has no open frame."""
        for at in range(len(frames) - 1, -1, -1):
            if frames[at][0] == method:
                frame = frames[at]
                self._pass_over(thread, frames[at + 1 :])
                del frames[at:]
                return frame
        return None

    def lacks(self, thread: str, method: str) -> bool:
        """Return whether the entry of an exit is certainly not in the input: neither an exit of an outer frame nor an
        eviction has removed the frame of the entry."""
        passed = self.passed.get(thread, {})
        if passed.get(method, 0) <= 0:
            return self.whole
        _add(passed, method, -1)
        return False

    @property
    def doubts(self) -> int:
        """Return the number of exits whose entry is neither in the input nor proven to be missing."""
        placed = (exits for doubts in self.doubted.values() for _, exits in doubts)
        return self.unplaced + sum(sum(exits.values()) for exits in placed)

    def doubt(self, thread: str, frames: list[OpenFrame], method: str) -> None:
        """Remember an exit whose entry is not in the input, in a thread with open frames."""
        doubts = self.doubted.setdefault(thread, [])
        number = frames[-1][1]
        if not doubts or doubts[-1][0] != number:
            doubts.append((number, {}))
        _add(doubts[-1][1], method, 1)
        _add(self.passed.setdefault(thread, {}), method, -1)

    def proven(self, thread: str, number: int, excused: int) -> int:
        """Return how many exits without an entry came while the frame `number`, which an exit now ends, was open. The
        lines of their entries are missing after the entry of this frame. But the first `excused` of these lines may
        have been read as unreadable lines."""
        doubts, count = self.doubted.get(thread, []), 0
        passed = self.passed.setdefault(thread, {})
        while doubts and doubts[-1][0] >= number:
            for method, exits in doubts.pop()[1].items():
                count += exits
                readable = max(0, min(excused, exits))
                _add(passed, method, readable)
                excused -= readable
        if not doubts:
            self.doubted.pop(thread, None)
        return count

    def explain(self, thread: str, frames: list[OpenFrame]) -> None:
        """Match open `frames` with earlier exits of the same methods whose entry was not found: such a frame may be the
        entry. For each match, forget an exit in `doubted` or, if the entry was reported missing, count the frame in
        `behind`."""
        passed = self.passed.get(thread, {})
        for method, number, _ in frames:
            if number > self.settled and passed.get(method, 0) < 0:
                _add(passed, method, 1)
                missing = not self._dispel(thread, method)
                self.behind[thread] = self.behind.get(thread, 0) + missing

    def forget_doubts(self, thread: str) -> None:
        """Remember only how many exits of a thread lack an entry, because memory is short."""
        self.unplaced += sum(sum(exits.values()) for _, exits in self.doubted.pop(thread, []))

    def shorten(self, thread: str, frames: list[OpenFrame]) -> None:
        """Remove the older half of a thread's open frames, because of `DEPTH_MAX` or because memory is short."""
        half = (len(frames) + 1) // 2
        self.explain(thread, frames[:half])
        del frames[:half]
        self.whole = False

    def clear(self) -> None:
        self.frames.clear()
        self.passed.clear()
        self.doubted.clear()
        self.number, self.settled, self.unplaced, self.whole, self.decimal = 0, 0, 0, True, 0

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
        self.doubted = {
            _again(thread): [(number, _again_all(exits)) for number, exits in doubts]
            for thread, doubts in self.doubted.items()
        }
        counts = {_again(thread): _again_all(passed) for thread, passed in self.passed.items()}
        self.passed.clear()
        for thread, passed in counts.items():
            self.passed[thread] = {method: count for method, count in passed.items() if count < 0}
            self.whole = self.whole and len(self.passed[thread]) == len(passed)

    def _pass_over(self, thread: str, frames: list[OpenFrame]) -> None:
        passed = self.passed.setdefault(thread, {})
        for frame in frames:
            if passed.get(frame[0], 0) < 0:
                self.explain(thread, [frame])
            else:
                _add(passed, frame[0], 1)
        if len(passed) > PASSED_MAX:
            passed.clear()
            self.whole = False

    def _dispel(self, thread: str, method: str) -> bool:
        """Forget the last exit of a method in `doubted` (exits without an entry). Return whether there was one."""
        for _, exits in reversed(self.doubted.get(thread, [])):
            if method in exits:
                _add(exits, method, -1)
                return True
        return False


def _add(counts: dict[str, int], method: str, more: int) -> None:
    count = counts.get(method, 0) + more
    if count:
        counts[method] = count
    else:
        counts.pop(method, None)


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
        entries += sum(len(of) for doubts in self._stacks.doubted.values() for _, of in doubts)
        return FRAME_BYTES * entries + THREAD_BYTES * len(frames)

    def give_way(self, size: int) -> None:
        stacks = self._stacks
        while size > 0 and stacks.frames:
            thread = max(stacks.frames, key=self._entries)
            before = self._entries(thread)
            stacks.shorten(thread, stacks.frames[thread])
            stacks.passed.pop(thread, None)
            stacks.forget_doubts(thread)
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


def _again_all(counts: dict[str, int]) -> dict[str, int]:
    return {_again(method): count for method, count in counts.items()}
