"""Losses that a copy states, because no bytes of it show them: gzip members without content, whose extra field says what is missing.

`export --to original` writes them; other readers of gzip pass over them.
"""

from __future__ import annotations

import re
from struct import pack
from typing import NamedTuple, cast, get_args

from tailrace.ingest.payloads import LossDetail

STATED_MAX = 128
"""Bytes within which such a member ends."""

_EXTRA = b"\x1f\x8b\x08\x04"
_OURS = b"TR"
_EMPTY = b"\x03\0" + bytes(8)
_MEMBER = re.compile(
    re.escape(_EXTRA) + rb".{8}" + _OURS + rb"..(" + "|".join(get_args(LossDetail)).encode()
    + rb") ([0-9]{1,19})" + re.escape(_EMPTY),
    re.DOTALL,
)  # fmt: skip


class StatedMember(NamedTuple):
    """A loss of so many bytes, 0 if that is unknown, and how many bytes say so."""

    detail: LossDetail
    lost: int
    size: int


def statement(detail: str, lost: int) -> bytes:
    """Return a member that states a loss."""
    said = f"{detail} {lost}".encode()
    field = _OURS + pack("<H", len(said)) + said
    return _EXTRA + bytes(5) + b"\xff" + pack("<H", len(field)) + field + _EMPTY


def read_statement(data: bytes, *, last: bool) -> StatedMember | bool:
    """Return the loss that the member at the beginning of `data` states, False if it states none, True if that takes more
    bytes."""
    if found := _MEMBER.match(data):
        lost = min(int(found[2]), 2**63 - 1)
        return StatedMember(cast("LossDetail", found[1].decode()), lost, found.end())
    ours = _EXTRA.startswith(data[:4]) and _OURS.startswith(data[12:14])
    return ours and len(data) < STATED_MAX and not last
