"""Check the guarantees of `decoding/contract.py` for each format, with all vectors and the kit for authors of formats
(`tailrace.testing`). No test is specific to one format.

A vector is an input, `tests/vectors/FORMAT/CASE.in`, and the records that it must give, `CASE.expect.jsonl`. The limit
of a record is 64 KiB, or N bytes for a vector named CASE.limitN.in. The first line of the expected records names the
fields. Each further line is one record, without the nulls at its end. The bytes of a malformed record are left out; a
test compares them with the input. If the vector is a file, `CASE.beside.json` has its path, its dialect if this is
given, and its documents as pairs of name and text. The decoder gets the documents before the first byte. `paths.jsonl`
lists paths of files, and what a format derives from each path.

A format with a kernel is tested twice: with its Python decoder, and with the kernel (`blockwise.py`). The expected
records are the same, and each decoder also continues from the state of the other. Each of the two is then tested at
every third position only. The Python decoder is tested at all positions if kernels are off, as in `.ci/run` on every
second day. With `--slow`, both are. Cut, truncated and damaged input is decoded in one of the two ways, and in the next
turn in the other (`tests/forms.py`).

A test runs with all vectors of a format, and names the vectors that fail. The environment variable `VECTOR=busy`
selects the vectors whose names contain this text. `pytest --update-vectors` writes the expected records again; read the
difference before you commit it.

Without `--slow`, positions that behave alike are tested at their ends and at every eighth of them (`ends_of`):
positions between which a decoder returns nothing and only stores the bytes, and positions within one word, number or
run of zeros.

The vectors must reach the branches of `collector/tailrace/decoding`, so that each branch also gets damaged input: `make
coverage-decoding` (see `tests/decoding/coverage.py`).
"""

from __future__ import annotations

import functools
import inspect
import json
import os
import random
import re
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from tailrace.decoding.contract import (
    Acknowledgement,
    EndingDecoder,
    Files,
    Format,
    HoldingDecoder,
    SeparatingDecoder,
    SettlingDecoder,
)
from tailrace.decoding.formats import FORMATS, heph
from tailrace.model.record import Kind, Record
from tailrace.testing import (
    LIMITS,
    TraceSample,
    check_bytewise,
    check_cut,
    check_damaged,
    check_evicted,
    check_given_up,
    check_lacking,
    check_limit,
    check_noise,
    check_parts,
    check_resumed,
    check_settled,
    check_tiling,
    check_truncated,
    check_waiting,
    decode,
    noise,
    packed,
    spelled,
)
from tests.decoding.blockwise import blockwise
from tests.forms import is_long, this_turn

VECTORS = Path(__file__).parent.parent / "vectors"
SMALL, MIDDLE = 600, 1200
"""Sizes (bytes) up to which all positions of a vector are tested: `SMALL` without `--slow`, `MIDDLE` with `--slow`.
Vectors between these sizes take most of the time."""
WAYS = FORMATS | {
    f"{name}-kernel": format_ for name in FORMATS if (format_ := blockwise(FORMATS[name]))
}
"""The formats by name. A format with a kernel is there twice: with its Python decoder, and under `NAME-kernel` with its
kernel.
"""
LONG = settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
SHORT = settings(LONG, max_examples=8)
"""Settings for hypothesis in tests that run with each vector. Such tests also try each position of small vectors."""
IN_TWO_WAYS = 3
"""If a format is decoded in two ways, one of this number of positions is tested in each way. Records begin at multiples
of two or four, which this number does not divide.
"""
BYTES_MAX, PLACES_MIN = 100_000, 6
"""Limits of one test with one vector without `--slow`: the number of decoded bytes, but at least this number of
positions.
"""
ALIKE = re.compile(rb"[A-Za-z]+|[0-9]+|\0+|.", re.DOTALL)
"""Pattern of bytes whose damage or loss has much the same effect."""
SHORTER = 2
"""Without `--slow`, one of this number of randomly chosen positions is tested."""
STRETCH = 2000
"""Without `--slow`, number of bytes of a vector that are passed to a decoder one by one."""
CHOSEN = os.environ.get("VECTOR", "")


class Vector(TraceSample):
    """One vector: a sample of a format, and the file with its expected records."""

    def __init__(self, path: Path, way: str) -> None:
        case, _, limit = path.stem.partition(".limit")
        beside = path.with_suffix(".beside.json")
        self.beside = json.loads(beside.read_text(encoding="utf-8")) if beside.exists() else None
        about = self.beside or {"path": "", "documents": ()}
        super().__init__(
            WAYS[way],
            path.read_bytes(),
            int(limit or 64 * 1024),
            path=about["path"],
            dialect=about.get("dialect", "auto"),
            documents=[
                (name, text.encode(errors="surrogateescape")) for name, text in about["documents"]
            ],
        )
        self.way = way
        self.expectation = path.with_suffix(".expect.jsonl")
        self.name = f"{way}/{case}"
        self.in_two_ways = way.endswith("-kernel") or f"{way}-kernel" in WAYS

    @cached_property
    def silences(self) -> list[range]:
        """Ranges of positions in the input. Between the positions of a range, a decoder returns nothing and only stores
        the bytes.
        """
        decoder = self.decoder()
        begins, pending = [0], decoder.pending
        for i in range(len(self.data)):
            said = decoder.feed(self.data[i : i + 1])
            if said or decoder.pending != pending + 1:
                begins.append(i + 1)
            pending = decoder.pending
        return [range(*run) for run in zip(begins, [*begins[1:], len(self.data) + 1], strict=True)]

    @cached_property
    def words(self) -> list[range]:
        """Ranges of positions in the input. The bytes of a range are alike (`ALIKE`)."""
        return [range(*found.span()) for found in ALIKE.finditer(self.data)]


ALL_WAYS = [
    Vector(path, way)
    for way, format_ in WAYS.items()
    for path in sorted((VECTORS / format_.name).glob("*.in"))
]
ALL = [vector for vector in ALL_WAYS if vector.format is FORMATS[vector.format.name]]
WHOLE_IN_PYTHON = {"heph": heph._of_events}
"""The functions that compute `Format.whole` in Python, by format."""


def over(
    vectors: Sequence[Vector], *, one_way: bool = False
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that runs a test with each of the vectors. All vectors of a format and way of decoding run in
    one test, because there are too many for a test each.

    With `one_way`, a vector that is decoded in two ways is tested in one of them, and in the next turn in the other
    (`tests/forms.py`). With `--slow`, it is tested in both.
    """
    by_way = {way: [v for v in vectors if v.way == way and CHOSEN in v.name] for way in WAYS}
    if one_way and not is_long():
        by_way = {way: _in_turn(each) for way, each in by_way.items()}

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        def run(way: str, **given: object) -> None:
            failures = []
            for vector in by_way[way]:
                try:
                    test(vector, **given)
                except Exception as failure:  # noqa: BLE001 - raised below
                    failure.add_note(f"vector: {vector.name}")
                    failures.append(failure)
            if failures:
                raise ExceptionGroup(f"{len(failures)} of {len(by_way[way])} vectors", failures)

        functools.update_wrapper(run, test)
        asked = inspect.signature(test).parameters.values()
        asked = [each.replace(name="way") if each.name == "vector" else each for each in asked]
        run.__signature__ = inspect.Signature(asked)  # type: ignore[attr-defined]
        return pytest.mark.parametrize("way", [way for way in WAYS if by_way[way]])(run)

    return decorate


def _in_turn(vectors: list[Vector]) -> list[Vector]:
    """Return the vectors of a way of decoding that are tested in this way in this turn."""
    turn = this_turn()
    return [
        vector
        for place, vector in enumerate(vectors)
        if not vector.in_two_ways or (place + turn + vector.way.endswith("-kernel")) % 2
    ]


every = over(ALL_WAYS)
every_one_way = over(ALL_WAYS, one_way=True)
ending = over([vector for vector in ALL_WAYS if isinstance(vector.decoder(), EndingDecoder)])
settling = over(
    [
        vector
        for vector in ALL_WAYS
        if isinstance(vector.decoder(), SettlingDecoder)
        and not (vector.beside or {}).get("documents")
    ]
)
holding = over([vector for vector in ALL_WAYS if isinstance(vector.decoder(), HoldingDecoder)])
whole_events = over([vector for vector in ALL_WAYS if vector.format.whole])
every_format = pytest.mark.parametrize("format_", WAYS.values(), ids=WAYS)


def ends_of(runs: Iterable[range], first: int = 1) -> list[int]:
    """Return positions from ranges of positions: the first of each range, the last, and each eighth between them."""
    return sorted({place for run in runs for place in (*run[:first], *run[::8], run[-1])})


class Trials:
    """Chooses the positions and changes that a test tries with a vector. There are more of them with `--slow`."""

    def __init__(self, *, slow: bool) -> None:
        self._slow = slow

    def exhaustive(self, vector: Vector) -> bool:
        """Return whether a test tries each position of a vector, because the vector is small."""
        return len(vector.data) <= (MIDDLE if self._slow else SMALL)

    def some(self, vector: Vector, count: int, seed: int) -> list[int]:
        """Return randomly chosen positions before the end of a vector, unsorted."""
        size = len(vector.data)
        if not self._slow:
            count = min(count // SHORTER, max(PLACES_MIN, BYTES_MAX // (size or 1)))
        return self._thinned(vector, random.Random(seed).sample(range(size), min(size, count)))

    def every(self, vector: Vector, seed: int, runs: Callable[[], list[range]]) -> list[int]:
        """Return all positions of a small vector, including the end, or the ends of ranges of alike positions. For
        other vectors, return randomly chosen positions.
        """
        if not self.exhaustive(vector):
            return self.some(vector, 60, seed)
        places = [*range(len(vector.data) + 1)] if self._slow else ends_of(runs(), first=2)
        return self._thinned(vector, places)

    def stretch(self, vector: Vector, seed: int) -> range:
        """Return successive positions: all positions of a vector, or those of a part of a long vector."""
        size = len(vector.data)
        if self._slow or size <= STRETCH:
            return range(size)
        begin = random.Random(seed).randrange(size - STRETCH + 1)
        return range(begin, begin + STRETCH)

    def each(self, vector: Vector) -> list[int]:
        """Return the positions of all bytes of a small vector, or the ends of ranges of alike bytes. For other vectors,
        return none.
        """
        if not self.exhaustive(vector):
            return []
        places = [*range(len(vector.data))] if self._slow else ends_of(vector.words)
        return self._thinned(vector, places)

    def instead(self, old: int, position: int, rng: random.Random) -> list[bytes]:
        """Return byte strings that replace one byte: a byte with a special meaning, other bytes, and no byte. Without
        `--slow`, return one of these.
        """
        ways = [b'\n"\0'[position % 3 : position % 3 + 1], b"\xff", bytes([old ^ 1]), b""]
        return ways if self._slow else [ways[rng.randrange(len(ways))]]

    def chances(self, vector: Vector) -> settings:
        """Return hypothesis's settings, with the number of random examples for a vector."""
        if self._slow:
            return LONG
        return settings(SHORT, max_examples=3) if vector.in_two_ways else SHORT

    def _thinned(self, vector: Vector, places: list[int]) -> list[int]:
        """If a format is decoded in two ways, return only every third position. All positions are tested with `--slow`,
        or if kernels are off.
        """
        return places[:: 1 if self._slow or not vector.in_two_ways else IN_TWO_WAYS]


@pytest.fixture
def trials(request: pytest.FixtureRequest) -> Trials:
    return Trials(slow=request.config.getoption("--slow"))


@every_format
def test_every_format_has_small_vectors(format_: Format) -> None:
    sizes = [len(vector.data) for vector in ALL_WAYS if vector.format is format_]
    assert any(0 < size <= SMALL for size in sizes)


@every
def test_records_are_as_expected(vector: Vector, request: pytest.FixtureRequest) -> None:
    lines = spelled(vector.decode())
    if request.config.getoption("--update-vectors"):
        vector.expectation.write_text("\n".join(lines) + "\n", encoding="utf-8")
    assert lines == vector.expectation.read_text(encoding="utf-8").split("\n")[:-1]


@every
def test_records_tile_the_input(vector: Vector) -> None:
    check_tiling(vector.format, vector.decode(), vector.data)


@every_format
def test_reasons_are_just_those_the_vectors_show(format_: Format) -> None:
    """Each reason and flaw that a format declares must occur in the records of its vectors, and no other may occur."""
    vectors = [vector for vector in ALL_WAYS if vector.format is format_]
    records = [record for vector in vectors for record in vector.decode()]
    flaws = {record.flaw for record in records if record.kind != Kind.MALFORMED}
    assert flaws - {None} == format_.flaws
    assert {r.flaw for r in records if r.kind == Kind.MALFORMED} == format_.malformed


@every
def test_byte_by_byte_gives_the_same_records_at_the_same_time(
    vector: Vector, trials: Trials
) -> None:
    """A decoder returns each record as soon as its bytes have arrived, even if they arrive one by one."""
    # If a longer piece arrives at once, a decoder may know more, as the tests of cuts show. Therefore compare only at
    # positions between which the decoder returns nothing.
    small = trials.exhaustive(vector)
    compared = trials.every(vector, 14, lambda: vector.silences) if small else ()
    check_bytewise(vector, trials.stretch(vector, 14), compared)


@every_one_way
def test_any_cut_gives_the_same_records_of_damaged_input_too(
    vector: Vector, trials: Trials
) -> None:
    """The records of damaged input tile the input, too, and no decoder raises an exception."""
    size = len(vector.data)
    damaged = st.tuples(st.integers(0, max(size - 1, 0)), st.integers(0, 255))

    @trials.chances(vector)
    @given(
        damage=st.lists(damaged, max_size=8 if size else 0),
        cuts=st.lists(st.integers(0, size), max_size=20),
    )
    def check(damage: list[tuple[int, int]], cuts: list[int]) -> None:
        damaged = bytearray(vector.data)
        for position, value in damage:
            damaged[position] = value
        check_cut(vector, bytes(damaged), cuts)

    check()


@every
def test_a_decoder_restored_from_its_state_goes_on_the_same(vector: Vector, trials: Trials) -> None:
    for place in trials.every(vector, 7, lambda: vector.silences):
        check_resumed(vector, place)


@every
def test_a_decoder_restored_in_the_other_way_goes_on_the_same(
    vector: Vector, trials: Trials
) -> None:
    """A checkpoint that a kernel's decoder wrote can be read where no kernel is built, and the other way round."""
    others = [f for f in WAYS.values() if f.name == vector.format.name and f is not vector.format]
    for other in others:
        for place in trials.some(vector, 60, 13):
            check_resumed(vector, place, other)


@every
def test_a_state_may_leave_what_waits_out_and_get_it_back(vector: Vector, trials: Trials) -> None:
    """A checkpoint does so: it leaves the bytes of unfinished records to the spool. With these bytes, the state must be
    the same as before.
    """
    for place in trials.some(vector, 20, 9):
        check_waiting(vector, place)


@every
def test_what_is_pending_can_be_given_up_anywhere(vector: Vector, trials: Trials) -> None:
    for place in trials.some(vector, 40, 11):
        check_given_up(vector, place)


@holding
@pytest.mark.parametrize("share", [1, 8], ids=["all", "some"])
def test_state_may_give_way_anywhere(vector: Vector, share: int, trials: Trials) -> None:
    for place in {len(vector.data), *trials.some(vector, 10, 12)}:
        check_evicted(vector, place, share)


@every_one_way
def test_any_truncation_loses_only_the_tail(vector: Vector, trials: Trials) -> None:
    size = len(vector.data)
    for place in trials.every(vector, 8, lambda: [*vector.words, range(size, size + 1)]):
        check_truncated(vector, place)


@every_one_way
def test_each_byte_may_be_damaged_or_missing(vector: Vector, trials: Trials) -> None:
    rng = random.Random(10)
    for position in trials.each(vector):
        for instead in trials.instead(vector.data[position], position, rng):
            check_damaged(vector, position, instead)


@every_format
@pytest.mark.parametrize("limit", [128, 4096, 65536])
def test_noise_cut_two_ways_gives_the_same_records(format_: Format, limit: int) -> None:
    vectors = [vector.data for vector in ALL_WAYS if vector.format is format_]

    @LONG
    @given(seed=st.integers(0, 2**32), cuts=st.lists(st.integers(0, 20_000), max_size=30))
    def check(seed: int, cuts: list[int]) -> None:
        data = noise(vectors, random.Random(seed))
        check_noise(format_, data, [place for place in cuts if place < len(data)], limit)

    check()


@every_format
def test_a_decoder_can_be_fed_again_after_the_end(format_: Format) -> None:
    rng = random.Random(9)
    for vector in (vector for vector in ALL_WAYS if vector.format is format_ and vector.data):
        parts = [vector.data[: rng.randrange(len(vector.data))] for _ in range(3)]
        check_parts(vector, [*parts, vector.data])


@whole_events
def test_what_is_called_whole_events_is(vector: Vector) -> None:
    """The events that such datagrams hold may be decoded in one piece, wherever the datagrams are in the session."""
    whole = vector.format.whole
    assert whole
    in_python = WHOLE_IN_PYTHON[vector.format.name]
    for record in vector.decode():
        data = vector.data[record.offset : record.offset + record.size]
        for datagram in (data, data[:-1], data + b"\0", data * 2, b""):
            found = whole(datagram, (len(datagram),), 0, 0)
            assert in_python(datagram, (len(datagram),), 0, 0) == found
            if found:
                alone = decode(vector.decoder(), [datagram])
                after = [each._replace(offset=each.offset + len(datagram)) for each in alone]
                assert {Kind.MALFORMED, Kind.SESSION}.isdisjoint(each.kind for each in alone)
                both = decode(vector.decoder(), [datagram + datagram])
                assert packed(both) == packed([*alone, *after])


@every_format
def test_an_answer_to_a_client_is_one_whole_packet(format_: Format) -> None:
    if format_.acknowledge is None:
        return
    answer = Acknowledgement("ab" * 16, 7, {"1": 20, "4294967295": 0}, [("1", 3, 2)], goodbye=True)
    for packet in (
        format_.acknowledge(answer),
        format_.acknowledge(msgspec.structs.replace(answer, given_up={"1": 2}, uncounted=["9"])),
    ):
        (record,) = decode(format_.decoder(64 * 1024, None), [packet])
        assert (record.kind, record.size) == (Kind.SESSION, len(packet))


def told_of(format_: Format, path: str) -> dict[str, object]:
    """Return what a format derives from a path."""
    files = format_.files
    return {
        "path": path,
        "stream": files.stream(path),
        "documents": files.documents(path),
        "group": files.group(path),
        "copy": files.copy(path),
        "writer": files.writer(path),
    }


def paths_file(format_: Format) -> Path:
    return VECTORS / format_.name / "paths.jsonl"


def paths(format_: Format) -> list[str]:
    """Return the paths in the format's `paths.jsonl`, or an empty list if the format has no such file."""
    file = paths_file(format_)
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    return [json.loads(line)["path"] for line in lines]


@every_format
def test_paths_tell_what_is_expected_of_them(
    format_: Format, request: pytest.FixtureRequest
) -> None:
    said = paths(format_)
    if not said:
        return
    lines = [msgspec.json.encode(told_of(format_, path)).decode() for path in said]
    if request.config.getoption("--update-vectors"):
        paths_file(format_).write_text("\n".join(lines) + "\n", encoding="utf-8")
    assert lines == paths_file(format_).read_text(encoding="utf-8").splitlines()
    assert format_.files.has_documents == any(format_.files.documents(path) for path in said)
    for path in said:
        assert path.endswith(".gz") or format_.files.copy(path) == format_.files.copy(f"{path}.gz")


@over(ALL)
def test_no_format_takes_the_file_of_another_for_its_own(vector: Vector) -> None:
    """A format recognises a file by its path and its first bytes. A file with very few bytes so far may be recognised
    by its path alone.
    """
    for path in paths_of(vector):
        for place in (0, 1, 100, 4096):
            head = vector.data[:place]
            found = [f.name for f in FORMATS.values() if f.files.recognises(path, head)]
            assert found in ([], [vector.format.name])


@every_format
def test_a_format_recognises_most_of_its_files(format_: Format) -> None:
    if format_.files.recognises is Files().recognises:
        return
    vectors = [vector for vector in ALL_WAYS if vector.format is format_ and vector.data]
    known = [
        any(format_.files.recognises(path, vector.data[:4096]) for path in paths_of(vector))
        for vector in vectors
    ]
    assert sum(known) > len(known) / 2


def paths_of(vector: Vector) -> list[str]:
    """Return the paths that the file of a vector may have: the path in the vector, or the first path of a stream in
    `paths.jsonl`.
    """
    if vector.beside:
        return [vector.beside["path"]]
    streams = (path for path in paths(vector.format) if vector.format.files.stream(path))
    return [next(streams, "/runs/a/file")]


@every_format
def test_a_record_is_never_longer_than_the_limit(format_: Format) -> None:
    for vector in (vector for vector in ALL_WAYS if vector.format is format_):
        for limit in LIMITS:
            check_limit(vector, limit)


@settling
def test_a_line_that_is_read_before_its_newline_comes_is_the_same_line(vector: Vector) -> None:
    """The newline that arrives later becomes a blank line."""
    newlines = [at for at, byte in enumerate(vector.data) if byte == 0x0A]
    whole = _without_places(vector.records)
    for stop in [*newlines[:: 1 + len(newlines) // 40], len(vector.data)]:
        _, records = check_settled(vector, stop)
        assert _without_places(records) == whole, stop


def _without_places(records: list[Record]) -> list[Record]:
    kept = (record for record in records if record.name not in {"blank_lines", "clock", "bracket"})
    masked = (record._replace(offset=0, size=0) for record in kept)
    return [
        r._replace(detail=r.detail.strip()) if isinstance(r.detail, bytes) else r for r in masked
    ]


@settling
def test_a_line_is_read_early_only_where_no_more_bytes_can_change_it(
    vector: Vector, trials: Trials
) -> None:
    for stop in trials.some(vector, 100, 15):
        settled, _ = check_settled(vector, stop)
        assert not {record.flaw for record in settled} & {"bad_json", "truncated", "cut"}


@ending
def test_what_is_said_to_be_lacking_is_what_the_end_misses(vector: Vector) -> None:
    """While the stream may continue, only `lacking` states the missing end; the gap record comes with `end`."""
    for stop in [*range(0, len(vector.data), 1 + len(vector.data) // 50), len(vector.data)]:
        check_lacking(vector, stop)
        decoder = vector.decoder()
        decoder.feed(vector.data[:stop])
        if isinstance(decoder, SeparatingDecoder) and not decoder.pending:
            runs = {decoder.lacking_of(process) for process in decoder.processes}
            assert decoder.lacking == (next(filter(None, runs), "") if runs != {None} else None)
            assert decoder.lacking_of(max(decoder.processes) + 1) is None
