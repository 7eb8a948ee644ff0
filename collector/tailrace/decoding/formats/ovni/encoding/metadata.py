"""Amend the metadata of a thread that was killed, so that ovni's emulator accepts the thread.

The emulator requires the finished flag of the thread, the models of its events, and at least one CPU of each loom.
libovni writes these members when a thread ends."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

import msgspec

from tailrace.decoding.formats.ovni.files import StreamOrigin

MODELS = {
    "ovni": "1.1.0", "nanos6": "1.1.0", "nosv": "2.7.0", "nodes": "1.0.0", "tampi": "1.0.0", "mpi": "1.0.0",
    "kernel": "1.0.0", "openmp": "1.2.1",
}  # fmt: skip
"""Versions of the event models, such as `nosv`, whose events the module `table` lists."""

VERSION = 3
"""The version of ovni's metadata in which each thread has a single document."""

CPUS_MAX = 65_536
"""Upper limit of a CPU index. A larger index is damaged data."""

RawMembers = dict[str, msgspec.Raw]
"""Members of a JSON object as texts, since a document may have numbers that do not fit in any type."""

_read = msgspec.json.Decoder(RawMembers).decode
_read_list = msgspec.json.Decoder(list[msgspec.Raw]).decode
_read_integer = msgspec.json.Decoder(int).decode


class Loom(msgspec.Struct):
    """The CPUs of a loom: threads that share a node's CPUs."""

    declared: dict[int, int] = {}  # Physical ids in the metadata, by CPU index.
    used: set[int] = set()  # CPU indexes in events.

    def declare(self, cpus: msgspec.Raw | None) -> None:
        for cpu in _items(cpus):
            about = _object(cpu)
            index, physical = _integer(about.get("index")), _integer(about.get("phyid"))
            if index is not None and physical is not None and 0 <= index < CPUS_MAX:
                self.declared[index] = physical

    def use(self, index: int) -> None:
        if 0 <= index < CPUS_MAX:
            self.used.add(index)

    def lacking(self) -> list[dict[str, int]]:
        """Declare and return the CPUs that no metadata declares, up to the highest index, with invented ids."""
        taken = set(self.declared.values())
        found = []
        for index in range(max(self.used | self.declared.keys() | {0}) + 1):
            if index not in self.declared:
                physical = next(i for i in itertools.count(index) if i not in taken)
                taken.add(physical)
                self.declared[index] = physical
                found.append({"index": index, "phyid": physical})
        return found


def ovni_of(text: str) -> RawMembers:
    """Return the member `ovni` of a metadata document, or an empty dict if there is none."""
    return _object(_read(text).get("ovni"))


def amended(
    text: str | None, place: StreamOrigin, loom: Loom, models: set[str], added: Counter[str]
) -> str:
    """Return the metadata of a thread with all members that ovni's emulator requires. `added` counts the new ones."""
    text = f'{{"version":{VERSION}}}' if text is None else text
    metadata = _read(text)
    if _integer(metadata.get("version")) != VERSION:
        return text
    ovni: dict[str, object] = {**_object(metadata.get("ovni"))}
    for key, value in _lacking(place, models).items():
        if key not in ovni:
            ovni[key] = value
            added[f"metadata {key}"] += 1
    given = _object(metadata.get("ovni"))
    if cpus := loom.lacking():
        ovni["loom_cpus"] = [*_items(given.get("loom_cpus")), *cpus]
        added["metadata CPU"] += len(cpus)
    if _integer(given.get("finished")) != 1:
        ovni["finished"] = 1
        added["metadata finished"] += 1
    return msgspec.json.encode({**metadata, "ovni": ovni}).decode()


def _lacking(place: StreamOrigin, models: set[str]) -> dict[str, Any]:
    """Return the members that a thread's metadata must have, from its path and its event models."""
    loom, pid, tid = place.stream.split("/")
    return {
        "lib": {"version": "unknown", "commit": "unknown"},
        "part": "thread",
        "tid": _number(tid),
        "pid": _number(pid),
        "loom": loom,
        "app_id": 1,
        "require": {model: MODELS[model] for model in MODELS if model in models | {"ovni"}},
    }


def _object(raw: msgspec.Raw | None) -> RawMembers:
    return _read(raw) if raw and bytes(raw)[:1] == b"{" else {}


def _items(raw: msgspec.Raw | None) -> list[msgspec.Raw]:
    return _read_list(raw) if raw and bytes(raw)[:1] == b"[" else []


def _integer(raw: msgspec.Raw | None) -> int | None:
    try:
        return _read_integer(raw) if raw else None
    except msgspec.MsgspecError:
        return None


def _number(text: str) -> int:
    return int(text) if text.isdecimal() and len(text) < 19 else 0
