"""Find plug-ins: formats that other distributions define as entry points of the group `tailrace.formats`.

The object of an entry point is a `decoding.contract.Format`. A plug-in that cannot be imported or does not obey the
contract is refused. `importlib.metadata` is slow, and imported only if there is a plug-in."""

from __future__ import annotations

import os
import re
import sys
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import msgspec

from tailrace.decoding.contract import Decoder, Format
from tailrace.decoding.guard import ContractError, check_answer, guarded, text_of
from tailrace.filesystem import spelled

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "tailrace.formats"

NAME = re.compile("[a-z][a-z0-9_]{0,30}")
"""Pattern of the names of formats, dialects, flaws and reasons. They become values of columns and labels of metrics."""

WORDS_MAX = 100
"""Maximum number of flaws, reasons and dialects of a format. Flaws and reasons may become time series of metrics."""

TRANSPORTS = frozenset({"tail", "tcp", "udp", "unix"})
UNSUPPORTED = {
    "format": ("whole", "acknowledge", "encoder"),
    "decoder": ("blocks", "take_slow", "processes", "pieces"),
    "files": ("pieces",),
}
"""Attributes that only Tailrace's own formats, their decoders and their `Files` may have."""

_Size = Annotated[int, msgspec.Meta(ge=1)]
_LIMIT = 4096
_SAMPLES = (b"", b"\n", b"{}\n", b"\0" * 600, bytes(range(256)) * 40)
"""Inputs that a plug-in's decoder must decode without an error."""
_PATHS = ("/run/trace", "/run/trace.gz", "/trace", "/run/.hidden", "/run/a b\udcff.x")


class Refused(NamedTuple):
    """A plug-in that Tailrace does not use. `name` is "" if the entry points of the distribution cannot be read."""

    name: str
    distribution: str
    problem: str

    def __str__(self) -> str:
        what = f"format {self.name!r}" if self.name else "each format"
        return f"{what} of {self.distribution} is refused: {self.problem}"


def load(own: Collection[str]) -> tuple[dict[str, Format], list[Refused]]:
    """Return the formats of all plug-ins by name, and the refused plug-ins. `own` has the names of Tailrace's own
    formats."""
    formats: dict[str, Format] = {}
    files = [*_metadata(sys.path)]
    entries, refused = _entries(files) if files else ([], [])
    counts = Counter(name for name, _, _ in entries)
    for name, distribution, entry in sorted(entries, key=lambda found: found[:2]):
        try:
            if name in own:
                raise ContractError("Tailrace has a format of this name")  # noqa: TRY301
            if counts[name] > 1:
                raise ContractError("several distributions define this name; uninstall all but one")  # noqa: TRY301
            formats[name] = checked(name, entry.load())
        except ContractError as error:
            refused.append(Refused(name, distribution, str(error)))
        except (Exception, SystemExit) as error:  # noqa: BLE001 - foreign code may raise anything
            refused.append(Refused(name, distribution, text_of(error)))
    return formats, refused


def checked(name: str, format_: object) -> Format:
    """Test a plug-in's format with samples, and return the format wrapped in guards (see `guard`). Raise ContractError
    for a broken rule."""
    if not isinstance(format_, Format):
        raise ContractError(
            f"it is a {type(format_).__name__}, not a tailrace.decoding.contract.Format"
        )
    decoder = format_.decoder(_LIMIT, None)
    for problem in _problems(name, format_, decoder):
        raise ContractError(problem)
    safe = guarded(format_, decoder)
    for sample in _SAMPLES:
        # Decode with a new decoder, and continue from its state with another one.
        first: Any = safe.decoder(_LIMIT, None)
        first.feed(sample)
        second: Any = safe.decoder(_LIMIT, first.state)
        second.give_up()
        second.end()
        if error := first.error or second.error:
            inputs = f"the {len(sample)} bytes {sample[:8]!r}…"
            raise ContractError(f"its decoder fails with {inputs}: {error}")
    for path in _PATHS:
        for of in ("stream", "documents", "described", "copy", "writer"):
            check_answer(of, getattr(format_.files, of)(path))
        check_answer("group", format_.files.group(spelled(path)))
        for sample in _SAMPLES:
            check_answer("recognises", format_.files.recognises(path, sample[:_LIMIT]))
    return safe


@cache
def absent(name: str) -> Format:
    """Return a substitute for the format of a plug-in that is not available. The substitute's decoder returns all bytes
    as malformed."""

    def decoder(limit: int, state: object) -> Decoder:  # noqa: ARG001 - the decoder of `Format`
        raise ContractError(
            f"the format {name!r} is not installed, or is refused: see `tailrace check`"
        )

    nothing = Format(
        name=name,
        decoder=decoder,
        state_type=msgspec.Struct,
        flaws=frozenset(),
        malformed=frozenset(),
    )
    return guarded(nothing, None)


def _problems(name: str, format_: Format, decoder: Decoder) -> Iterator[str]:
    """Yield a text for each attribute of a plug-in's format that breaks a rule."""
    if format_.name != name:
        yield f"its `name` is {format_.name!r}; it must be the name of the entry point"
    if not NAME.fullmatch(name):
        yield f"its name must match {NAME.pattern}"
    if not {"tail"} <= {*format_.transports} <= TRANSPORTS:
        yield f"`transports` must contain tail, and may contain {', '.join(sorted(TRANSPORTS))}"
    words = [*format_.flaws, *format_.malformed, *format_.dialects]
    if wrong := [word for word in words if not NAME.fullmatch(word)]:
        yield f"flaws, reasons and dialects must match {NAME.pattern}; not {wrong[0]!r}"
    if len(words) > WORDS_MAX:
        yield f"it has {len(words)} flaws, reasons and dialects; at most {WORDS_MAX} are allowed"
    bits = format_.counter_bits
    if bits is not None and bits not in range(1, 65):
        yield f"`counter_bits` must be None or 1 to 64; not {bits!r}"
    yield from _wrong_values(
        ("document_max", format_.files.document_max, _Size), ("suffix", format_.suffix, str)
    )
    for of, given in (("format", format_), ("decoder", decoder), ("files", format_.files)):
        for each in UNSUPPORTED[of]:
            if getattr(given, each, None) is not None:
                yield f"`{each}` of a {of} is only for formats of Tailrace itself"


def _wrong_values(*attributes: tuple[str, object, Any]) -> Iterator[str]:
    """Yield a text for each attribute (name, value, type) whose value has the wrong type."""
    for name, value, type_ in attributes:
        try:
            msgspec.convert(value, type_)
        except msgspec.ValidationError as error:
            yield f"`{name}` is {value!r}: {error}"


def _metadata(path: Iterable[str]) -> Iterator[str]:
    """Yield the path of `entry_points.txt` for each distribution in a search path that may have plug-ins."""
    for directory in path:
        try:
            names = os.listdir(directory or ".")  # noqa: PTH208 - faster than pathlib
        except OSError:
            continue
        for name in names:
            if name.endswith((".dist-info", ".egg-info")):
                file = f"{directory or '.'}/{name}/entry_points.txt"
                with suppress(OSError), open(file, "rb") as opened:  # noqa: PTH123 - faster than pathlib
                    if GROUP.encode() in opened.read():
                        yield file


def _entries(files: Iterable[str]) -> tuple[list[tuple[str, str, EntryPoint]], list[Refused]]:
    """Return the entry points of plug-ins with name and distribution, and the distributions that cannot be read."""
    from importlib.metadata import Distribution  # noqa: PLC0415 - takes 50 ms, and few need it

    entries: list[tuple[str, str, EntryPoint]] = []
    refused: list[Refused] = []
    seen: set[str] = set()
    for file in files:
        # Read the distribution's name and version from the directory's name, NAME-VERSION.dist-info, because the file
        # METADATA with both may be missing.
        directory = Path(file).parent
        name, _, version = directory.stem.partition("-")
        distribution = f"{name} {version}".strip()
        if (key := re.sub("[_.]+", "_", name).lower()) in seen:
            continue  # Skip this distribution: Python imports another one of the same name, which comes first in the search path.
        seen.add(key)
        try:
            found = Distribution.at(directory).entry_points.select(group=GROUP)
        except Exception as error:  # noqa: BLE001 - the parser does not state what it raises
            problem = f"its entry_points.txt cannot be read: {text_of(error)}"
            refused.append(Refused("", distribution, problem))
        else:
            entries += [(entry.name, distribution, entry) for entry in found]
    return entries, refused
