"""Remove everything from a failing scenario that the failure does not need (delta debugging).

A smaller scenario counts if it fails with the same kind of violation. Times stay as they are, so that a removed fact
moves no other one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import msgspec

from tests.simulation import facts
from tests.simulation.facts import Fact, Scenario

T = TypeVar("T")

Fails = Callable[[Scenario], bool]


def shrink(scenario: Scenario, fails: Fails) -> Scenario:
    """Return a smaller scenario that fails, too. `fails` plays a scenario and returns whether it fails."""
    replace = msgspec.structs.replace
    before = None
    while before != scenario:
        before = scenario
        for name in ("program", "trace"):
            for number in {getattr(fact, name, None) for fact in scenario.facts} - {None}:
                some = [f for f in scenario.facts if getattr(f, name, None) != number]
                smaller = replace(scenario, facts=some)
                scenario = smaller if fails(smaller) else scenario
        kept = _fewer(
            scenario.facts,
            lambda some: fails(replace(scenario, facts=some)),  # noqa: B023 - called at once
        )
        scenario = replace(scenario, facts=kept)
        fates = _fewer(
            list(scenario.fates.items()),
            lambda some: fails(replace(scenario, fates=dict(some))),  # noqa: B023 - called at once
        )
        scenario = replace(scenario, fates=dict(fates))
        for number, fact in enumerate(scenario.facts):
            for simpler in _simpler(fact):
                made = [*scenario.facts[:number], simpler, *scenario.facts[number + 1 :]]
                if fails(smaller := replace(scenario, facts=made)):
                    scenario = smaller
                    break
    return scenario


def _fewer(items: Sequence[T], fails: Callable[[list[T]], bool]) -> list[T]:
    """Return as few of the items as are needed for the failure."""
    items = list(items)
    size = max(1, len(items))
    while size and items:
        begin = 0
        while begin < len(items):
            some = items[:begin] + items[begin + size :]
            if fails(some):
                items = some
            else:
                begin += size
        size //= 2
    return items


def _simpler(fact: Fact) -> Iterator[Fact]:
    """Yield facts that may replace another one, the simplest first."""
    replace = msgspec.structs.replace
    if isinstance(fact, facts.Emit):
        for count in (1, fact.count // 10, fact.count // 2):
            if 0 < count < fact.count:
                yield replace(fact, count=count)
        if fact.over:
            yield replace(fact, over=0)
