"""Legal spellings of files with a JSON object a line: what filters and other writers make of a tracer's lines."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
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
}

_TEXT = re.compile(r'"(?:name|description)":"(?=[^"\\])')
_LETTER = re.compile(r'("name":")([A-Za-z0-9])')
_NUMBERS = re.compile(r'"(id|pid|tid|ts|dur)":(-?[0-9]+)')
_IDS = re.compile(r'"(id|record_id|parent_id)":([0-9]+)')
_ESCAPED = r"a \"b\" C:\\x \/ caf\u00e9 \ud83d\ude00 "


def _inserted(before: str, text: str) -> Spell:
    """Insert a text behind the first place of `before` in each line that has it."""
    return _each(lambda line: line.replace(before, before + text, 1))


def _substituted(pattern: re.Pattern[str], text: str | Callable[[re.Match[str]], str]) -> Spell:
    return _each(lambda line: pattern.sub(text, line))


def _some(spell: Spell) -> Spell:
    """Spell each tenth line."""
    return lambda lines: b"".join(
        spell([line]) if i % 10 == 9 else f"{line}\n".encode(errors="surrogatepass")
        for i, line in enumerate(lines)
    )


def _merged(lines: list[str]) -> bytes:
    """Let the first half of the lines come in turn with those of a second process."""
    others = (line.replace('"pid":', '"pid":1', 1) for line in lines)
    pairs = zip(lines[: len(lines) // 2], others, strict=False)
    return "".join(f"{line}\n{other}\n" for line, other in pairs).encode()


_unicode = _substituted(_LETTER, lambda found: f"{found[1]}\\u{ord(found[2]):04x}")
OF_FORMAT: dict[str, dict[str, Spell]] = {
    "dftracer": COMMAS
    | {
        "escapes in names": _substituted(_TEXT, lambda found: found[0] + _ESCAPED),
        "letters as \\u": _unicode,
        "escapes in arguments": _inserted('"args":{', f'"said":"{_ESCAPED}",'),
        "escapes in each tenth line": _some(_inserted('"args":{', f'"said":"{_ESCAPED}",')),
        "unknown members": _inserted("{", '"host":"n1","more":{"x":[1,true]},'),
        "unknown members in each tenth line": _some(_inserted("{", '"more":{"x":[1,true]},')),
        "nested arguments": _inserted('"args":{', '"a":{"b":[1,{"c":null}]},"d":true,'),
        "numbers in quotes": _substituted(_NUMBERS, r'"\1":"\2"'),
        "two processes in turn": _merged,
    },
    "jets": {
        "escapes in names and descriptions": _substituted(_TEXT, lambda found: found[0] + _ESCAPED),
        "letters as \\u": _unicode,
        "escapes in data": _inserted('"data":{', f'"said":"{_ESCAPED}",'),
        "escapes in each tenth line": _some(_substituted(_TEXT, lambda found: found[0] + _ESCAPED)),
        "unknown members": _inserted("{", '"host":"n1","more":{"x":[1,true]},'),
        "ids in quotes": _substituted(_IDS, r'"\1":"\2"'),
    },
}
"""The spellings that only some formats have."""


def respelled(data: bytes, rng: random.Random) -> bytes:
    """Return lines of which some are spelled in another way, by chance. A line that is no JSON object stays as it is."""
    found = []
    spellings = [*SPELLINGS.values(), *OF_FORMAT["dftracer"].values(), *OF_FORMAT["jets"].values()]
    spellings.remove(_merged)
    for line in data.split(b"\n")[:-1]:
        try:
            text = line.decode(errors="surrogatepass")
            value = json.loads(text)
        except (ValueError, RecursionError):
            value = None
        if not isinstance(value, dict) or rng.random() < 0.5:
            found.append(line + b"\n")
            continue
        spell = rng.choice(spellings)
        found.append(spell([text]))
    return b"".join(found) + data[data.rfind(b"\n") + 1 :]
