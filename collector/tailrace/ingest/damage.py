"""Say which sessions may lack entries of the log that the disk lost.

While a start replays entries, the table has the rows already, and the rows that are made are dropped. The
rows of damage are therefore written with the first entry behind the table's position, since a batch with rows
has a position of its own. Until then, counters may call stored events missing. A session that a client announced may lack something over each of its
connections, also once the connection that was open at the damage has ended.

Where no session is left to say it, the next one that opens does: the disk may have lost how a session began, whose
rows are in the table and whose later entries nobody takes. The next session may open after another start, so the
ingest's state holds what waits.
"""

from __future__ import annotations

from collections.abc import Mapping

from tailrace.ingest.heartbeats import HeartbeatSession
from tailrace.ingest.own_rows import OwnRows
from tailrace.ingest.session import Session
from tailrace.ingest.shared import Shared
from tailrace.ingest.state import DamageState


class Damage:
    """The bytes of the log that sessions may lack, and that no row names yet. `state` has those that the next entries
    name; the rest is what this start found while it replayed."""

    def __init__(
        self,
        state: DamageState,
        sessions: Mapping[int, Session],
        shared: Shared,
        heartbeats: HeartbeatSession,
        lacking: Mapping[int, int],
    ) -> None:
        """Look at the sessions that there are. `lacking` has, by open session, bytes that the spool no longer has."""
        self._state = state
        self._sessions = sessions
        self._shared = shared
        self._heartbeats = heartbeats
        self._replayed = DamageState({str(number): size for number, size in lacking.items()})
        self._bytes = sum(lacking.values())
        self.due = bool(state.lacking or state.of_heartbeats or state.unsaid)
        """Whether rows are to be written before the next entry is taken."""

    def passed_over(self, size: int) -> None:
        """Write that each session may lack so many bytes."""
        if not self._say_of_all(size):
            self._state.unsaid += size
            self.due = True

    def passed_over_in_replay(self, size: int) -> None:
        """Remember that each session may lack so many bytes."""
        self._replayed.add(DamageState(dict.fromkeys(self._concerned(), size), size))
        self._bytes += size

    def replayed(self) -> int:
        """Take note that the replay has reached the table's position. Return how many bytes sessions may lack."""
        lost, self._bytes = self._bytes, 0
        self._state.add(self._replayed)
        self._replayed = DamageState()
        self.due |= lost > 0
        return lost

    def tell(self) -> None:
        """Write what the sessions may lack that are left. Where none is left, wait for the next one."""
        state = self._state
        lacking, state.lacking = state.lacking, {}
        lost, state.of_heartbeats = state.of_heartbeats, 0
        said = bool(lost) and self._heartbeats.damaged(lost)
        told: dict[OwnRows, int] = {}
        for key, own in self._concerned().items():
            if size := lacking.get(key):
                told.setdefault(own, size)
        for own, size in told.items():
            own.damaged(size)
        if not (said or told):
            state.unsaid += max(lost, *lacking.values(), 0)
        if state.unsaid and self._say_of_all(state.unsaid):
            state.unsaid = 0
        self.due = state.unsaid > 0

    def _say_of_all(self, size: int) -> bool:
        """Write that each session may lack so many bytes. Return whether there was a session."""
        concerned = dict.fromkeys(self._concerned().values())
        for own in concerned:
            own.damaged(size)
        return self._heartbeats.damaged(size) or bool(concerned)

    def _concerned(self) -> dict[str, OwnRows]:
        """Return the rows of all sessions that may lack something, by the keys of `DamageState`."""
        found: dict[str, OwnRows] = {}
        for number in sorted(self._sessions):
            found[str(number)] = self._sessions[number].generations.current.own
        for source, announced in sorted(self._shared.all_announced.items()):
            for id_, incarnation in announced.incarnations():
                found[f"{source}/{id_}"] = incarnation.own
        return found
