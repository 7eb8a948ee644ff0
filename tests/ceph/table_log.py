"""Read the log of a table in an object store version by version: which collector wrote what, and when an upkeep had the
lease.
"""

from __future__ import annotations

import json
import re
from typing import NamedTuple

from deltalake import DeltaTable
from pyarrow import fs

from tailrace.store.turn import HOLDER

NAME = re.compile(r"(\d{20})\.json")


class Turn(NamedTuple):
    """One upkeep: the versions from the one that took the lease to the one that gave it back, the merges among them,
    and the collectors that committed meanwhile.
    """

    first: int
    last: int
    merges: list[int]
    writers: set[str]


class TableLog:
    def __init__(self, url, options):
        self._url, self._options = f"{url}/events", options
        self._files = fs.S3FileSystem(
            access_key=options["AWS_ACCESS_KEY_ID"],
            secret_key=options["AWS_SECRET_ACCESS_KEY"],
            region=options["AWS_REGION"],
            endpoint_override=options["AWS_ENDPOINT_URL"].removeprefix("http://"),
            scheme="http",
        )

    def table(self):
        return DeltaTable(self._url, storage_options=self._options)

    def holder(self):
        """Return the number of the upkeep that holds the lease, or 0."""
        return self.table().transaction_version(HOLDER) or 0

    def rows(self, columns):
        return self.table().to_pyarrow_table(columns=columns).to_pylist()

    def versions(self):
        """Yield the actions of every version, in order."""
        directory = f"{self._url.removeprefix('s3://')}/_delta_log"
        found = {}
        for info in self._files.get_file_info(fs.FileSelector(directory)):
            if name := NAME.fullmatch(info.base_name):
                with self._files.open_input_stream(info.path) as file:
                    found[int(name[1])] = [json.loads(line) for line in file.read().splitlines()]
        assert sorted(found) == list(range(len(found))), "a version is missing"
        return [found[number] for number in range(len(found))]


def merges(actions):
    return any(not action["add"]["dataChange"] for action in actions if "add" in action)


def transactions(actions):
    return {a["txn"]["appId"]: a["txn"]["version"] for a in actions if "txn" in a}


def removed(versions):
    """Return the files that merges have removed.

    The library repeats a merge whose answer was lost, so files of the same name count once.
    """
    made, found = set(), []
    for actions in filter(merges, versions):
        added = {action["add"]["path"] for action in actions if "add" in action}
        if not added <= made:
            found += [action["remove"]["path"] for action in actions if "remove" in action]
        made |= added
    return found


def turns(versions):
    """Return the upkeeps in order. Fail if one began within another, or merged without the lease."""
    found, holder = [], 0
    for number, actions in enumerate(versions):
        noted = transactions(actions)
        now = noted.get(HOLDER, holder)
        if now and now != holder:
            assert not holder, f"version {number}: an upkeep began within the turn of another"
            found.append(Turn(number, number, [], set()))
        if now:
            found[-1].writers.update(i for i in noted if i.endswith("/spool"))
            found[-1] = found[-1]._replace(last=number)
        if merges(actions):
            assert now, f"version {number} is a merge of nobody's turn"
            found[-1].merges.append(number)
        holder = now
    return found
