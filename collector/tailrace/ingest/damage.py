"""Say which sessions may lack entries of the log that the disk lost.

While a start replays entries, the table has the rows already, and the rows that are made are dropped. The
rows of damage are therefore written with the first entry behind the table's position, since a batch with rows
has a position of its own. Until then, counters may call stored events missing. A session that a client announced may lack something over each of its
connections, also once the connection that was open at the damage has ended.
"""

from __future__ import annotations

from collections.abc import Mapping

from tailrace.ingest.heartbeats import HeartbeatSession
from tailrace.ingest.own_rows import OwnRows
from tailrace.ingest.session import Session
from tailrace.ingest.shared import Shared

Key = tuple[str, int | str]
"""An open session by its number, behind "", or an announced session by its id, behind its source."""


class Damage:
    """The bytes of the log that sessions may lack, and that no row names yet."""

    def __init__(
        self,
        sessions: Mapping[int, Session],
        shared: Shared,
        heartbeats: HeartbeatSession,
        lacking: Mapping[int, int],
    ) -> None:
        """Look at the sessions that there are. `lacking` has, by open session, bytes that the spool no longer has."""
        self._sessions = sessions
        self._shared = shared
        self._heartbeats = heartbeats
        self._lacking: dict[Key, int] = {("", number): size for number, size in lacking.items()}
        self._of_heartbeats = 0
        self._bytes = sum(lacking.values())
        self.due = False
        """Whether rows are to be written before the next entry is taken."""

    def passed_over(self, size: int) -> None:
        """Write that each session may lack so many bytes."""
        for own in dict.fromkeys(self._concerned().values()):
            own.damaged(size)
        self._heartbeats.damaged(size)

    def passed_over_in_replay(self, size: int) -> None:
        """Remember that each session may lack so many bytes."""
        for key in self._concerned():
            self._lacking[key] = self._lacking.get(key, 0) + size
        self._of_heartbeats += size
        self._bytes += size

    def replayed(self) -> int:
        """Take note that the replay has reached the table's position. Return how many bytes sessions may lack."""
        lost, self._bytes = self._bytes, 0
        self.due = lost > 0
        return lost

    def tell(self) -> None:
        """Write what the sessions may lack that are left."""
        lacking, self._lacking = self._lacking, {}
        lost, self._of_heartbeats = self._of_heartbeats, 0
        self.due = False
        if lost:
            self._heartbeats.damaged(lost)
        told: dict[OwnRows, int] = {}
        for key, own in self._concerned().items():
            if size := lacking.get(key):
                told.setdefault(own, size)
        for own, size in told.items():
            own.damaged(size)

    def _concerned(self) -> dict[Key, OwnRows]:
        """Return the rows of all sessions that may lack something."""
        found: dict[Key, OwnRows] = {}
        for number in sorted(self._sessions):
            found["", number] = self._sessions[number].generations.current.own
        for source, announced in sorted(self._shared.all_announced.items()):
            for id_, incarnation in announced.incarnations():
                found[source, id_] = incarnation.own
        return found
