"""Write a support bundle: an archive with facts about a collector, and a README.

Each part is a text, with a limit of time and of size. If a part cannot be made, the README states the error instead. No
part contains an event, the name or an attribute of an event, or bytes from the quarantine."""

from __future__ import annotations

import io
import json
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from importlib.metadata import distributions
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from tailrace import __version__, kernels
from tailrace.bundle.redaction import Redaction, Subject, effective
from tailrace.config.load import store_path
from tailrace.doctor.examination import examine
from tailrace.errors import TailraceError
from tailrace.figures import Status
from tailrace.filesystem import is_local
from tailrace.ingest.state import IngestState, decode
from tailrace.model.quarantine import frames
from tailrace.query import admin
from tailrace.query.engine import Engine
from tailrace.query.limits import Limits
from tailrace.query.live import ask
from tailrace.spool.checkpoint import Checkpoints
from tailrace.store import layout
from tailrace.store.quarantine import SUFFIX
from tailrace.terminal import printable

ANSWER_SECONDS = 5.0
QUERY_SECONDS = 15.0
LOG_BYTES = 256 * 1024
LOG_LINES = 2000
FILES_MAX = 1000
"""Maximum number of files whose names and sizes are listed in one part of the bundle."""
QUARANTINE_BYTES = 64 * 2**20
"""Maximum number of bytes of quarantine files that are read to count the quarantined frames by reason."""


class BundlePart(NamedTuple):
    name: str
    meaning: str
    make: Callable[[Subject], str]


def versions(_: Subject) -> str:
    found = {d.metadata["Name"]: d.version for d in distributions() if d.metadata["Name"]}
    packages = [f"{name}=={found[name]}" for name in sorted(found, key=str.lower)]
    system = platform.uname()
    head = [
        f"tailrace {__version__}, kernels: {kernels.word()}",
        f"python {sys.version}",
        f"system {system.system} {system.release} {system.version} {system.machine}",
        f"processors {os.cpu_count()}",
    ]
    return "\n".join([*head, "", *packages, ""])


def configuration(subject: Subject) -> str:
    loaded = subject.loaded
    head = {"path": str(loaded.path or ""), "sha256": loaded.sha256}
    if subject.problems:
        return _json({**head, "problems": subject.problems})
    return _json({**head, "effective": effective(loaded.config, subject.host.environ)})


def environment(subject: Subject) -> str:
    """Return the names of all environment variables that begin with TAILRACE_, without their values."""
    names = sorted(name for name in subject.host.environ if name.startswith("TAILRACE_"))
    return "".join(f"{name}=...\n" for name in names) or "no variable begins with TAILRACE_\n"


def host(subject: Subject) -> str:
    findings = examine(subject.host, quick=True)
    return _json([msgspec.to_builtins(finding) for finding in findings])


def page(path: str) -> Callable[[Subject], str]:
    """Return a function that fetches the page `path` from the admin endpoint of the running daemon."""

    def get(subject: Subject) -> str:
        daemon = subject.host.daemon
        if daemon is None:
            raise TailraceError("no collector runs on this store")
        if not (address := daemon.addresses.get("admin")):
            why = f"process {daemon.pid} does not report the address of its admin endpoint"
            raise TailraceError(why)
        found = admin.page(subject.loaded.config.admin, address, path)
        return found.decode(errors="replace")

    return get


def collectors(subject: Subject) -> str:
    """Return the status of each running collector of the store by name, and why some collectors did not answer."""
    asked = ask(subject.loaded.config, Status, subject.host.environ)
    return _json({"unasked": asked.unasked, "answers": msgspec.to_builtins(asked.answers)})


def log(subject: Subject) -> str:
    """Return the last lines of the running daemon's log. Raise TailraceError if it cannot be read back."""
    daemon = subject.host.daemon
    if daemon is None:
        why = "no collector runs on this store; look for its log where its output went"
        raise TailraceError(why)
    stderr = Path(f"/proc/{daemon.pid}/fd/2")
    if stderr.is_file():
        with stderr.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - LOG_BYTES))
            return file.read(LOG_BYTES).decode(errors="replace")
    if shutil.which("journalctl"):
        command = ["journalctl", f"_PID={daemon.pid}", "-n", str(LOG_LINES), "--no-pager", "-q"]
        done = subprocess.run(  # noqa: S603 - our own command
            command, capture_output=True, timeout=ANSWER_SECONDS, check=False
        )
        if done.stdout:
            return done.stdout[-LOG_BYTES:].decode(errors="replace")
    raise TailraceError(f"its standard error is {stderr.readlink()}, which cannot be read back")


def table(subject: Subject) -> str:
    config = subject.loaded.config
    store = store_path(config, subject.host.environ)
    root = layout.table_root(store)
    found = layout.open_or_none(root, config.store.options)
    if found is None:
        raise TailraceError(f"{store}: has no table")
    actions = found.get_add_actions(flatten=True)
    days: dict[str, Counter[str]] = defaultdict(Counter)
    columns = ("path", "size_bytes", "num_records")
    for path, size, rows in zip(*(actions[name].to_pylist() for name in columns), strict=True):
        days[str(path).partition("/")[0]].update(files=1, bytes=size or 0, rows=rows or 0)
    return _json(
        {
            "store": store,
            "version": found.version(),
            "protocol": found.protocol()._asdict(),
            "properties": found.metadata().configuration,
            "schema": json.loads(found.schema().to_json()),
            "days": {day: dict(counts) for day, counts in sorted(days.items())},
            "log": _sizes(Path(root) / "_delta_log") if is_local(store) else None,
        }
    )


def spool(subject: Subject) -> str:
    directory = subject.host.spool
    files = [path for path in sorted(directory.glob("*"))[:FILES_MAX] if path.is_file()]
    sizes = {path.name: path.stat().st_size for path in files}
    return _json({"directory": str(directory), "sum": _sizes(directory), "sizes": sizes})


def ledger(subject: Subject) -> str:
    """Return the counts of events and bytes for each source, from the ingest's state in the newest checkpoint."""
    directory = subject.host.spool
    if not directory.is_dir():
        raise TailraceError(f"{directory}: has no spool")
    checkpoint = Checkpoints(directory).newest(2**63)
    if checkpoint is None:
        raise TailraceError(f"{directory}: has no checkpoint")
    state = decode(checkpoint.state, IngestState)
    sessions = Counter(session.info.source for session in state.sessions.values())
    sources = {
        name: {
            "tally": _all(tally),
            "shared": _all(state.commons[name]) if name in state.commons else None,
            "open_sessions": sessions[name],
            "announced_sessions": len(state.announced.get(name, {})),
        }
        for name, tally in state.tallies.items()
    }
    return _json({"position": state.position, "version": state.version, "sources": sources})


def gaps(subject: Subject) -> str:
    """Return the number of gaps, sessions and missing events by source, format and reason, without names."""
    config = subject.loaded.config
    store = store_path(config, subject.host.environ)
    engine = Engine(store, config.store.options, Limits(seconds=QUERY_SECONDS, threads=1))
    asked = """
        SELECT source, format, reason, count(*), count(DISTINCT session), sum(count)::HUGEINT, sum(remaining)::HUGEINT,
               count(*) FILTER (count IS NULL)
        FROM gaps GROUP BY ALL ORDER BY ALL LIMIT 1000
    """
    names = ("source", "format", "reason", "gaps", "sessions", "events", "not_healed", "of_unknown_size")  # fmt: skip
    try:
        return _json([dict(zip(names, row, strict=True)) for row in engine.rows(asked)])
    finally:
        engine.close()


def quarantine(subject: Subject) -> str:
    """Return, for each reason, the number and the size (bytes) of the quarantine's frames, which contain unreadable
    input."""
    directory = (subject.host.store or subject.host.spool) / "quarantine"
    reasons: dict[str, Counter[str]] = defaultdict(Counter)
    left, unread = QUARANTINE_BYTES, 0
    for path in sorted(directory.glob(f"*{SUFFIX}")):
        size = path.stat().st_size
        if size > left:
            unread += 1
            continue
        left -= size
        for frame in frames(path.read_bytes()):
            reasons[frame.reason].update(pieces=1, bytes=len(frame.data))
    counts = {reason: dict(counts) for reason, counts in sorted(reasons.items())}
    whole = _sizes(directory, f"*{SUFFIX}")
    return _json({"sum": whole, "files_not_read": unread, "reasons": counts})


PARTS = (
    BundlePart("versions.txt", "Tailrace, Python, the system and every installed package.", versions),
    BundlePart("configuration.json", "The effective configuration without secrets, or what is wrong with it.", configuration),
    BundlePart("environment.txt", "Names of the variables that begin with TAILRACE_, without their values.", environment),
    BundlePart("host.json", "The findings of `tailrace doctor --quick` on this host.", host),
    BundlePart("status.json", "/status of the running daemon.", page("/status?format=json")),
    BundlePart("collectors.json", "/status of each collector that runs on the store here, and why others do not answer.", collectors),
    BundlePart("healthz.json", "/healthz of the running daemon.", page("/healthz")),
    BundlePart("metrics.txt", "/metrics of the running daemon.", page("/metrics")),
    BundlePart("log.txt", "The last lines of the running daemon's log.", log),
    BundlePart("table.json", "The table's version, protocol, properties, schema, files and sizes by day.", table),
    BundlePart("spool.json", "The spool's files and the checkpoints, with their sizes.", spool),
    BundlePart("ledger.json", "The sums of each source at the newest checkpoint.", ledger),
    BundlePart("gaps.json", "The amount of missing events, by source and reason.", gaps),
    BundlePart("quarantine.json", "Input that could not be decoded, by reason, with sizes but without the bytes.", quarantine),
)  # fmt: skip


def _sizes(directory: Path, pattern: str = "*") -> dict[str, int]:
    if not directory.is_dir():
        raise TailraceError(f"{directory}: does not exist")
    sizes = [path.stat().st_size for path in directory.glob(pattern) if path.is_file()]
    return {"files": len(sizes), "bytes": sum(sizes)}


def _all(state: msgspec.Struct) -> dict[str, Any]:
    """Return all fields of a struct by name. Include fields with their default value, which msgspec would leave out."""
    fields = msgspec.structs.asdict(state).items()
    return {
        name: _all(value) if isinstance(value, msgspec.Struct) else msgspec.to_builtins(value)
        for name, value in fields
    }


def _json(value: object) -> str:
    return json.dumps(value, indent=1, default=str) + "\n"


PART_SECONDS = 20.0
PART_BYTES = 4 * 2**20

README = """\
A support bundle of Tailrace: facts about one collector and its host, for somebody who helps.

It contains no events, no names or attributes of events, and no bytes from the quarantine. Storage
options, tokens, user and password of URLs and the values of TAILRACE_* variables are replaced by
REDACTED. It does name this host, its addresses, users, directories and packages, the sources, and,
in lines of the log, peers and files. Review it before you pass it on: all of it is text.

"""


class Made(NamedTuple):
    """A finished part of the bundle: its text, or the reason (`failure`) why there is none."""

    part: BundlePart
    text: str | None
    failure: str

    @property
    def size(self) -> int | None:
        """Size of the text in bytes."""
        return None if self.text is None else len(self.text.encode())


def collect(subject: Subject, redaction: Redaction) -> Iterator[Made]:
    """Make all parts of the bundle one after the other. Shorten each part, remove secrets from it, and yield it when it
    is finished."""
    for part in PARTS:
        _, text, failure = _made(part, subject)
        if text is not None:
            data = redaction.clean(text).encode(errors="replace")
            text = data[:PART_BYTES].decode(errors="ignore")
            if len(data) > PART_BYTES:
                text += "\n[cut: too long for a bundle]\n"
        yield Made(part, text, redaction.clean(printable(failure)))


def write(path: Path, name: str, made: list[Made], now: int) -> None:
    """Write the parts to a new .tar.gz archive at `path`, which only its owner can read. Within the archive, the parts
    are in the directory `name`. Raise OSError if this fails."""
    texts = {"README.txt": README + "".join(f"{contents(each)}\n" for each in made)}
    texts |= {each.part.name: each.text for each in made if each.text is not None}
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "wb") as file, tarfile.open(fileobj=file, mode="w:gz") as archive:
        for part, text in texts.items():
            data = text.encode()
            info = tarfile.TarInfo(f"{name}/{part}")
            info.size, info.mtime, info.mode = len(data), now, 0o644
            archive.addfile(info, io.BytesIO(data))


def contents(made: Made) -> str:
    """Return the line in the bundle's README about one part: its size, its name and its content."""
    size = "  missing  " if made.size is None else f"{made.size:>9,} B"
    line = f"{size}  {made.part.name:<19} {made.part.meaning}"
    return f"{line} Missing: {made.failure}" if made.text is None else line


def facts(made: Made) -> dict[str, object]:
    """Return name, content, size and failure of one part for the JSON output."""
    name, meaning, _ = made.part
    return {"name": name, "meaning": meaning, "bytes": made.size, "failure": made.failure or None}


def _made(part: BundlePart, subject: Subject) -> Made:
    """Make one part of the bundle in at most `PART_SECONDS`, because a disk that does not answer must not block all."""
    done: list[Made] = []

    def make() -> None:
        try:
            done.append(Made(part, part.make(subject), ""))
        except Exception as error:  # noqa: BLE001 - the bundle reports every error
            done.append(Made(part, None, f"{type(error).__name__}: {error}"))

    thread = threading.Thread(target=make, daemon=True)
    thread.start()
    thread.join(PART_SECONDS)
    return done[0] if done else Made(part, None, f"took longer than {PART_SECONDS:g} s")
