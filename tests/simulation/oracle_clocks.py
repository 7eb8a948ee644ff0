"""Check what must be true of times, however clocks are set.

- The log's time never goes back.
- The first row of a session has the time of the collector's wall clock. It may differ by less than a step, and by steps
  since the collector last checked its clock.
- The time of an event is that of the clock of its program's host.
"""

from __future__ import annotations

from tailrace.clock import STEP_NS
from tailrace.daemon.loops.loops import TICK_SECONDS
from tests.ingest.test_machine import of
from tests.simulation import facts
from tests.simulation.play import Play
from tests.simulation.violation import demand
from tests.simulation.world import BEGIN, SECOND

SLACK = STEP_NS + 10**6
LOOKS = round(2 * TICK_SECONDS * SECOND)
"""Maximum time (ns) between two checks of its clock by the collector, unless it is suspended."""


def check(play: Play) -> None:
    """Raise Violation for the first rule that does not hold."""
    _check_log(play)
    _check_opened(play)
    _check_events(play)


def _check_log(play: Play) -> None:
    before = 0
    for entry in sorted(play.collector.book.entries.values()):
        demand(entry.time_ns >= before, "the log's time goes back", entry[:5])
        before = entry.time_ns


def _check_opened(play: Play) -> None:
    steps = [fact for fact in play.scenario.facts if isinstance(fact, facts.SetClock)]
    suspended = sum(f.duration for f in play.scenario.facts if isinstance(f, facts.Suspend))
    paces = [abs(f.pace) for f in play.scenario.facts if isinstance(f, facts.Drift)]
    slack = SLACK + (LOOKS + suspended) * max(paces, default=0) // 10**6
    for row in of(play.collector.rows, "session"):
        if row["name"] != "open" or row["session"] not in play.collector.book.names:
            continue
        opened = play.collector.book.opened[play.collector.book.names[row["session"]]]
        late = [f.by for f in steps if opened.age - LOOKS - suspended <= f.at <= opened.age]
        error = row["time"] - opened.wall
        wrong = [0, *(-sum(late[begin:]) for begin in range(len(late)))]
        demand(any(abs(error - w) <= slack for w in wrong), "another wall time", (row, error))


def _check_events(play: Play) -> None:
    """Check that an event does not end before its program began, nor later than now, according to its program's clock."""
    for row in play.collector.rows:
        if row["kind"] != "span" or row["format"] != "heph" or row["time"] is None:
            continue
        program = play.programs[int(row["name"].partition("/")[0])]
        age = row["time"] - BEGIN - program.begin.clock
        slack = SECOND + play.world.age * abs(program.begin.pace) // 10**6
        demand(program.began - slack <= age <= play.world.age + slack, "another time", row)
