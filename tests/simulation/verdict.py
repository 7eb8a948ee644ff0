"""Play a scenario, and describe what went wrong."""

from __future__ import annotations

import logging
from typing import NamedTuple

from tests.simulation.aftermath import check_aftermath
from tests.simulation.facts import Scenario
from tests.simulation.moves import Moves
from tests.simulation.oracle import check, check_ends, stored_in
from tests.simulation.oracle_moves import looking
from tests.simulation.patience import check_patience
from tests.simulation.play import Play
from tests.simulation.readers import reading
from tests.simulation.session_rows import check_session_rows
from tests.simulation.violation import Violation


class Verdict(NamedTuple):
    kind: str | None
    """Return the kind of the failure, without numbers; None if nothing failed."""
    about: str
    age: int
    """How long the play took in the world (ns)."""
    trace: str


def judge(scenario: Scenario) -> Verdict:
    """Play a scenario. Return the verdict. An exception of the code under test is a kind of failure, too."""
    play = Moves(scenario) if scenario.collectors > 1 else Play(scenario)
    kind, about = None, ""
    logging.disable(logging.CRITICAL)
    try:
        with looking(play) if isinstance(play, Moves) else reading(play):
            play.run()
            for each in play.alone():
                check(each)
                check_session_rows(each)
                check_aftermath(each)
            check_ends(play)
            check_patience(play, stored_in(play))
    except Violation as violation:
        kind, about = violation.kind, str(violation)
    except Exception as error:  # noqa: BLE001 - whatever the code under test raises
        kind, about = f"raised {type(error).__name__}", repr(error)
    finally:
        logging.disable(logging.NOTSET)
    return Verdict(kind, about, play.world.age, play.trace)
