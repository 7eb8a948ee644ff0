"""Make ET3 traces from a seed, in one of the two forms, or of two parts in different forms. Most lines are usual. Some
are missing, out of order or oddly spelled.
"""

from __future__ import annotations

import random

THREADS = (1766822961, 1191747167, 0)
ODD = (
    b"# said\n", b"N 5 6 7 8 9 1 # said\n", b"\n", b" \t\n", b"M  1 2 3\n", b"M 01 2 3\n", b"M 1 2\n", b"Q 1 2 3\n", b"X 1 2\n",
    b"E 4 5 1766822961\n", b"T 1 2 3 4\n", b"R 1 1766822961\n", b"C 1 2 3 4 5\n", b"N 1 2 Lx; 3 0 ab\n", b"W 1 ab 1766822961\n",
    b"\0\0\0", b"U 1 18446744073709551615 3 1766822961\n", b"W 9999999999999999999 2 1\n", b"M 1 -2 3\n", b"what\n", b"\xff\n",
    b"D 1 2 -5\n", b"D 1 2 99999999999999999999\n", b"D 1 1766822961 7\r\n", b"M 1 2 1\n",
)  # fmt: skip


def et3(rng: random.Random) -> bytes:
    stated = rng.random() < 0.5
    joined = _lines(rng, stated=not stated) if rng.random() < 0.25 else []
    return b"".join(_lines(rng, stated=stated) + joined)


def _lines(rng: random.Random, *, stated: bool) -> list[bytes]:
    threads = THREADS[: 1 if stated else rng.randrange(1, 4)]
    stacks: dict[int, list[int]] = {thread: [] for thread in threads}
    # how many ticks the clock of deaths advances per tick of the counted clock
    deaths = rng.choice((1, 1, 17))
    odds, lost = rng.choice((0, 0, 0.05)), rng.choice((0, 0, 0.05))
    found, clock = list[bytes](), rng.choice((0, 0, 5))
    for _ in range(rng.choice((4, 20, 60))):
        thread = rng.choice(threads)
        stack, step = stacks[thread], rng.random()
        if step < 0.35:
            clock += 1
            stack.append(rng.randrange(4))
            fields = ["M", stack[-1], _number(rng)]
        elif step < 0.65 and stack:
            clock += 1
            if rng.random() < 0.05:
                rng.shuffle(stack)
            method = stack.pop()
            thrown = rng.random() < 0.1
            fields = ["X", method, _number(rng), _number(rng)] if thrown else ["E", method]
        elif step < 0.75:
            time = rng.choice((clock, clock, clock, max(0, clock - 3))) * deaths
            fields = ["D", _number(rng), thread, time + (rng.random() < 0.05)]
        else:
            letter, count = rng.choice((("N", 5), ("A", 5), ("U", 3), ("W", 2)))
            fields = [letter, *(_number(rng) for _ in range(count))]
        if fields[0] != "D":
            fields.append(clock if stated else thread)
        if rng.random() >= lost:
            found.append(" ".join(map(str, fields)).encode() + b"\n")
        if rng.random() < odds:
            found.append(rng.choice(ODD))
    return found


def _number(rng: random.Random) -> int:
    return rng.choice((0, 1, rng.randrange(5), rng.randrange(10**9), 10**18 - 1))
