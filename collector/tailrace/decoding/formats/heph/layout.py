"""Read the bodies that one call site writes: the same bytes except for the values.

A layout is a body's static bytes (description, attribute names, types, string lengths) and the places of
its values. It is found by description and size and then compared with the body, so a body that only
looks similar is never misread. A body that no layout fits is read field by field in `body`, which
decides. A layout takes half the time of that, whatever the number of attributes.

A layout has only values whose JSON depends on nothing else: u64, finite f64 and UTF-8 strings.
"""

from __future__ import annotations

from collections.abc import Callable
from json.encoder import encode_basestring as quote
from math import isfinite
from struct import Struct
from typing import Any, NamedTuple

from tailrace.decoding.memo import Memo

Value = tuple[int, int, str, str]
"""Where a value begins, where it ends, its struct format, and its name as a JSON key."""


class BodyLayout(NamedTuple):
    """The layout of a body. `unpack` returns static and dynamic parts in turn, a static one first."""

    kind: str
    name: str
    unpack: Callable[[bytes], tuple[Any, ...]]
    static: tuple[bytes, ...]
    template: str
    strings: tuple[int, ...]
    floats: tuple[int, ...]


_layouts: dict[tuple[bytes, int], BodyLayout | None] = {}
_LAYOUTS_MAX, _BODY_MAX = 4096, 512  # about 8 MiB at most
_texts: Memo[bytes, str] = Memo(8192, 64)  # about 2 MiB at most


def read(body: bytes, begin: int) -> tuple[str, str, str] | None:
    """Return kind, name and attributes in JSON; None where no layout fits."""
    layout = _layouts.get((body[:begin], len(body)))
    if layout is None:
        return None
    kind, name, unpack, static, template, strings, floats = layout
    parts = unpack(body)
    if parts[::2] != static:
        return None
    if not strings and not floats:
        return kind, name, template % parts[1::2]
    values = list(parts[1::2])
    for i in floats:
        if not isfinite(values[i]):
            return None
    for i in strings:
        text = _texts.get(values[i]) or _quoted(values[i])
        if text is None:
            return None
        values[i] = text
    return kind, name, template % tuple(values)


def unknown(body: bytes, begin: int) -> bool:
    """Return whether a layout might be learned from this body; never from a long one."""
    return len(body) <= _BODY_MAX and (body[:begin], len(body)) not in _layouts


def learn(body: bytes, begin: int, kind: str, name: str, values: list[Value] | None) -> None:
    """Remember a body's layout, or that it has none (`values` is None)."""
    layout = None
    if values:
        form, static, template = [], [], []
        at = 0
        for value_at, end, type_, key in values:
            form.append(f"{value_at - at}s{type_}")
            static.append(body[at:value_at])
            template.append(key.replace("%", "%%") + ("%r" if type_ == "d" else "%s"))
            at = end
        form.append("0s")
        static.append(b"")
        types = [type_[-1] for _, _, type_, _ in values]
        layout = BodyLayout(
            kind,
            name,
            Struct(">" + "".join(form)).unpack,
            tuple(static),
            "{" + ",".join(template) + "}",
            tuple(i for i, type_ in enumerate(types) if type_ == "s"),
            tuple(i for i, type_ in enumerate(types) if type_ == "d"),
        )
    if len(_layouts) >= _LAYOUTS_MAX:
        _layouts.clear()
    _layouts[body[:begin], len(body)] = layout


def _quoted(raw: bytes) -> str | None:
    try:
        return _texts.keep(raw, quote(raw.decode()))
    except UnicodeDecodeError:
        return None
