"""Choose what the demonstration writes to files, and what it leaves out. Pure, given a seed."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from tailrace.demo import dftracer, et3, ovni
from tailrace.demo.traffic import Traffic, Write

ITERATIONS = 60
BUFFER_BYTES = 16_384
"""libovni has a buffer of 2 MiB. This small buffer makes events visible while the program runs."""

STEPS = 150
"""Steps of each training process."""
LINES_LEFT_OUT = 5
"""Lines left out of each training process's file."""

TURNS = 12_000
"""Turns of the Java program's threads."""
CALLS_LEFT_OUT = 9
"""Entries and exits that are left out."""

_SPARED_HEAD = 100
"""First lines to leave alone, because a loss there could also be a late join."""


def ovni_tail(seed: int, _epoch_ns: int) -> Traffic:
    """Return the whole trace of two nodes. The offsets of their clocks come at the end."""
    random = Random(f"turns/{seed}")  # noqa: S311 - traffic, not secrets
    threads = ovni.ovni_trace(seed, iterations=ITERATIONS)
    chunks = _in_turns(random, [ovni.writes(thread, BUFFER_BYTES) for thread in threads])
    chunks.append(Write("clock-offsets.txt", ovni.offsets(threads)))
    events = sum(ovni.events(thread, BUFFER_BYTES) for thread in threads)
    about = f"{events} events of {len(threads)} threads on 2 nodes, none missing"
    return Traffic(chunks, events, {}, set(), about)


def dftracer_tail(seed: int, epoch_ns: int) -> Traffic:
    """Return the files of three processes, one of them compressed. Each file lacks a few lines."""
    random = Random(f"lines/{seed}")  # noqa: S311 - traffic, not secrets
    files = dftracer.dftracer_trace(seed, epoch_ns // 1000, steps=STEPS)
    numbers = sorted({line.id for line in files[0].lines if line.id is not None})
    # Every file has the same numbers. None is left out twice, so that each loss can be identified.
    chosen = random.sample(numbers[_SPARED_HEAD:-_SPARED_HEAD], LINES_LEFT_OUT * len(files))
    writers = []
    events = 0
    for place, file in enumerate(files):
        left_out = set(chosen[place :: len(files)])
        lines = [line for line in file.lines if line.id not in left_out]
        events += sum(line.id is not None for line in lines) - len(("start", "end"))
        write = dftracer.in_members if place == 1 else dftracer.plain
        writers.append(write(file.name, lines))
    return Traffic(
        _in_turns(random, writers),
        events,
        {"": len(chosen)},
        {("", number) for number in chosen},
        f"3 processes, {events} events in a compressed and two plain files, "
        f"{len(chosen)} lines left out",
    )


def et3_tail(seed: int, _epoch_ns: int) -> Traffic:
    """Return the same kind of program in both forms: complete in the agents' form, and with some entries
    and exits left out in the form whose clock counts them."""
    random = Random(f"lines/{seed}")  # noqa: S311 - traffic, not secrets
    whole = et3.agent_form(seed, TURNS)
    lines = et3.specification_form(seed + 1, TURNS)
    ticks = [line for line in lines[_SPARED_HEAD:] if line.letter in "ME"]
    left_out = set(random.sample(ticks[:-1], CALLS_LEFT_OUT))
    lines = [line for line in lines if line not in left_out]
    chunks = _in_turns(
        random, [et3.writes("agent/trace", whole), et3.writes("specification/trace.et3", lines)]
    )
    for directory, maps in (
        ("agent", et3.agent_maps()),
        ("specification", et3.specification_maps()),
    ):
        chunks += [Write(f"{directory}/{name}", data) for name, data in maps.items()]
    events = sum(line.letter != "E" for line in [*whole, *lines])
    return Traffic(
        chunks,
        events,
        {"": len(left_out)},
        {("", line.clock) for line in left_out},
        f"{len(whole) + len(lines)} lines in two forms, "
        f"{len(left_out)} entries and exits left out of one",
    )


def _in_turns(random: Random, writers: list[Iterator[Write]]) -> list[Write]:
    """Return all writes of the writers, in a random order of writers."""
    chunks = []
    while writers:
        writer = random.choice(writers)
        write = next(writer, None)
        if write is None:
            writers.remove(writer)
        else:
            chunks.append(write)
    return chunks
