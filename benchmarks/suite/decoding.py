"""Measure decoding alone: the cost of a record with a kernel, in Python, and in the shortest loop; and the cost in
other spellings.
"""

from __future__ import annotations

import platform
from functools import partial
from pathlib import Path

from benchmarks.comparisons import spread
from benchmarks.contest import Contender, beside, contest, ours, reference, scratch
from benchmarks.inputs.trace import Trace, trace
from benchmarks.options import Options
from benchmarks.peers import loops
from benchmarks.peers.peer import Peer
from benchmarks.processes import apart
from benchmarks.results import Case, Run
from benchmarks.spellings import OF_FORMAT, SPELLINGS, WIDER, Spell
from benchmarks.suite.benchmark import Benchmark, Judgement
from tailrace import kernels

FORMATS = ("heph",)
"""Formats that have a kernel."""
SPELLED = {format_: SPELLINGS | others for format_, others in OF_FORMAT.items()}
"""For each format, the legal spellings of its lines. The first is the tracer's own."""
MIXED_MOST = 200_000
"""Maximum number of events in each spelling. There are many spellings."""
RATIO_MAX = 3.0
"""Maximum CPU time of a record in another spelling, as a multiple of that in the tracer's own spelling."""
COMPILER = "a C compiler, and then `make dev`"


def cases(options: Options) -> list[Case]:
    """Measure each format that has a kernel."""
    return [
        contest(format_, _sides(format_, trace(format_, options.events)), options.runs)
        for format_ in FORMATS
    ]


def _sides(format_: str, made: Trace) -> list[Contender]:
    kernel = ours("bytes to blocks of columns", partial(_run, "benchmarks.processes.decoding:blocks", made), name="kernel")  # fmt: skip
    if not kernels.active():
        kernel.side.absent = COMPILER
    python = Peer("decoder in Python", platform.python_version(), "", "the same bytes to a record an event")  # fmt: skip
    return [
        beside(loops.peer(), partial(_run, f"benchmarks.peers.loops:{format_}", made, named=False)),
        kernel,
        beside(python, partial(_run, "benchmarks.processes.decoding:records", made)),
    ]


def mixes(options: Options) -> list[Case]:
    """Measure the same records in each spelling, beside the tracer's own spelling."""
    found = []
    with scratch() as directory:
        for format_, spellings in SPELLED.items():
            made = trace(format_, min(options.events, MIXED_MOST))
            text = made.paths[0].read_text()
            lines = [line for line in text.splitlines() if line.startswith("{")]
            usual, *others = spellings
            own = _spelled(directory / f"{format_}-own", spellings[usual], lines)
            for name in others[: None if options.varieties else 1]:
                other = _spelled(directory / f"{format_}-other", spellings[name], lines)
                wider = Path(other).stat().st_size / Path(own).stat().st_size
                sides = _spelling_sides(
                    format_, own, other, len(lines), wider if name in WIDER else 1.0
                )
                found.append(contest(f"{format_}: {name}", sides, options.runs))
    return found


def judge(cases: list[Case]) -> Judgement:
    """Return the spelling with the largest ratio.

    The minimum CPU time of each side counts, because a busy machine only adds time.
    """
    found = []
    for case in cases:
        least = [spread(side, "cpu") for side in case.sides]
        for side, other, usual in zip(case.sides[::2], least[::2], least[1::2], strict=True):
            if other and usual:
                found.append((other.least / usual.least, f"{case.label}, {side.name}"))
    ratio, where = max(found)
    text = f"the largest ratio is {ratio:.2f} ({where}); the limit is {RATIO_MAX:g}"
    return Judgement(text, ratio <= RATIO_MAX)


def _spelled(path: Path, spell: Spell, lines: list[str]) -> str:
    path.write_bytes(spell(lines))
    return str(path)


def _spelling_sides(
    format_: str, own: str, other: str, events: int, wider: float
) -> list[Contender]:
    """Return both spellings of a format's events, for both decoders. An event of the other spelling counts as `wider`
    events."""

    def side(work: str, path: str) -> Run:
        done = apart.run(f"benchmarks.processes.decoding:{work}", format_, [path])
        if done.value < events:
            raise RuntimeError(f"{work} read {done.value} of {events} events")
        count = events * wider if path == other else events
        return {"rate": count / done.seconds, "cpu": done.usage.cpu / count}

    found = [
        ours("this spelling to blocks of columns", partial(side, "blocks", other), name="kernel"),
        reference("kernel, usual", "the tracer's spelling", partial(side, "blocks", own)),
    ]
    if not kernels.active():
        for contender in found:
            contender.side.absent = COMPILER
    return [
        *found,
        ours("this spelling to a record an event", partial(side, "records", other), name="Python"),
        reference("Python, usual", "the tracer's spelling", partial(side, "records", own)),
    ]


def _run(work: str, made: Trace, *, named: bool = True) -> Run:
    paths = [str(path) for path in made.paths]
    done = apart.run(work, *([made.format] if named else []), paths)
    if done.value < made.events:
        raise RuntimeError(f"{work} read {done.value} of {made.events} events")
    return {"rate": made.events / done.seconds, "cpu": done.usage.cpu / made.events}


BENCHMARKS = {
    "decoding": Benchmark(
        "Cost of decoding",
        "Decoding alone, of bytes that are in memory, in chunks of 256 KiB on one thread. Nothing is counted, matched or stored.",
        cases,
    ),
    "mix": Benchmark(
        "Cost of other spellings",
        "The same records of DFTracer and JETS as filters and other writers spell them: white space, order, commas, arrays, escapes, further members, processes in turn. Goal: at most 3 times the tracer's own spelling. Records with 50 and 200 further members are compared by the byte.",
        mixes,
        judge=judge,
    ),
}
