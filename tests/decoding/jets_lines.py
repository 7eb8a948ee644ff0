"""Make JETS lines from a seed. Most of them are usual. Others have odd keys, values or white space."""

from __future__ import annotations

import random

HEADER = b'{"type":"header","version":"2.0","metadata":{}}\n'
FOOTER = b'{"type":"footer","total_events":1}\n'

CLKS = ("0", "7", "-0", "-1", "01", "1.0", "1e3", "9223372036854775807", "9223372036854775808", "-9223372036854775808",
        "-9223372036854775809", "99999999999999999999", "123456789012345678901", "null", '"7"', "-", "+1", "")  # fmt: skip
IDS = (*CLKS, "18446744073709551615", "18446744073709551616", "00", "[1]", "true")
STRINGS = ('""', '"d"', '"a text of more than eight"', r'"\""', r'"\\"', r'"\n\t\r\b\f"', r'"\/"', r'"\u0041"', r'"\u00e9"',
           r'"\ud83d\ude00"', r'"\ud800"', r'"\x"', r'"\u12"', '"é電😀"', '"12345678"', '"\x7f"', '"\x1f"', '"tab\t"', "5", "null",
           '"open', "'s'")  # fmt: skip
VALUES = (*STRINGS, "0", "-0", "-0.0", "1e5", "1E+05", "1.", ".5", "-", "1e", "NaN", "Infinity", "-Infinity", "true", "false",
          "null", "nul", "tru", "{}", "[]", "{ }", "[ ]", '{"a":1}', '{"a":[1,{"b":null}],"a":2}', "[1,]", "{,}", '{"a"}', '{"a":}',
          '{"a":1,}', "[1 2]", "[[[[]]]]", "[" * 70 + "]" * 70, "[" * 127 + "]" * 127, "[" * 130 + "]" * 130,
          '{"a":' * 66 + "1" + "}" * 66, "[}", "{]", '{"k":"\\ud800"}', '["\x01"]', '{1:2}', "1" * 30)  # fmt: skip
KEYS = ("clk", "type", "name", "record_type", "id", "parent_id", "record_id", "description", "data", "x", "_vendor_x", "$x", "",
        "é", r"\u0069d", r"a\"b", "descriptiom", "datb", "ie", "typf", "clj", "record_ie", "parent_ie", "record_typf")  # fmt: skip
SHAPES = {
    "record": ("clk", "type", "name", "record_type", "id", "parent_id", "description", "data"),
    "record_end": ("clk", "type", "record_id"),
    "event": ("clk", "type", "name", "record_id", "description"),
    "annotation": ("type", "name", "record_id", "description", "data"),
}
TYPES = (*SHAPES, "header", "footer", "note", "records", "")


def lines(rng: random.Random) -> bytes:
    """Return some JETS lines, mostly after a header."""
    some = [_line(rng) for _ in range(rng.randrange(1, 12))]
    if rng.random() < 0.05:
        some.insert(
            rng.randrange(len(some)), rng.choice((HEADER, FOOTER, b"\n", b" \r\n", b"\0\0"))
        )
    return (HEADER if rng.random() < 0.95 else b"") + b"".join(some)


def _line(rng: random.Random) -> bytes:
    kind = rng.choice(tuple(SHAPES))
    keys = list(SHAPES[kind])
    odd = rng.random() < 0.15
    if odd or rng.random() < 0.2:
        rng.shuffle(keys)
    if odd and rng.random() < 0.4:
        del keys[rng.randrange(len(keys))]
    members = [(key, _value(rng, key, kind, odd=odd and rng.random() < 0.4)) for key in keys]
    if rng.random() < 0.15:
        for _ in range(rng.choice((1, 1, 2, 40))):
            key = f"k{rng.randrange(50)}" if rng.random() < 0.6 else rng.choice(KEYS)
            members.insert(
                rng.randrange(len(members) + 1),
                (key, _value(rng, key, kind, odd=rng.random() < 0.3)),
            )
    space = _spaces(rng)
    body = ",".join(
        f'{space()}"{key}"{space()}:{space()}{value}{space()}' for key, value in members
    )
    end = rng.choice(("\n",) * 20 + ("\r\n", " \n", "", "\n\n", ",\n"))
    return f"{{{body}}}{end}".encode()


def _spaces(rng: random.Random):
    if rng.random() < 0.7:
        return lambda: ""
    return lambda: rng.choice(("", "", " ", "\t", "  ", "\r"))


def _value(rng: random.Random, key: str, kind: str, *, odd: bool) -> str:
    if key == "type":
        return f'"{rng.choice(TYPES) if odd else kind}"'
    if key in {"clk", "id", "parent_id", "record_id"}:
        choices = CLKS if key == "clk" else IDS
        return (
            rng.choice((*choices, '"rec_1"'))
            if odd
            else str(rng.choice((1, 2, rng.randrange(2**63))))
        )
    if key in {"name", "record_type", "description"}:
        return rng.choice(STRINGS) if odd else f'"{"x" * rng.randrange(12)}{rng.randrange(9)}"'
    return (
        rng.choice(VALUES)
        if odd
        else rng.choice(('{"pc":"0x1","n":[1,-2.5]}', "1", '"text"', "null", "{}"))
    )
