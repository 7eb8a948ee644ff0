"""Compare the kernels with the Python decoders on inputs that are made from a seed: records of a format that are then
damaged and cut.

    python -m tests.decoding.kernel_inputs heph 1000000 --seed 7 --library DIRECTORY

With `--library`, load the kernels that were built into this directory, for example with sanitizers (`make sanitize`).
Print the number of inputs and of records, and how many of the records a kernel has read.
"""

from __future__ import annotations

import argparse
import math
import random
import re
import struct
import sys
from collections.abc import Callable, Iterator
from functools import cache
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_file_location
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from benchmarks.spellings import respelled
from tests.decoding.dftracer_inputs import dftracer
from tests.decoding.et3_lines import et3
from tests.decoding.jets_lines import lines

VECTORS = Path(__file__).parents[1] / "vectors"
LIMITS = (64, 200, 4096, 1 << 16)
BYTES = (
    b"\x00\x01\x02\x03\x04\x05\x1f\x20\x22\x24\x5c\x7f\x80\x81\x84\xbf\xc1\xc3\xe2\xed\xf0\xf4\xff"
)
"""Bytes with a special meaning in a format: codes of types, control characters, quotes, first bytes of UTF-8 sequences.
"""

TEXTS = (
    b"", b"n", b"step", b"$n", b"tailrace.counter", b"a name that is longer than eight", b"\x00\x1f\n\"\\/\x7f",
    "Größe 電 😀".encode(), b"12345678", b"\xed\xa0\x80", b"\xff", b"\xc3", b"\xf0\x9f\x98", b"\xe2\x82\xacx",
)  # fmt: skip
NUMBERS = (0, 1, 9, 10, 99, 2**31, 2**32 - 1, 2**53, 2**63 - 1, 2**63, 2**64 - 1, 10**19)
FLOATS = (
    0.0,
    -0.0,
    0.1,
    1.0,
    1e16,
    1e15,
    1e-4,
    1e-5,
    5e-324,
    1.7976931348623157e308,
    math.inf,
    math.nan,
    1 / 3,
)


class Count(NamedTuple):
    inputs: int = 0
    records: int = 0
    rows: int = 0


def heph(rng: random.Random) -> bytes:
    """Return a few Heph packets. Most of them are usual events."""
    return b"".join(_event(rng) for _ in range(rng.randrange(1, 9)))


def _event(rng: random.Random) -> bytes:
    if rng.random() < 0.02:
        return struct.pack(">IIH", 0x75D11D4D, 23, 5) + b"epoch" + rng.randbytes(8)
    body = _string(rng) + b"".join(
        _attribute(rng) for _ in range(rng.choice((0, 0, 1, 1, 2, 3, 7)))
    )
    times = [rng.choice((rng.randrange(2**62), rng.choice(NUMBERS))) for _ in range(3)]
    stream = rng.choice((1, 2, rng.randrange(2**32)))
    return (
        struct.pack(">IIIIQQQ", 0xC1FC1FB7, 40 + len(body), stream, rng.randrange(2**32), *times)
        + body
    )


def _string(rng: random.Random) -> bytes:
    text = rng.choice(TEXTS) if rng.random() < 0.15 else b"x%d" % rng.randrange(1000)
    return struct.pack(">H", len(text)) + text


def _attribute(rng: random.Random) -> bytes:
    kind = rng.randrange(1, 5)
    name = _string(rng)
    if rng.random() < 0.03:
        return name + bytes((0x80 | kind, 0, 0))
    number = rng.choice((rng.randrange(2**64), rng.choice(NUMBERS)))
    float_ = rng.choice((rng.random(), rng.randrange(1000) / 8, rng.choice(FLOATS)))
    value = (
        struct.pack(">Q", number), struct.pack(">Q", number), struct.pack(">d", float_), _string(rng),
    )[kind - 1]  # fmt: skip
    return name + bytes((kind,)) + value


def ovni(rng: random.Random) -> bytes:
    """Return an ovni stream: a header, and events that are mostly usual and in order. Most begins have an end."""
    events, often, ends = _ovni_events()
    parts = [rng.choice((b"ovni\1\0\0\0",) * 30 + (b"ovni\0\0\0\1", b""))]
    clock, open_ = 1000, list[tuple[str, bytes]]()
    for _ in range(rng.choice((2, 10, 40))):
        if rng.random() < 0.02:
            parts += _late(clock, rng)
        clock += rng.choice((0, 1, 50)) - 30 * (rng.random() < 0.004)
        if open_ and rng.random() < 0.5:
            mcv, payload = open_.pop(-1 if rng.random() < 0.97 else 0)
        else:
            event = rng.choice(often if rng.random() < 0.7 else list(events.values()))
            mcv, payload = event.mcv, _payload(event, rng)
            if event.opens:
                open_.append((ends[event.begin], payload))
        if events[mcv].jumbo:
            payload += rng.choice((b"label\0", b"", b"\xff\0", b"x\0y"))
            head = struct.pack("<B3sqI", 0x13, mcv.encode(), clock, len(payload))
        else:
            head = struct.pack("<B3sq", max(len(payload) - 1, 0), mcv.encode(), clock)
        parts.append(head + payload)
    return b"".join(parts)


def _late(clock: int, rng: random.Random) -> Iterator[bytes]:
    """Yield late events between `OU[` and `OU]`. Their clocks are in order or not."""
    clocks = [clock - rng.randrange(9) for _ in range(rng.choice((1, 6, 20)))]
    if rng.random() < 0.5:
        clocks.sort()
    mcvs = [rng.choice(("KCO", "KCI", "VU[", "VU]", "OF[", "OHp", "VS@")) for _ in clocks]
    for mcv, at in [("OU[", clock), *zip(mcvs, clocks, strict=True), ("OU]", clock)]:
        yield struct.pack("<B3sq", 0, mcv.encode(), at)


def _payload(event: Any, rng: random.Random) -> bytes:
    layout = rng.choice(event.layouts["<"])
    some = (0, 1, 2, 3, 2**31 - 1)
    values = [rng.choice(some) for _ in layout.struct.unpack(bytes(layout.size))]
    return layout.struct.pack(*values) + b"\0" * (rng.random() < 0.02)


@cache
def _ovni_events() -> tuple[dict[str, Any], list[Any], dict[str, str]]:
    """Return three things: all events of ovni's table by MCV, the events that inputs have most often, and the MCV of
    the end for each begin.

    The table is imported here, not at the top, because the kernels may have to come from another directory first."""
    from tailrace.decoding.formats.ovni.table import EVENTS

    events = {event.mcv: event for event in EVENTS.values()}
    often = [e for e in events.values() if e.mcv[:2] in {"VT", "VU", "OM", "KC", "PP", "OU", "VA"}]
    return events, often, {e.begin: e.mcv for e in events.values() if e.opens is False}


def damaged(data: bytes, rng: random.Random) -> bytes:
    """Return the data with some bytes changed, added, removed or repeated."""
    changed = bytearray(data)
    for _ in range(rng.choice((0, 1, 1, 1, 2, 4))):
        if not changed:
            break
        at = rng.randrange(len(changed))
        match rng.randrange(7):
            case 0:
                changed[at] ^= 1 << rng.randrange(8)
            case 1 | 2:
                changed[at] = rng.choice(BYTES)
            case 3:
                changed[at] = (changed[at] + rng.choice((-1, 1))) % 256
            case 4:
                del changed[at : at + rng.randrange(1, 9)]
            case 5:
                changed[at:at] = rng.choice(TEXTS)
            case _:
                changed[at:at] = changed[at : at + rng.randrange(60)]
    return bytes(changed)


MAKERS: dict[str, Callable[[random.Random], bytes]] = {
    "dftracer": dftracer,
    "et3": et3,
    "heph": heph,
    "jets": lines,
    "ovni": ovni,
}


def inputs(format_: str, count: int, seed: int) -> Iterator[tuple[bytes, list[int], int]]:
    """Yield inputs of a format. Each comes with the positions at which it is cut, and with the limit of the decoder."""
    rng = random.Random(seed)
    vectors = [path.read_bytes() for path in sorted((VECTORS / format_).glob("*.in"))]
    for _ in range(count):
        data = MAKERS[format_](rng)
        if rng.random() < 0.2:
            source = rng.choice(vectors)
            at = rng.randrange(len(source) + 1)
            data += source[at : at + 400]
        if format_ in {"dftracer", "jets"} and rng.random() < 0.3:
            data = respelled(data, rng)
        data = damaged(data, rng)
        cuts = sorted(rng.randrange(len(data) + 1) for _ in range(rng.choice((0, 0, 1, 2))))
        yield data, cuts, rng.choice(LIMITS)


def compare(format_: str, count: int, seed: int) -> Count:
    """Compare kernel and Python decoder on `count` inputs. Raise AssertionError, which names the input, for the first
    difference.
    """
    records = rows = 0
    for data, cuts, limit in inputs(format_, count, seed):
        found = compare_input(format_, data, cuts, limit)
        records, rows = records + found.records, rows + found.rows
    return Count(count, records, rows)


def compare_input(format_: str, data: bytes, cuts: list[int], limit: int) -> Count:
    """Compare kernel and Python decoder on one input. Raise AssertionError, which names the input, if the records or
    the states of the decoders differ, or the rows of spans that the ingest makes from them.
    """
    from tailrace.decoding.formats import FORMATS
    from tailrace.rows.block import Block
    from tests.decoding import blockwise
    from tests.ingest.span_matching import Sides

    read, numbered = FORMATS[format_].decoder, FORMATS[format_].counter_bits is not None
    python, kernel, sides = read(limit, None), read(limit, None), Sides()
    records = rows = 0
    for begin, end in pairwise([0, *cuts, len(data)]):
        part = data[begin:end]
        process = blockwise.current(kernel)
        expected, units = python.feed(part), blockwise.units(kernel, part)
        got = blockwise.by_line(units, process)
        assert got == expected, (data.hex(), cuts, limit)
        assert kernel.state == python.state, (data.hex(), cuts, limit)
        if not numbered:
            sides.take(units)
        records += len(got)
        if len(part) % 2:  # each decoder continues from a checkpoint of the other
            python, kernel = (restored(format_, each, limit) for each in (kernel, python))
        rows += sum(unit.rows for unit in units if isinstance(unit, Block))
    assert kernel.end() == python.end(), (data.hex(), cuts, limit)
    if format_ == "heph":
        compare_datagrams(data, cuts)
    return Count(1, records, rows)


def restored(format_: str, decoder: Any, limit: int) -> Any:
    """Return a new decoder that continues from a checkpoint of `decoder`."""
    from tailrace.decoding.formats import FORMATS

    saved = msgspec.msgpack.encode(decoder.state)
    state = msgspec.msgpack.decode(saved, type=FORMATS[format_].state_type)
    return FORMATS[format_].decoder(limit, state)


def compare_datagrams(data: bytes, cuts: list[int]) -> None:
    """Raise AssertionError if kernel and Python return different numbers of datagrams with whole events.

    Datagrams end at the cuts, and before each event, before each second event or before each third event."""
    from tailrace.decoding.formats.heph import _of_events
    from tailrace.decoding.formats.heph._kernel import of_events

    events = [match.start() for match in re.finditer(b"\xc1\xfc\x1f\xb7", data)]
    ends = sorted({*events[:: 1 + len(cuts)], *cuts, len(data)} - {0})
    sizes = tuple(end - begin for begin, end in pairwise([0, *ends]))
    for first, begin in enumerate([0, *ends[:-1]]):
        given = (data, sizes, first, begin)
        assert of_events(*given) == _of_events(*given), (data.hex(), cuts, first)


def load_all(directory: Path) -> None:
    """Import all kernels from `directory` instead of the package."""
    from tailrace import kernels

    # some kernels import the kernels that follow them in this list
    for name in reversed(kernels.KERNELS):
        load(name, directory)


def load(name: str, directory: Path) -> None:
    """Import one kernel from `directory` instead of the package."""
    module = "tailrace." + name.replace("/", ".")
    (path,) = (p for s in EXTENSION_SUFFIXES if (p := directory / f"tailrace/{name}{s}").is_file())
    spec = spec_from_file_location(module, path, loader=ExtensionFileLoader(module, str(path)))
    assert spec is not None
    assert spec.loader is not None
    sys.modules[module] = module_from_spec(spec)
    spec.loader.exec_module(sys.modules[module])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("format", choices=MAKERS)
    parser.add_argument("count", type=int)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--library", type=Path)
    options = parser.parse_args()
    if options.library:
        load_all(options.library)
    inputs_, records, rows = compare(options.format, options.count, options.seed)
    sys.stdout.write(
        f"{inputs_} inputs, {records} records, {rows} of them from blocks: none differs\n"
    )


if __name__ == "__main__":
    main()
