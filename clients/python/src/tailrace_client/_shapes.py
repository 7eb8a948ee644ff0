"""Packers for events of one shape: the same name, the same attributes' names and types.

Most events of a program come from a few places in its code and differ in their values only. For a
shape there are precompiled `Struct`s in which all the rest is constant; a text ends one of them.
The bytes are those that `_wire` makes; a packer takes only what it was made for, and `_wire` takes
everything.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from itertools import zip_longest
from struct import Struct, error
from typing import Any

from tailrace_client import _wire

Packer = Callable[[Any, int, int, int, Mapping[str, object]], "bytes | None"]

_ATTRIBUTES_MAX = 16
_FIELDS: dict[type, tuple[int, str]] = {
    int: (_wire.U64, "Q"),
    float: (_wire.F64, "d"),
    str: (_wire.TEXT, "H >"),
    bool: (_wire.TEXT, "H >"),
}
"""By type: the tag, and the field that follows it. A text's is its length; another layout begins."""
_HEADER = "IIQQQ"
"""After magic number and size; without texts they are one constant."""
_HEADER_VALUES = "stream.number, number & 0xFFFFFFFF, substream, start, end"


class MisfitError(Exception):
    """A value or a time does not fit its field; the event's number is taken."""

    def __init__(self, number: int) -> None:
        self.number = number


def no_packer(
    stream: object, substream: int, start: int, end: int, attributes: Mapping[str, object]
) -> None:
    """The one for no event."""


def packer(name: str, attributes: Mapping[str, object]) -> Packer:
    """A function that makes a packet of

        an object with `number`, the stream's, and its `counter`; substream, start, end, attributes

    It returns None, without having taken a number, where the attributes are others than here, or of
    other types. It raises UnicodeEncodeError for a text that is none, without having taken a number,
    or MisfitError. For what has no such shape it is `no_packer`.
    """
    kinds = tuple(map(type, attributes.values()))
    plain = all(type(key) is str for key in (name, *attributes))
    if not plain or len(kinds) > _ATTRIBUTES_MAX or not _FIELDS.keys() >= set(kinds):
        return no_packer
    constants = []
    before = _wire.text(name)
    texts = str in kinds or bool in kinds
    layout = (">4sI" if texts else ">8s") + _HEADER
    for key, kind in zip(attributes, kinds):  # noqa: B905 - of one mapping
        tag, field = _FIELDS[kind]
        constants.append(before + _wire.text(key) + bytes([tag]))
        before = b""
        layout += f"{len(constants[-1])}s{field}"
    if not kinds:
        constants.append(before)
        layout += f"{len(before)}s"
    structs = [Struct(part) for part in layout.removesuffix(" >").split(" ")]
    size = sum(struct.size for struct in structs)
    first = _wire.EVENT_MAGIC.to_bytes(4, "big")
    if not texts:
        first += size.to_bytes(4, "big")
    packs = [struct.pack for struct in structs]
    return _maker(kinds)(first, size, [*attributes], packs, constants)


@lru_cache(maxsize=256)
def _maker(kinds: tuple[type, ...]) -> Callable[..., Packer]:
    """A function that makes packers for values of these types. As a namedtuple's methods, it is
    made from source; nothing but the number of values and their types gets into that."""
    values = [f"v{at}" for at in range(len(kinds))]
    keys = [f"k{at}" for at in range(len(kinds))]
    names = [f"n{at}" for at in range(len(kinds))]
    constants = [f"c{at}" for at in range(max(1, len(kinds)))]
    spelling = {str: "{0}.encode()", bool: 'b"true" if {0} else b"false"'}
    texts = {v: spelling[kind] for v, kind in zip(values, kinds) if kind in spelling}  # noqa: B905 - equally long
    plain = ""
    if len(kinds) == 1:  # the most frequent one, and this is quicker than by items
        reading, missing, checks = "v0 = attributes[n0]", "KeyError", ["len(attributes) == 1"]
        plain = "if type(attributes) is not dict: return None"  # another one may make up an item
    else:
        items = "".join(f"({key}, {value}), " for key, value in zip(keys, values))  # noqa: B905 - equally long
        reading, missing = f"{items or '()'} = attributes.items()", "ValueError"
        checks = [f"{key} == {name}" for key, name in zip(keys, names)]  # noqa: B905 - equally long
    checks += [f"type({value}) is {kind.__name__}" for value, kind in zip(values, kinds)]  # noqa: B905 - equally long
    size = " + ".join(["size", *(f"len({text})" for text in texts)]) + ", " if texts else ""
    packing = f"pack0(first, {size}{_HEADER_VALUES}, "
    packs = ["pack0"]
    for constant, value in zip_longest(constants, values):
        if value in texts:
            packs.append(f"pack{len(packs)}")
            packing += f"{constant}, len({value})) + {value} + {packs[-1]}("
        else:
            packing += f"{constant}, {value}, " if value else f"{constant}, "
    if packing.endswith("("):
        packing = packing.removesuffix(f" + {packs.pop()}(")
    else:
        packing += ")"
    source = f"""
def maker(first, size, names, packs, constants):
    {"".join(f"{name}, " for name in names)}*_, = names
    {", ".join(packs)}, = packs
    {", ".join(constants)}, = constants
    def packer(stream, substream, start, end, attributes):
        {plain}
        try:
            {reading}
        except {missing}:
            return None
        if not ({" and ".join(checks) or "True"}):
            return None
        {"".join(f"{text} = {spelled.format(text)}; " for text, spelled in texts.items())}
        number = next(stream.counter)
        try:
            return {packing}
        except error:
            raise MisfitError(number) from None
    return packer
"""
    known: dict[str, Any] = {"error": error, "MisfitError": MisfitError}
    exec(source, known)  # noqa: S102 - see above
    maker: Callable[..., Packer] = known["maker"]
    return maker
