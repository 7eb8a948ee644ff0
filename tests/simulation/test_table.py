"""The model of the table does what the real table does: the same calls give the same rows and position."""

from __future__ import annotations

from random import Random

import pytest
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from tailrace.clock import SystemClock
from tailrace.config.schema import StoreConfig
from tailrace.errors import StoreError
from tailrace.store import layout
from tailrace.store.table import Table
from tests.query.tables import rows_in
from tests.simulation import table as model
from tests.store.writer import numbered

CALLS = 25


class Store:
    """A real table in a directory, which can be down as the model can."""

    def __init__(self, path, monkeypatch):
        self.path = path
        self.down = self.landed = False
        write, opened = DeltaTable.create_write_transaction, layout.DeltaTable
        store = self

        def written(*args, **more):
            if not store.down or store.landed:
                write(*args, **more)
            if store.down:
                raise DeltaError("no answer")

        monkeypatch.setattr(DeltaTable, "create_write_transaction", written)

        class Reached(opened):
            def __new__(cls, *args, **more):
                if store.down:
                    raise DeltaError("no answer")
                return opened(*args, **more)

        monkeypatch.setattr(layout, "DeltaTable", Reached)

    def open(self, collector="one"):
        return Table.open(
            str(self.path), options={}, collector=collector, config=StoreConfig(),
            clock=SystemClock(), refills=lambda _: True,
        )  # fmt: skip

    def seqs(self, stream):
        return sorted(row["seq"] for row in rows_in(self.path, ["seq"], stream=stream))


def commit(table, batch, position):
    table.land(table.prepare(batch), position)


def outcome(call):
    try:
        call()
    except (StoreError, ValueError) as error:
        return type(error)
    return None


@pytest.mark.parametrize("seed", range(4))
def test_the_same_calls_give_the_same_rows_position_and_errors(seed, tmp_path, monkeypatch):
    random = Random(seed)
    real, simulated = Store(tmp_path / "store", monkeypatch), model.Table()
    ours, other = real.open(), real.open("other")
    writer = simulated.opened()
    position, first, others, refused = 0, 0, 0, 0
    batch = numbered("a", 0, 3), 1
    for _ in range(CALLS):
        match random.choice(["commit"] * 4 + ["down", "mend", "other", "restart", "again"]):
            case "down":
                real.down = True
                real.landed = random.random() < 0.5
                simulated.break_(landed=real.landed)
            case "mend":
                real.down = False
                simulated.mend()
            case "other" if not real.down:
                others += 1
                commit(other, numbered("b", others, 1), others)
            case "restart" if not real.down:  # a life that begins goes on from the table's position
                ours, writer = real.open(), simulated.opened()
                assert ours.position() == simulated.position()
                if (ours.position() or 0) == batch[1]:
                    first, batch = first + 3, (numbered("a", first + 3, 3), batch[1] + 1)
            case "restart":
                assert outcome(real.open) is outcome(simulated.opened) is StoreError
            case "again" if position:  # a batch that is in the table
                old = numbered("a", 0, 3), position
                errors = {outcome(lambda: commit(t, *old)) for t in (ours, writer)}  # noqa: B023
                assert errors == {ValueError}
            case "commit":
                errors = {outcome(lambda: commit(t, *batch)) for t in (ours, writer)}  # noqa: B023
                assert len(errors) == 1, errors
                refused += errors == {StoreError}
                if errors == {None}:
                    position = batch[1]
                    first, batch = first + 3, (numbered("a", first + 3, 3), position + 1)
    real.down = False
    simulated.mend()
    assert outcome(lambda: commit(ours, *batch)) is outcome(lambda: commit(writer, *batch)) is None
    assert ours.position() == simulated.position() == batch[1]
    expected = list(range(first + 3))
    assert real.seqs("a") == sorted(row["seq"] for row in simulated.rows) == expected
    assert len(real.seqs("b")) == others
    assert refused or seed, "no commit was ever refused"
