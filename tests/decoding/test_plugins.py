"""Formats outside Tailrace: which ones are refused, and what happens if a decoder fails while data arrives."""

from __future__ import annotations

import random
import re
import warnings

import msgspec
import pytest
from msgspec.structs import replace

from tailrace.decoding import plugins
from tailrace.decoding.contract import Files
from tailrace.decoding.foreign import foreign
from tailrace.decoding.formats import FORMATS, OWN, REFUSED
from tailrace.decoding.guard import DECODER_FAILED, GuardState, guarded
from tailrace.ingest.machine import Ingest
from tailrace.model.record import Kind, Missing, Record, SessionFacts, missing
from tailrace.testing import (
    TraceSample,
    check_evicted,
    check_format,
    check_lacking,
    check_resumed,
    check_tiling,
    check_waiting,
    decode,
    packed,
)
from tests.decoding.test_conformance import ALL
from tests.formats.toy import FORMAT as TOY
from tests.ingest.log import Log, run

LINES = b"n 31 main\nk 31\ne one\nm 3\nwhat?\ne two\n"


def instant(offset, size, **changed):
    record = Record(
        offset, size, Kind.INSTANT, "1",
        None, None, "x", None, None, None, None, None, None, None, None,
    )  # fmt: skip
    return record._replace(**changed)


def wrong(change):
    """Return the toy format with a decoder that changes the records of a line `e boom`."""

    class Decoder(type(TOY.decoder(1, None))):
        def feed(self, data):
            records = super().feed(data)
            at = next((i for i, each in enumerate(records) if each.name == "boom"), None)
            return records if at is None else change(records, at)

    return replace(TOY, decoder=Decoder)


def failing(records, at):
    raise KeyError("boom")


def leaving(records, at):
    raise SystemExit(3)


def put(**changed):
    return lambda records, at: [*records[:at], records[at]._replace(**changed), *records[at + 1 :]]


BREACHES = {
    "exception": (failing, r"KeyError: 'boom' \(test_plugins\.py, line \d+\)"),
    "exit": (leaving, r"SystemExit: 3 \(test_plugins\.py, line \d+\)"),
    "no records": (lambda records, at: None, "must be an iterable"),
    "no record": (lambda records, at: [1], "not iterable"),
    "left out": (lambda records, at: records[:at] + records[at + 1 :], "begins at offset"),
    "twice": (lambda records, at: [*records, records[-1]], "begins at offset"),
    "too long": (put(size=10**6), "begins at offset|more than the input"),
    "negative": (put(size=-1), "`size`"),
    "kind": (put(kind="event"), "`kind`"),
    "no bytes": (lambda records, at: [records[at]._replace(size=0)], "`size`"),
    "64 bits": (put(start=2**63), "`start`"),
    "text in a number": (put(id="7"), "`id`"),
    "bytes in a text": (put(name=b"x"), "`name`"),
    "surrogate": (put(name="\udcff"), "surrogates not allowed"),
    "attributes": (put(attributes="{"), "truncated"),
    "no members": (put(attributes="{}"), "`attributes`"),
    "flaw": (put(flaw="odd"), "'odd' is not in the format's `flaws`"),
    "reason": (put(kind=Kind.MALFORMED, flaw="odd", detail=b"e boom\n"), "`malformed`"),
    "other bytes": (put(kind=Kind.MALFORMED, flaw="bad_line", detail=b"e b00m\n"), "the input"),
    "detail": (put(detail=Missing(count=1)), "cannot have a Missing"),
    "gap": (lambda r, at: [missing(r[at].offset, "bad luck", 1), *r[at:]], "bad luck"),
    "process": (put(kind=Kind.SESSION, detail=SessionFacts(process=1)), "only formats of Tailrace"),
    "negative count": (lambda r, at: [missing(r[at].offset, "network", -1), *r[at:]], "`int` >= 0"),
    "heal of nothing": (
        lambda r, at: [missing(r[at].offset, "network", 0)._replace(kind=Kind.HEAL), *r[at:]],
        "the `count` of a heal",
    ),
    "totals": (put(kind=Kind.SESSION, detail=SessionFacts(totals={"span": -1})), "`int` >= 0"),
    "white space before": (put(attributes=' {"a":1}'), "white space"),
    "white space after": (put(attributes='{"a":1}\n'), "white space"),
    "speed": (put(kind=Kind.SESSION, detail=SessionFacts(ticks_per_second=0.0)), "above 0"),
}


@pytest.mark.parametrize(("change", "text"), BREACHES.values(), ids=BREACHES)
def test_a_decoder_that_fails_is_reported_with_all_bytes(change, text):
    """The records before the failure stay. The session and the reason are stated, the bytes are kept."""
    format_ = plugins.checked("toy", wrong(change))
    data = [b"e one\n", b"e boom\ne th", b"ree\n"]
    decoder = format_.decoder(64, None)
    records = decode(decoder, data)
    check_tiling(format_, records, b"".join(data))
    first, row, *rest = records
    assert (first.name, row.name, row.kind) == ("one", DECODER_FAILED, Kind.SESSION)
    error = msgspec.json.decode(row.attributes)["error"]
    assert re.search(text, error), error
    assert [(r.kind, r.flaw) for r in rest] == [(Kind.MALFORMED, DECODER_FAILED)] * len(rest)
    assert b"".join(r.detail for r in rest) == b"".join(data[1:])


def test_the_next_datagram_is_decoded_again():
    format_ = plugins.checked("toy", wrong(failing))
    decoder = format_.decoder(64, None)
    found = []
    for datagram in (b"e one\n", b"e boom\n", b"e two\n", b"e boom\n", b"e six\n"):
        found += decoder.feed(datagram)
        saved = msgspec.msgpack.encode(decoder.state)
        decoder = format_.decoder(64, msgspec.msgpack.decode(saved, type=GuardState))
        found += decoder.end()
    assert [r.name or r.flaw for r in found] == [
        "one", DECODER_FAILED, DECODER_FAILED, "two", DECODER_FAILED, "six",
    ]  # fmt: skip
    check_tiling(format_, found, b"e one\ne boom\ne two\ne boom\ne six\n")


@pytest.mark.parametrize("bits", [None, 32])
def test_the_ingest_decodes_the_next_datagram_again(bits, monkeypatch):
    """Datagrams of one known peer, with and without numbers in the format."""
    names = ["one", "two", "six"]

    class Numbered(wrong(failing).decoder):
        def feed(self, data):
            return [
                each._replace(counter=names.index(each.name)) if each.name else each
                for each in super().feed(data)
            ]

    format_ = replace(
        wrong(failing), **({"counter_bits": bits, "decoder": Numbered} if bits else {})
    )
    monkeypatch.setitem(FORMATS, "toy", plugins.checked("toy", format_))
    log = Log()
    session = log.open("toy", transport="udp")
    log.datagrams(session, [b"e one\n", b"e boom\n", b"e two\n"])
    log.datagrams(session, [b"e six\n"])
    _, rows = run(log.entries)
    assert [r["name"] for r in rows if r["kind"] == "instant"] == names


def test_events_of_a_format_with_numbers_have_a_number(monkeypatch):
    """The ledger cannot count an event without a number."""
    monkeypatch.setitem(FORMATS, "toy", plugins.checked("toy", replace(TOY, counter_bits=32)))
    log = Log()
    log.data(log.open("toy"), b"e one\n")
    _, rows = run(log.entries)
    (row,) = [row for row in rows if row["name"] == DECODER_FAILED]
    assert "each instant of a format with `counter_bits` has a number" in row["attributes"]


def test_whole_ticks_per_second_become_a_float(monkeypatch):
    """The ingest computes wall times with the methods of floats, which an int lacks."""
    facts = SessionFacts(ticks_per_second=1_000_000, epoch=7)

    def state_clock(records, at):
        return put(kind=Kind.SESSION, detail=facts)(records, at)

    def start(self, data):
        return [r._replace(start=3) if r.name == "one" else r for r in read(self, data)]

    format_ = wrong(state_clock)
    read = format_.decoder.feed
    format_.decoder.feed = start
    monkeypatch.setitem(FORMATS, "toy", plugins.checked("toy", format_))
    log = Log()
    session = log.open("toy")
    log.data(session, b"e boom\ne one\n")
    _, rows = run(log.entries)
    (row,) = [row for row in rows if row["name"] == "one"]
    assert row["start"] == 3
    assert row["wall"] is not None


def test_a_failure_without_bytes_is_a_gap():
    class Decoder(type(TOY.decoder(1, None))):
        def document(self, name, data):
            raise ValueError(name)

    decoder = plugins.checked("toy", replace(TOY, decoder=Decoder)).decoder(64, None)
    decoder.begin("/a", "auto")
    row, gap = decoder.document("names", b"1 x")
    assert (row.name, gap.kind, gap.name) == (DECODER_FAILED, Kind.GAP, "malformed")


def test_a_failure_is_reported_after_a_restart():
    class Decoder(type(TOY.decoder(1, None))):
        def begin(self, path, dialect):
            raise ValueError(path)

    format_ = plugins.checked("toy", replace(TOY, decoder=Decoder))
    decoder = format_.decoder(64, None)
    decoder.begin("/a", "auto")
    saved = msgspec.msgpack.encode(decoder.state)
    decoder = format_.decoder(64, msgspec.msgpack.decode(saved, type=GuardState))
    row, bytes_ = decoder.feed(b"e one\n")
    assert (row.name, bytes_.flaw) == (DECODER_FAILED, DECODER_FAILED)
    assert not decoder.end()


@pytest.mark.parametrize("name", ["et3", "jets"])
def test_a_guard_changes_no_record_of_a_good_format(name):
    """ET3 keeps bytes outside `waiting`, and state that can be evicted; JETS settles and has an end."""
    safe = guarded(OWN[name], OWN[name].decoder(64, None))
    rng = random.Random(7)
    for vector in (vector for vector in ALL if vector.format is OWN[name]):
        about = {"path": vector.path, "dialect": vector.dialect, "documents": vector.documents}
        sample = TraceSample(safe, vector.data, vector.limit, **about)
        assert packed(sample.records) == packed(vector.records), vector.name
        for place in rng.sample(range(len(vector.data) + 1), min(6, len(vector.data))):
            check_resumed(sample, place)
            check_waiting(sample, place)
            check_evicted(sample, place, 2)
            check_lacking(sample, place)


def test_a_guarded_format_passes_the_kit():
    safe = plugins.checked("toy", TOY)
    sample = TraceSample(safe, LINES + b"0" * 65 + b"\ne torn", 64)
    with pytest.raises(AssertionError, match=DECODER_FAILED):  # the only reason that it never shows
        check_format(safe, [sample])
    check_format(replace(safe, malformed=TOY.malformed), [sample])


CHANGED = {
    "another name": ({"name": "tot"}, "its `name` is 'tot'"),
    "transports": ({"transports": ("udp",)}, "`transports` must contain tail"),
    "reason": ({"malformed": frozenset({"Bad line"})}, "not 'Bad line'"),
    "many": ({"flaws": frozenset(f"f{n}" for n in range(200))}, "at most 100"),
    "bits": ({"counter_bits": 65}, "`counter_bits`"),
    "document_max": ({"files": Files(document_max="1")}, "`document_max`"),
    "no documents": ({"files": Files(document_max=0)}, "`document_max`"),
    "suffix": ({"suffix": None}, "`suffix`"),
    "NUL": ({"files": Files(documents=lambda path: ("a\0",))}, r"`Files.documents` returned"),
    "no path": (
        {"files": Files(documents=lambda path: ("\ud800",))},
        r"`Files.documents` returned",
    ),
    "no text": ({"files": Files(group=lambda path: "\udcff")}, r"`Files.group` returned"),
    "no type": ({"flaws": None}, "NoneType"),
    "acknowledge": ({"acknowledge": bytes}, "only for formats of Tailrace itself"),
    "state": ({"state_type": Missing}, "the state is not of the type Missing"),
    "undeclared": ({"malformed": frozenset({"too_long", "truncated"})}, "'bad_line' is not in"),
    "path": ({"files": Files(stream=lambda path: 1)}, r"`Files.stream` returned 1"),
    "paths": ({"files": Files(documents=lambda path: path[99])}, "out of range"),
}


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """Return a function that installs a distribution with a format, as a file and its metadata."""
    monkeypatch.syspath_prepend(tmp_path)

    def install(distribution, name, code, entry=None):
        module = f"plugin_{distribution}"
        (tmp_path / f"{module}.py").write_text(code)
        about = tmp_path / f"{distribution}-1.0.dist-info"
        about.mkdir()
        (about / "METADATA").write_text(f"Name: {distribution}\nVersion: 1.0\n")
        lines = f"[{plugins.GROUP}]\n{name} = {entry or f'{module}:FORMAT'}\n"
        (about / "entry_points.txt").write_text(lines)

    return install


GOOD = "from tests.formats.toy import FORMAT\n"


def test_a_plugin_is_found(installed):
    installed("one", "toy", GOOD)
    formats, refused = plugins.load(OWN)
    assert (list(formats), refused) == (["toy"], [])


@pytest.mark.parametrize(("change", "text"), CHANGED.values(), ids=CHANGED)
def test_a_format_that_breaks_the_contract_is_refused(change, text):
    with pytest.raises(Exception, match=text):
        plugins.checked("toy", replace(TOY, **change))


def test_each_refusal_names_the_entry_point_and_the_distribution(installed):
    installed("one", "toy", GOOD)
    installed("b", "broken", "import no_such_module\n")
    installed("c", "leaving", "raise SystemExit(3)\n")
    installed("d", "none", "FORMAT = None\n")
    installed("e", "heph", GOOD)
    installed("f", "twice", GOOD)
    installed("g", "twice", GOOD)
    installed("h", "nowhere", "", "plugin_h:NOTHING")
    formats, refused = plugins.load(OWN)
    assert list(formats) == ["toy"]
    assert [str(each).split(" (", 1)[0] for each in refused] == [
        "format 'broken' of b 1.0 is refused: ModuleNotFoundError: No module named 'no_such_module'",
        "format 'heph' of e 1.0 is refused: Tailrace has a format of this name",
        "format 'leaving' of c 1.0 is refused: SystemExit: 3",
        "format 'none' of d 1.0 is refused: it is a NoneType, not a tailrace.decoding.contract.Format",
        "format 'nowhere' of h 1.0 is refused: AttributeError: module 'plugin_h' has no attribute 'NOTHING'",
        "format 'twice' of f 1.0 is refused: several distributions define this name; uninstall all but one",
        "format 'twice' of g 1.0 is refused: several distributions define this name; uninstall all but one",
    ]  # fmt: skip


def test_broken_metadata_refuses_one_distribution(installed, tmp_path):
    installed("a", "toy", GOOD)
    for name, text in (("b", b"\xff"), ("c", b"no equals sign")):
        installed(name, "broken", GOOD)
        entries = tmp_path / f"{name}-1.0.dist-info/entry_points.txt"
        entries.write_bytes(entries.read_bytes() + text + b"\n")
    installed(
        "bare",
        "toy2",
        "from msgspec.structs import replace\n" + GOOD + "FORMAT = replace(FORMAT, name='toy2')\n",
    )
    (tmp_path / "bare-1.0.dist-info/METADATA").unlink()
    formats, refused = plugins.load(OWN)
    assert list(formats) == ["toy", "toy2"]
    assert [str(each).partition(" cannot be read: ")[0] for each in refused] == [
        f"each format of {name} 1.0 is refused: its entry_points.txt" for name in "bc"
    ]


def test_without_a_plugin_nothing_else_is_imported(monkeypatch):
    monkeypatch.setattr(plugins, "_entries", None)
    assert plugins.load(OWN) == ({}, [])
    assert (FORMATS, REFUSED) == (OWN, [])


def test_a_function_of_paths_that_fails_later_is_replaced_and_a_warning_says_so():
    def group(path):
        return {"/run": "/run", "/": "/"}[path.rpartition("/")[0] or "/"]

    files = plugins.checked("toy", replace(TOY, files=Files(group=group))).files
    with pytest.warns(
        RuntimeWarning, match=r"format toy: `Files.group` failed.* KeyError: '/else'"
    ):
        assert files.group("/else/a") == "/else"
    with warnings.catch_warnings():
        assert files.group("/run/a") == "/run"
    assert not files.has_own_names


@pytest.mark.parametrize("answer", ["\udcff", "a\0"])
def test_a_text_that_cannot_be_stored_is_replaced(answer):
    def group(path):
        return answer if path == "/run/late" else "/run"

    files = plugins.checked("toy", replace(TOY, files=Files(group=group))).files
    with pytest.warns(RuntimeWarning, match="format toy: `Files.group` failed"):
        assert files.group("/run/late") == "/run"


def test_a_function_of_paths_that_exits_is_replaced():
    def stream(path):
        return True if path != "/run/late" else leaving([], 0)

    files = plugins.checked("toy", replace(TOY, files=Files(stream=stream))).files
    with pytest.warns(RuntimeWarning, match=r"`Files.stream` failed.* SystemExit: 3"):
        assert files.stream("/run/late")


def test_a_tuple_becomes_a_writer():
    files = plugins.checked("toy", replace(TOY, files=Files(writer=lambda path: ("h", 7)))).files
    assert files.writer("/run/a").pid == 7


def test_a_plugin_decides_only_about_its_own_sources(monkeypatch):
    """A plug-in that recognises everything makes nothing foreign for other formats."""
    liberal = plugins.checked("toy", replace(TOY, files=Files(recognises=lambda path, head: True)))
    monkeypatch.setitem(FORMATS, "toy", liberal)
    text = b"value 1\rNext 2"
    assert (foreign("/a", text), foreign("/a", text, [liberal])) == ("", "cr_lines")
    assert (foreign("/a.br", b"?"), foreign("/a.br", b"?", [liberal])) == ("brotli", "")
    log = Log()
    session = log.open_file("toy", "/runs/a.br")
    log.data(session, b"e one\n?\n")
    _, rows = run(log.entries)
    assert "one" in [row["name"] for row in rows]


def test_a_failure_in_a_replay_is_reported_again(monkeypatch):
    """A kill, then the plug-in is uninstalled. The replay discards the rows about its failure, and with them the bytes
    that waited at the last commit."""
    log = Log()
    session = log.open("toy")
    log.data(session, b"e one\ne t")
    committed = len(log.entries)
    log.data(session, b"wo\n")
    log.close(session)
    for entries in (log.entries[committed:], log.entries[committed + 1 :]):
        ingest, _ = run(log.entries[:committed])
        assert ingest.tell_lacking() == 0
        _, rows = run(entries, ingest)
        assert [row["kind"] for row in rows if row["name"] == DECODER_FAILED] == ["session"]
        gaps = [(row["name"], row["missing"]) for row in rows if row["kind"] == "gap"]
        assert gaps == [("malformed", None)]


def test_data_of_a_format_that_is_gone_is_kept(monkeypatch):
    """The spool may have data of a plug-in that was uninstalled since, or was installed again after that."""
    log = Log()
    session = log.open("toy")
    log.data(session, b"e one\ne t")
    before = len(log.entries)
    log.data(session, b"wo\n")
    log.close(session)
    with monkeypatch.context() as patch:
        patch.setitem(FORMATS, "toy", plugins.checked("toy", TOY))
        ingest, rows = run(log.entries[:before])
        state = ingest.snapshot()
    _, later = run(log.entries[before:], Ingest.restore(state))
    rows += later
    assert [row["name"] for row in rows if row["kind"] == "instant"] == ["one"]
    assert [row["attributes"] for row in rows if row["name"] == DECODER_FAILED]
    assert [(row["name"], row["missing"]) for row in rows if row["kind"] == "gap"] == [
        ("malformed", None),
    ]
