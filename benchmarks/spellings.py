"""Spell files with one JSON object a line in other legal ways.

Filters and other programs change a tracer's lines in such ways.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from decimal import Decimal
from functools import partial

Spell = Callable[[list[str]], bytes]


def _each(spell: Callable[[str], str]) -> Spell:
    return lambda lines: "".join(f"{spell(line)}\n" for line in lines).encode(
        errors="surrogatepass"
    )


def _dumped(
    line: str, separators: tuple[str, str] | None = None, *, sort_keys: bool = False
) -> str:
    return json.dumps(
        json.loads(line), ensure_ascii=False, separators=separators, sort_keys=sort_keys
    )


def _reversed(line: str) -> str:
    return json.dumps(_turned(json.loads(line)), separators=(",", ":"), ensure_ascii=False)


def _turned(value: object) -> object:
    if isinstance(value, dict):
        return {key: _turned(value[key]) for key in reversed(value)}
    return value


def _grouped(lines: list[str], count: int, form: str, separator: str = ",") -> bytes:
    """Join each `count` lines with `separator`, and format each group with `form`. Return all groups."""
    groups = (lines[at : at + count] for at in range(0, len(lines), count))
    return "".join(form.format(separator.join(group)) for group in groups).encode(
        errors="surrogatepass"
    )


SPELLINGS: dict[str, Spell] = {
    "as it is": _each(str),
    "json.dumps": _each(_dumped),
    "json.dumps with sorted keys": _each(partial(_dumped, sort_keys=True)),
    "jq -c": _each(partial(_dumped, separators=(",", ":"))),
    "jq -cS": _each(partial(_dumped, separators=(",", ":"), sort_keys=True)),
    "keys in reverse": _each(_reversed),
    "tabs": _each(partial(_dumped, separators=("\t,\t", "\t:\t"))),
    "CRLF": lambda lines: "".join(f"{line}\r\n" for line in lines).encode(errors="surrogatepass"),
    "space around lines": _each("\t  {} ".format),
    "blank lines": lambda lines: "".join(f"\n \n{line}\n" for line in lines).encode(
        errors="surrogatepass"
    ),
}
COMMAS: dict[str, Spell] = {
    "array": lambda lines: ("[\n" + ",\n".join(lines) + "\n]\n").encode(errors="surrogatepass"),
    "array with commas first": lambda lines: ("[\n " + "\n, ".join(lines) + "\n]\n").encode(
        errors="surrogatepass"
    ),
    "commas behind": _each("{},".format),
    "array on one line": lambda lines: _grouped(lines, len(lines), "[{}]\n"),
    "json.dump of a list": lambda lines: _grouped(
        [_dumped(line) for line in lines], len(lines), "[{}]\n", ", "
    ),
    "ten records a line": lambda lines: _grouped(lines, 10, "{},\n"),
    "two records a line": lambda lines: _grouped(lines, 2, "{},\n"),
    "all records on one line": lambda lines: _grouped(lines, len(lines), "{}\n"),
}

_KEY = re.compile(r'(?<=[{,])"([A-Za-z])(?=\w*":)')
_INTEGERS = re.compile(r'"(id|pid|tid|ts|dur|ph|clk|record_id|parent_id)":(-?[0-9]+)\b')
_TIME_OR_THREAD = re.compile(r'(?<="(?:tid|clk)":)[0-9]+')
_TEXT = re.compile(r'"(?:name|description)":"(?=[^"\\])')
_LETTER = re.compile(r'("name":")([A-Za-z0-9])')
_NUMBERS = re.compile(r'"(id|pid|tid|ts|dur)":(-?[0-9]+)')
_IDS = re.compile(r'"(id|record_id|parent_id)":([0-9]+)')
_ESCAPED = r"a \"b\" C:\\x \/ caf\u00e9 \ud83d\ude00 "


def _inserted(before: str, text: str) -> Spell:
    """Insert a text after the first occurrence of `before` in each line that contains it."""
    return _each(lambda line: line.replace(before, before + text, 1))


def _substituted(pattern: re.Pattern[str], text: str | Callable[[re.Match[str]], str]) -> Spell:
    return _each(lambda line: pattern.sub(text, line))


def _some(spell: Spell) -> Spell:
    """Respell each tenth line, and leave the others unchanged."""
    return lambda lines: b"".join(
        spell([line]) if i % 10 == 9 else f"{line}\n".encode(errors="surrogatepass")
        for i, line in enumerate(lines)
    )


def _merged(lines: list[str]) -> bytes:
    """Merge the first half of the lines with lines of a second process, in turns."""
    others = (line.replace('"pid":', '"pid":1', 1) for line in lines)
    pairs = zip(lines[: len(lines) // 2], others, strict=False)
    return "".join(f"{line}\n{other}\n" for line, other in pairs).encode()


_unicode = _substituted(_LETTER, lambda found: f"{found[1]}\\u{ord(found[2]):04x}")


def _small(spell: Callable[[str], str]) -> Callable[[re.Match[str]], str]:
    """Change the spelling of integers up to 2^53, which JavaScript represents exactly."""
    return lambda found: (
        f'"{found[1]}":{spell(found[2]) if abs(int(found[2])) <= 2**53 else found[2]}'
    )


def _told(line: str, arguments: str) -> str:
    """Return an event with further arguments. Lines of metadata have their own ones."""
    return line if '"ph":4' in line else line.replace('"args":{', f'"args":{{{arguments}', 1)


NUMBERS: dict[str, Spell] = {
    "letters of keys as \\u": _substituted(_KEY, lambda found: f'"\\u{ord(found[1]):04x}'),
    "floats for integers": _substituted(_INTEGERS, _small("{}.0".format)),
    "exponents": _substituted(_INTEGERS, _small(lambda text: f"{Decimal(text).normalize():E}")),
    "negative zeros": _substituted(_TIME_OR_THREAD, "-0"),
    "deep members": _inserted("{", f'"deep":{"[" * 40}{"]" * 40},'),
}
WIDER: dict[str, Spell] = {
    f"{count} further members": _inserted(
        "{", "".join(f'"field_{number}":{number},' for number in range(count))
    )
    for count in (50, 200)
}
"""Spellings that make a record several times as long. Their cost counts for each byte."""
OF_FORMAT: dict[str, dict[str, Spell]] = {
    "dftracer": COMMAS
    | NUMBERS
    | WIDER
    | {
        "escapes in names": _substituted(_TEXT, lambda found: found[0] + _ESCAPED),
        "letters as \\u": _unicode,
        "escapes in arguments": _inserted('"args":{', f'"said":"{_ESCAPED}",'),
        "escapes in each tenth line": _some(_inserted('"args":{', f'"said":"{_ESCAPED}",')),
        "unknown members": _inserted("{", '"host":"n1","more":{"x":[1,true]},'),
        "unknown members in each tenth line": _some(_inserted("{", '"more":{"x":[1,true]},')),
        "nested arguments": _inserted('"args":{', '"a":{"b":[1,{"c":null}]},"d":true,'),
        "numbers in quotes": _substituted(_NUMBERS, r'"\1":"\2"'),
        "numbers in quotes, names and hashes": _each(
            lambda line: _told(_NUMBERS.sub(r'"\1":"\2"', line), '"fname":"/a","hostname":"n1",')
        ),
        "no category": _substituted(re.compile(r'"cat":"[A-Z]\w*",'), ""),
        "types in quotes": _substituted(re.compile(r'"type":([0-9]+)'), r'"type":"\1"'),
        "hashes as \\u": _substituted(
            re.compile(r'(hash":")(\w)'), lambda found: f"{found[1]}\\u{ord(found[2]):04x}"
        ),
        "a file without a hash": _each(lambda line: _told(line, '"fhash":null,')),
        "two processes in turn": _merged,
    },
    "jets": NUMBERS
    | WIDER
    | {
        "escapes in names and descriptions": _substituted(_TEXT, lambda found: found[0] + _ESCAPED),
        "letters as \\u": _unicode,
        "escapes in data": _inserted('"data":{', f'"said":"{_ESCAPED}",'),
        "escapes in each tenth line": _some(_substituted(_TEXT, lambda found: found[0] + _ESCAPED)),
        "unknown members": _inserted("{", '"host":"n1","more":{"x":[1,true]},'),
        "ids in quotes": _substituted(_IDS, r'"\1":"\2"'),
        "ids in quotes as \\u": _substituted(
            re.compile(r'"(id|record_id|parent_id)":([0-9])([0-9]*)'),
            lambda found: f'"{found[1]}":"\\u{ord(found[2]):04x}{found[3]}"',
        ),
        "ids of 64 bits": _substituted(
            _IDS, lambda found: f'"{found[1]}":{int(found[2]) | 1 << 63}'
        ),
        "types as \\u": _substituted(
            re.compile(r'"type":"(\w)'), lambda found: f'"type":"\\u{ord(found[1]):04x}'
        ),
    },
}
"""The spellings that only some formats have."""


_JOINTS = (b",", b", ", b" ,\t\r", b",,", b"],[", b"]\t[[", b"]", b"[", b" ", b"", b"\x1a,")
"""Texts that `respelled` writes between two records on one line. Only some of them are legal there."""


def respelled(data: bytes, rng: random.Random) -> bytes:
    """Return the lines, of which some, chosen at random, are spelled in another way or joined with the next line.

    A line that is no JSON object stays unchanged.
    """
    found = []
    spellings = [*SPELLINGS.values(), *OF_FORMAT["dftracer"].values(), *OF_FORMAT["jets"].values()]
    spellings.remove(_merged)
    *lines, rest = data.split(b"\n")
    for number, line in enumerate(lines, 1):
        try:
            text = line.decode(errors="surrogatepass")
            value = json.loads(text)
        except (ValueError, RecursionError):
            value = None
        if not isinstance(value, dict) or rng.random() < 0.5:
            found.append(line + b"\n")
            continue
        spelled = rng.choice(spellings)([text])
        if number < len(lines) and rng.random() < 0.3:  # join the line with the next one
            spelled = spelled.removesuffix(b"\n") + rng.choice(_JOINTS)
        found.append(spelled)
    return b"".join(found) + rest
