"""Legal spellings of files with a JSON object a line: what filters and other writers make of a tracer's lines."""

from __future__ import annotations

import json
import random
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


def respelled(data: bytes, rng: random.Random) -> bytes:
    """Return lines of which some are spelled in another way, by chance. A line that is no JSON object stays as it is."""
    found = []
    for line in data.split(b"\n")[:-1]:
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            value = None
        if not isinstance(value, dict) or rng.random() < 0.5:
            found.append(line + b"\n")
            continue
        spell = rng.choice([*SPELLINGS.values(), *COMMAS.values()])
        found.append(spell([line.decode()]))
    return b"".join(found) + data[data.rfind(b"\n") + 1 :]
