"""Packers for events of one shape: the same name, the same attributes' names, numbers as values.

Most events of a program come from a few places in its code and differ in their numbers only. For a
shape there is one precompiled `Struct`, in which all the rest is constant. The bytes are those that
`_wire` makes; a packer takes only what it was made for, and `_wire` takes everything.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from itertools import chain
from struct import Struct, error
from typing import Any

from tailrace_client import _wire

Packer = Callable[[int, Callable[[], int], int, int, int, Mapping[str, object]], "bytes | None"]

_ATTRIBUTES_MAX = 16
_CODES: dict[type, tuple[str, int]] = {
    int: ("Q", _wire.U64),
    bool: ("Q", _wire.U64),
    float: ("d", _wire.F64),
}


class OutOfRangeError(Exception):
    """A value or a time does not fit its field; the event's number is taken."""

    def __init__(self, number: int) -> None:
        self.number = number


def packer(name: str, attributes: Mapping[str, object]) -> Packer | None:
    """A function that makes a packet of

        stream, the function that takes the next number, substream, start, end, attributes

    It returns None, without having taken a number, where a value has another type than here, and
    raises OutOfRangeError. None in its stead for what has no fixed shape.
    """
    kinds = tuple(map(type, attributes.values()))
    plain = all(type(key) is str for key in (name, *attributes))
    if not plain or len(kinds) > _ATTRIBUTES_MAX or not set(kinds) <= _CODES.keys():
        return None
    constants, codes = [], []
    before = _wire.text(name)
    for key, kind in zip(attributes, kinds):  # noqa: B905 - of one mapping
        code, tag = _CODES[kind]
        constants.append(before + _wire.text(key) + bytes([tag]))
        codes.append(f"{len(constants[-1])}s{code}")
        before = b""
    if not kinds:
        constants.append(before)
        codes.append(f"{len(before)}s")
    layout = Struct(">8sIIQQQ" + "".join(codes))
    head = _wire.EVENT_MAGIC.to_bytes(4, "big") + layout.size.to_bytes(4, "big")
    return _maker(kinds)(layout.pack, head, *constants)


@lru_cache(maxsize=256)
def _maker(kinds: tuple[type, ...]) -> Callable[..., Packer]:
    """A function that makes packers for values of these types. As a namedtuple's methods, it is
    made from source; only the number of values and their types get into that."""
    values = [f"v{at}" for at in range(len(kinds))]
    constants = [f"c{at}" for at in range(max(1, len(kinds)))]
    unpack = f"{', '.join(values)}, = attributes.values()" if values else ""
    checks = " and ".join(f"type({v}) is {kind.__name__}" for v, kind in zip(values, kinds))  # noqa: B905 - equally long
    fields = ", ".join(chain(*zip(constants, values)) if values else constants)  # noqa: B905 - equally long
    source = f"""
def maker(pack, head, {", ".join(constants)}):
    def packer(stream, take, substream, start, end, attributes):
        {unpack}
        if {checks or True}:
            number = take()
            try:
                return pack(head, stream, number & {2**32 - 1}, substream, start, end, {fields})
            except error:
                raise OutOfRangeError(number) from None
    return packer
"""
    names: dict[str, Any] = {"error": error, "OutOfRangeError": OutOfRangeError}
    exec(source, names)  # noqa: S102 - see above
    maker: Callable[..., Packer] = names["maker"]
    return maker
