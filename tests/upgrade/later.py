"""A version of Tailrace that does not exist: today's, with one step more for the state and for the table.

    python tests/upgrade/later.py ARGUMENTS…

is its `tailrace`. Its steps stand in for those that releases will bring. In a state of before, the member
`tallies` is called `sums` (see `before`), so that a state whose step was left out lacks its sums.
"""

from __future__ import annotations

from typing import Any

import msgspec

from tailrace.daemon import disk as of_daemon
from tailrace.ingest import state as upgrade
from tailrace.ingest.state import VERSION
from tailrace.store import schema
from tailrace.store.schema import SCHEMA_VERSION

STATE = VERSION + 1
SCHEMA = SCHEMA_VERSION + 1

NEWS = "a row may mean something new"


def register(put=setattr):
    """Make this process one of the later version. `put` sets an attribute of a module."""
    put(upgrade, "VERSION", STATE)
    put(upgrade, "STEPS", {**upgrade.STEPS, VERSION: upgrade.Upgrade(STATE, _rename)})
    put(of_daemon, "VERSION", STATE)
    put(schema, "SCHEMA_VERSION", SCHEMA)
    put(schema, "STEPS", (*schema.STEPS, schema.SchemaStep(SCHEMA, NEWS)))
    put(of_daemon, "SCHEMA_VERSION", SCHEMA)


def _rename(state: dict[str, Any]) -> None:
    state["tallies"] = state.pop("sums")


def before(state: dict[str, Any]) -> None:
    """Give a state of today's version the shape that it has before the step."""
    state["sums"] = state.pop("tallies")


def before_encoded(snapshot: bytes) -> bytes:
    """Return an encoded state of today's version in the shape that it has before the step."""
    state = msgspec.msgpack.decode(snapshot, strict=False)
    before(state)
    return msgspec.msgpack.encode(state)


if __name__ == "__main__":
    from tailrace.cli import main

    register()
    main()
