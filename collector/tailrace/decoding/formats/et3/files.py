"""The names of ET3's files, and what their first lines look like."""

from __future__ import annotations

import posixpath
import re

from tailrace.decoding.contract import Files, without_gz
from tailrace.decoding.formats.et3.line import Line, read_line
from tailrace.decoding.formats.et3.maps import DOCUMENTS
from tailrace.decoding.lines import BYTE_ORDER_MARK

_TRACE = re.compile(r"(\A|\.)(trace([._].*)?|et3)\Z")
"""`trace`, as all agents call it, NAME.trace, the names that tools give to processed traces, and NAME.et3."""

_ADDED = re.compile(r"reordered|with_deaths")


def deaths_were_added(path: str) -> bool:
    """Return whether a trace has a name that tools give when they add the deaths after the run."""
    return _ADDED.search(posixpath.basename(path)) is not None


def _is_trace(path: str) -> bool:
    name = without_gz(posixpath.basename(path))
    if name.startswith(".") or name.endswith(tuple(DOCUMENTS)):
        return False
    return _TRACE.search(name) is not None


def _documents(path: str) -> tuple[str, ...]:
    """Return the documents' names alone, and after the trace's own name and a dot."""
    own = _TRACE.sub("", without_gz(posixpath.basename(path)))
    return (*DOCUMENTS, *(f"{own}.{name}" for name in DOCUMENTS if own))


def _recognises(_path: str, head: bytes) -> bool:
    """Recognise a trace if more whole lines are events than unreadable; a trace may have some of both."""
    text = head[: head.rfind(b"\n") + 1].removeprefix(BYTE_ORDER_MARK).lstrip(b"\0")
    lines = text.split(b"\n")
    read = [read_line(line, et1=False) for line in lines if line.strip()]
    events = [line for line in read if isinstance(line, Line) and line.kind in {"event", "et1"}]
    return len(events) > sum(isinstance(line, str) for line in read)


FILES = Files(
    stream=_is_trace,
    documents=_documents,
    recognises=_recognises,
    document_max=16 * 2**20,  # the maps of large programs, which are read line by line
)
