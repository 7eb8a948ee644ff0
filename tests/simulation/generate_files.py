"""Make the files of a scenario: traces that grow in slices, and changes of their names. Few names are used for all of
them.

A trace is either packed or moved to another name, and a stream of ovni keeps its own name. If a file gets another name
and is packed between two checks of the collector, the collector cannot find out which file it was (ARCHITECTURE.md,
"Blind spots"). No program empties a file while gzip writes its copy, because then nothing shows that it is a copy.
"""

from __future__ import annotations

from random import Random

from msgspec.structs import replace

from tests.simulation import facts
from tests.simulation.facts import Files
from tests.simulation.tail import sources_of
from tests.simulation.world import MS, SECOND

TRACES_MAX = 6
CALLS = 12
"""A change to the files happens before one of this number of the collector's next system calls."""
NAMES = {
    "ovni": [
        f"{run}/loom.node.{n}/proc.{1000 + n}/thread.{1000 + n}/stream.obs"
        for run in ("tmp", "trace")
        for n in (1, 2)
    ],
    "dftracer": ["a.pfw", "b.pfw", "sub/c.pfw"],
    "et3": ["a.trace", "b.trace", "sub/c.trace"],
}


def files(random: Random) -> Files:
    """Return the settings for how the collector follows files, and for its file system."""
    return Files(
        tick=random.choice([1, 4 * MS, 4 * MS, 4 * MS, SECOND]),
        reuses=random.random() < 0.4,
        descriptors=random.choice([4096, 4096, 4, 2, 1]),
        places=random.choice([8192, 8192, 8192, 2, 1]),
    )


def sources(random: Random, made: list[facts.Fact], files: Files) -> tuple[list[facts.Fact], Files]:
    """Return reloads that remove sources of files for a while, and the settings for how the collector follows files.

    In half of all scenarios there are none. A source that comes back may have another name.
    """
    formats = sorted({f.format for f in made if isinstance(f, facts.BeginTrace)})
    # If two sources follow a file, one of them may read its copy (ARCHITECTURE.md, "Blind spots").
    files = replace(files, sources=1)
    end = max(fact.at for fact in made)
    found: list[facts.Fact] = []
    for _ in range(random.choice([0, 0, 0, 1, 2, 4])):
        format_ = random.choice(formats)
        name = random.choice(sources_of(format_, files))
        pause = random.choice([0, MS, 50 * MS, SECOND, 8 * SECOND, 40 * SECOND])
        at, both = random.randrange(end + 8 * SECOND), random.random() < 0.3
        for each in sources_of(format_, files) if both else [name]:
            renamed = random.choice(["", "", f"{format_}-a", f"{format_}-b"])
            found.append(
                facts.Reload(
                    at=at, reorder_events=512, reorder_seconds=2.0, without=each, duration=pause,
                    renamed=renamed,
                )
            )  # fmt: skip
            at += random.choice([0, pause // 2, pause])
    return found, files


def traces(random: Random, at: int = 0) -> list[facts.Fact]:
    """Return the facts of programs that write files, from a given time (ns) on, and of changes to these files."""
    life = _Swarm(random)
    made: list[facts.Fact] = []
    for number in range(1, random.randint(1, TRACES_MAX) + 1):
        end = life.trace(made, number, at)
        at = random.randrange(at, end + 1) if random.random() < 0.5 else end
        at += random.choice([0, MS, 200 * MS, 2 * SECOND, 8 * SECOND])
    return _spared(made)


def _spared(made: list[facts.Fact]) -> list[facts.Fact]:
    """Return the same facts, except that a file which would be emptied while it is packed is replaced by a new one."""
    begun = {f.trace: f.path for f in made if isinstance(f, facts.BeginTrace)}
    packing = [
        (begun[fact.trace], fact.at - SECOND, fact.at + fact.over)
        for fact in made
        if isinstance(fact, facts.PackTrace)
    ]
    return [
        replace(fact, anew=True)
        if isinstance(fact, facts.BeginTrace)
        and any(fact.path == path and since <= fact.at <= until for path, since, until in packing)
        else fact
        for fact in made
    ]


class _Swarm:
    """The kinds of changes that may happen in one scenario. Each scenario leaves some kinds out."""

    def __init__(self, random: Random) -> None:
        self._random = random
        some = random.random
        self._formats = random.choice([["ovni"], ["dftracer"], ["et3"], list(NAMES)])
        self._few = some() < 0.6
        self._empties, self._moves, self._packs, self._deletes, self._members = (
            random.choice([0.0, 0.3, 0.7]) for _ in range(5)
        )
        self._garbage, self._skips = (random.choice([0.0, 0.1]) for _ in range(2))
        self._races = random.choice([0.0, 0.2, 0.6])
        self._pauses = random.choice(
            [[0, MS, 50 * MS], [0, 50 * MS, SECOND], [MS, 200 * MS, SECOND, 7 * SECOND]]
        )
        self._counts = random.choice([[0, 1, 3], [1, 20, 200], [30, 400]])

    def trace(self, made: list[facts.Fact], number: int, at: int) -> int:
        """Add the facts of a trace's life. Return the time at which it is over."""
        random, pause = self._random, lambda: random.choice(self._pauses)
        format_ = random.choice(self._formats)
        fate = random.choice(["packed", "moved"])
        names = NAMES[format_][: 1 if self._few else None]
        path = random.choice(names)
        packed = format_ == "dftracer" and random.random() < self._members
        made.append(
            facts.BeginTrace(
                at=at, trace=number, format=format_, path=path + ".gz" * packed, packed=packed,
                anew=random.random() >= self._empties, call=self._call(),
            )
        )  # fmt: skip
        for _ in range(random.randint(0, 10)):
            at += pause()
            made.append(self._write(number, at))
            if fate == "moved" and random.random() < self._moves / 4:
                at += pause()
                made.append(self._move(path, format_, number, at, packed=packed))
        at += pause()
        ending = random.random()
        if ending < 0.6:
            made.append(facts.EndTrace(at=at, trace=number, call=self._call()))
        elif ending < 0.9:
            made.append(facts.KillWriter(at=at, trace=number, call=self._call()))
        if fate == "packed" and random.random() < self._packs:
            at += pause()
            over = random.choice([0, 30 * MS, 3 * SECOND])
            cut = random.choice([0, random.randrange(5000)])
            made.append(facts.PackTrace(at=at, trace=number, over=over, cut=cut))
            at += over
        if fate == "moved" and random.random() < self._moves:
            at += pause()
            made.append(self._move(path, format_, number, at, packed=packed))
        if random.random() < self._deletes:
            at += pause()
            made.append(facts.DeleteTrace(at=at, trace=number, call=self._call()))
            if random.random() < 0.3:
                made.append(self._write(number, at + pause()))
        return at

    def _write(self, number: int, at: int) -> facts.WriteTrace:
        random = self._random
        return facts.WriteTrace(
            at=at, trace=number, count=random.choice(self._counts), call=self._call(),
            held=random.choice([0, 0, 0, 1, 5, 100, 3000]),
            garbage=int(random.random() < self._garbage),
            skipped=int(random.random() < self._skips),
        )  # fmt: skip

    def _move(
        self, path: str, format_: str, number: int, at: int, *, packed: bool
    ) -> facts.MoveTrace:
        """Return a fact that moves a trace to another name.

        A stream of ovni moves to the place of the same stream in another trace.
        """
        names = NAMES[format_]
        if format_ == "ovni":
            names = [name for name in names if name.partition("/")[2] == path.partition("/")[2]]
        path = self._random.choice(names) + ".gz" * packed
        return facts.MoveTrace(at=at, trace=number, path=path, call=self._call())

    def _call(self) -> int:
        return self._random.randint(1, CALLS) if self._random.random() < self._races else 0
