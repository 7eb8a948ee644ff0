"""Read a stream's name, process and host from its file's path, in the layouts that libovni has written.

    v3       TRACE/loom.LOOM/proc.PID/thread.TID/stream.obs    since ovni 1.11
    v1, v2   TRACE/loom.LOOM/proc.PID/thread.TID.obs

A TID is unique only in its node, and a task only in its process. A loom is a set of threads that share a node's CPUs;
its name begins with the host's name, up to the first "."."""

from __future__ import annotations

import posixpath
import re
from typing import NamedTuple

from tailrace.decoding.contract import Files, Writer, without_gz
from tailrace.decoding.formats.ovni.document import OFFSETS, PROCESS
from tailrace.decoding.formats.ovni.frame import MAGIC

_PATH = re.compile(
    r"(?P<trace>.*)/loom\.(?P<loom>[^/]+)/proc\.(?P<pid>[^/]+)/thread\.(?P<tid>[^/]+)"
    r"(?:/stream)?\.obs",
    re.DOTALL,
)
_STREAM = re.compile(r".*/thread\.[^/]+(?:/stream)?\.obs", re.DOTALL)


class StreamOrigin(NamedTuple):
    """The name of a stream, its process and its host; empty if the path of its file does not match."""

    stream: str = ""
    process: str = ""
    host: str = ""


def read_path(path: str) -> StreamOrigin:
    valid = path.encode(errors="surrogateescape").decode(errors="replace")
    match = _PATH.fullmatch(without_gz(valid))
    if match is None:
        return StreamOrigin()
    loom, pid, tid = match.group("loom", "pid", "tid")
    return StreamOrigin(f"{loom}/{pid}/{tid}", f"{loom}/{pid}", loom.partition(".")[0])


def _is_stream(path: str) -> bool:
    return _STREAM.fullmatch(without_gz(path)) is not None


def _recognises(path: str, head: bytes) -> bool:
    """Recognise a stream by its magic. If the file has only a part of the magic so far, its path must match, too."""
    return head.startswith(MAGIC) or (_is_stream(path) and MAGIC.startswith(head))


def _documents(path: str) -> tuple[str, ...]:
    name = posixpath.basename(without_gz(path))
    if name == "stream.obs":
        return "stream.json", f"../../../{OFFSETS}"
    return f"{name.removesuffix('.obs')}.json", PROCESS, f"../../{OFFSETS}"


def _described(path: str) -> str:
    stream = path.removesuffix(".json") + ".obs"
    return stream if path.endswith(".json") and _is_stream(stream) else ""


def _trace(path: str) -> str:
    """Return the directory of a stream's trace, whose streams share names and clocks."""
    match = _PATH.fullmatch(without_gz(path))
    return match["trace"] if match else posixpath.dirname(path)


def _writer(path: str) -> Writer | None:
    """Return the process that writes a stream. Its PID is valid in the process's own PID namespace."""
    match = _PATH.fullmatch(without_gz(path))
    if match is None or not re.fullmatch(r"[1-9][0-9]{0,9}", match["pid"]):
        return None
    return Writer(match["loom"].partition(".")[0], int(match["pid"]))


def _identity(path: str) -> str:
    """Return a key that a stream keeps when libovni moves it from the temporary directory OVNI_TMPDIR."""
    match = _PATH.fullmatch(without_gz(path))
    return "/".join(match.group("loom", "pid", "tid")) if match else without_gz(path)


FILES = Files(
    stream=_is_stream,
    documents=_documents,
    described=_described,
    group=_trace,
    copy=_identity,
    writer=_writer,
    recognises=_recognises,
)
