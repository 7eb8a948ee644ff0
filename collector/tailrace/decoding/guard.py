"""Prevent the decoder of a plug-in (`decoding.plugins`) from stopping the collector or writing invalid rows.

If the decoder raises an exception or breaks the contract, all bytes without a record, and all later bytes up to the end
of the input or datagram, become malformed (`DECODER_FAILED`). A new decoder reads the next input. A session row
`decoder_failed` states the exception, once in each session."""

from __future__ import annotations

import json
import math
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, NamedTuple, TypeVar, cast

import msgspec
from msgspec.structs import replace

from tailrace.decoding.contract import Decoder, Files, Format, Writer
from tailrace.model.gap import Reason
from tailrace.model.holding import Evicted, Holding
from tailrace.model.record import (
    ALONE,
    Kind,
    Missing,
    Record,
    SessionFacts,
    malformed,
    missing,
    session_record,
)

T = TypeVar("T")

DECODER_FAILED = "decoder_failed"
"""Reason of malformed bytes that a plug-in's decoder could not read."""

IMPLIED = frozenset({Kind.GAP, Kind.HEAL, Kind.NAME, Kind.SESSION})
"""Kinds of records that may stand for no bytes of the input, so that their size is 0."""

_OF_CLIENTS = ("announces", "goodbye", "discarded", "elsewhere", "never_sent", "process")
"""Fields of `SessionFacts` that only Tailrace's own formats may set."""

ERROR_MAX = 400
"""Maximum length (characters) of an exception's text in a row or a warning."""


class ContractError(Exception):
    """Signals that a plug-in, or a record of its decoder, does not obey the contract (`decoding.contract`)."""


_Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
_Count = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class _ExactFields(NamedTuple):
    """The types of the fields of a valid `Record`, except `detail`."""

    offset: _Count
    size: _Count
    kind: Kind
    stream: str
    substream: _Int64 | None
    counter: _Int64 | None
    name: str | None
    category: str | None
    id: _Int64 | None
    parent: _Int64 | None
    start: _Int64 | None
    end: _Int64 | None
    attributes: str | None
    flaw: str | None


_fields = msgspec.msgpack.Decoder(_ExactFields)
_DETAILS: Mapping[str, tuple[type, ...]] = {
    Kind.GAP: (Missing,),
    Kind.HEAL: (Missing,),
    Kind.SESSION: (SessionFacts, type(None)),
    Kind.MALFORMED: (bytes,),
}
"""The types of `Record.detail` by kind of record. In records of all other kinds, `detail` is None."""
_attributes = msgspec.json.Decoder(dict[str, Any])
_PLACE = re.compile(r"\$\[(\d+)\]")
_ADDRESS = re.compile(r"\b0x[0-9a-f]+")


def check_record(format_: Format, record: Record) -> Record:
    """Return a record with fields of exactly the types that the contract states, or raise ContractError."""
    try:
        return _exact_record(format_, record)
    except (ValueError, TypeError, AttributeError, OverflowError) as error:
        # UnicodeEncodeError and msgspec.ValidationError are subclasses of ValueError.
        text = _PLACE.sub(lambda match: f"`{Record._fields[int(match[1])]}`", str(error))
        raise ContractError(f"a record has a wrong field: {text}: {record!r}") from error


def _exact_record(format_: Format, record: Record) -> Record:
    others = _fields.decode(msgspec.msgpack.encode(tuple(record)[:-1]))
    kind, detail = record.kind, record.detail
    types = _DETAILS.get(kind, (type(None),))
    type_ = next((type_ for type_ in types if isinstance(detail, type_)), None)
    if type_ is None:
        raise TypeError(f"`detail`: a record of kind {kind} cannot have a {type(detail).__name__}")
    detail = msgspec.msgpack.decode(msgspec.msgpack.encode(detail), type=type_)
    record = Record(*others, detail)
    if record.size == 0 and kind not in IMPLIED:
        raise ValueError(f"`size`: a record of kind {kind} has bytes")
    if record.size and kind in {Kind.GAP, Kind.HEAL}:
        raise ValueError(f"`size`: a record of kind {kind} has no bytes")
    _check_detail(format_, record)
    allowed = format_.malformed if kind == Kind.MALFORMED else format_.flaws | {None}
    if record.flaw not in allowed:
        declared = "malformed" if kind == Kind.MALFORMED else "flaws"
        raise ValueError(f"`flaw`: {record.flaw!r} is not in the format's `{declared}`")
    attributes = record.attributes
    if attributes is not None:
        if not _attributes.decode(attributes):
            raise ValueError("`attributes`: an empty object must be None")
        if not (attributes.startswith("{") and attributes.endswith("}")):
            # The ingest inserts members after the first character, which must therefore be the opening brace.
            raise ValueError("`attributes`: white space is around the object")
    return record


def _check_detail(format_: Format, record: Record) -> None:
    detail = record.detail
    if isinstance(detail, SessionFacts):
        per_second = detail.ticks_per_second
        if per_second is not None and not (per_second > 0 and math.isfinite(per_second)):
            raise ValueError("`detail`: `ticks_per_second` must be above 0")
        msgspec.convert(detail.totals, dict[str, _Count] | None)
    bits, counter = format_.counter_bits, record.counter
    if isinstance(detail, Missing):
        Reason(str(record.name))
        msgspec.convert(detail.count, _Count)
        msgspec.convert(detail.last, _Int64 | None)
        if record.kind == Kind.HEAL and not (detail.count or detail.piece):
            raise ValueError("`detail`: the `count` of a heal must be above 0")
    elif bits is not None and record.kind not in ALONE and counter is None:
        raise ValueError(
            f"`counter`: each {record.kind} of a format with `counter_bits` has a number"
        )
    elif counter is not None and bits is not None and not 0 <= counter < 2**bits:
        raise ValueError(f"`counter`: not a number of {bits} bits")


class GuardState(msgspec.Struct):
    """The state of a `GuardedDecoder` that a checkpoint stores."""

    waiting: bytes = b""  # Bytes that are in no record yet.
    at: int = 0  # Offset of the first waiting byte.
    begin: int = 0  # Offset at which the input of the current decoder begins.
    failed: bool = False  # Whether all further bytes of the input are malformed.
    reported: bool = False  # Whether a row about a failure was written or is due.
    unreported: str = ""  # Text of the row that is due, or "".
    last: int = 0  # Number of bytes at the end of `waiting` that wait in the decoder.
    decoder: bytes = b""  # State of the plug-in's decoder as MessagePack, without waiting bytes.


class GuardedDecoder:
    """Calls the decoder of a plug-in, and checks what the decoder returns."""

    def __init__(self, format_: Format, limit: int, state: GuardState | None) -> None:
        state = state or GuardState()
        self._format, self._limit = format_, limit
        self._waiting, self._at, self._begin = state.waiting, state.at, state.begin
        # Whether the decoder has failed, so that all bytes until the next call of `end` are malformed.
        self.failed = state.failed
        self._reported, self._unreported = state.reported, state.unreported
        self.error = ""  # text of the last exception of the plug-in's decoder
        self._decoder: Decoder | None = None
        if not self.failed:
            self._start(state)

    def _start(self, state: GuardState) -> None:
        try:
            inner = None
            if state.decoder:
                inner = msgspec.msgpack.decode(state.decoder, type=self._format.state_type)
                self._format.waiting(inner).waiting = state.waiting[
                    len(state.waiting) - state.last :
                ]
            self._decoder = self._format.decoder(self._limit, inner)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - foreign code may raise anything
            self._fail(error)

    @property
    def state(self) -> GuardState:
        last, decoder = self.ask(self._encoded, (0, b""))
        at = self._waiting, self._at, self._begin
        return GuardState(*at, self.failed, self._reported, self._unreported, last, decoder)

    def _encoded(self, decoder: Decoder) -> tuple[int, bytes]:
        """Return the number of unfinished bytes in the decoder's state, and the state without them."""
        state = decoder.state
        if not isinstance(state, self._format.state_type):
            raise ContractError(f"the state is not of the type {self._format.state_type.__name__}")
        part = self._format.waiting(state)
        waiting, part.waiting = part.waiting, b""
        packed = msgspec.msgpack.encode(state)
        part.waiting = waiting
        if not self._waiting.endswith(waiting):
            raise ContractError("`waiting` of the state does not have the last bytes of the input")
        return len(waiting), packed

    @property
    def pending(self) -> int:
        return len(self._waiting)

    def feed(self, data: bytes) -> list[Record]:
        self._waiting += data
        return self.take(lambda decoder: decoder.feed(data))

    def end(self) -> list[Record]:
        records = self.take(lambda decoder: decoder.end(), is_end=True)
        if self.failed:
            self.failed, self._begin = False, self._at
            self._start(GuardState())
        return records

    def give_up(self) -> list[Record]:
        return self.take(lambda decoder: decoder.give_up())

    def take(self, read: Callable[[Any], list[Record]], *, is_end: bool = False) -> list[Record]:
        """Return the records that `read` gets from the decoder; after a failure, the waiting bytes as malformed.

        With `is_end`, bytes that the decoder leaves without a record are a failure, too."""
        if self._decoder is not None:
            try:
                records = [*read(self._decoder)]
                if self._begin:
                    records = [r._replace(offset=r.offset + self._begin) for r in records]
                records, size = self._checked(records, is_end=is_end)
            except (Exception, SystemExit) as error:  # noqa: BLE001 - foreign code may raise anything
                self._fail(error)
            else:
                self._at += size
                self._waiting = self._waiting[size:]
                return records
        records = []
        if self._unreported:
            about = json.dumps({"error": self._unreported})
            records.append(session_record(self._at, 0, DECODER_FAILED, about))
            self._unreported = ""
        if self._waiting:
            records.append(malformed(self._at, self._waiting, DECODER_FAILED))
            self._at, self._waiting = self._at + len(self._waiting), b""
        elif records:
            # The decoder failed although no bytes wait, for example while it read a document. A gap of unknown size
            # shows the loss.
            records.append(missing(self._at, Reason.MALFORMED, 0, detail=DECODER_FAILED))
        return records

    def report_again(self) -> bool:
        """Let the next call of `take` report the current decoder's failure again, because the row with the first report
        was discarded.

        Return whether any decoder of this guard has failed."""
        if self.error:
            self._reported, self._unreported = self.failed, self.error if self.failed else ""
        return bool(self.error)

    def ask(self, question: Callable[[Any], T], otherwise: T) -> T:
        """Call the function `question` with the plug-in's decoder, and return the result. Return `otherwise` if the
        decoder fails or has failed before."""
        if self._decoder is None:
            return otherwise
        try:
            return question(self._decoder)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - foreign code may raise anything
            self._fail(error)
            return otherwise

    def _checked(self, given: Sequence[Record], *, is_end: bool) -> tuple[list[Record], int]:
        """Return the checked records with the sum of their sizes (bytes).

        Raise ContractError if the records skip or repeat bytes of the input, or leave more than `limit` bytes
        waiting."""
        size, records = 0, [check_record(self._format, record) for record in given]
        for record in records:
            if record.offset != self._at + size:
                raise ContractError(
                    f"a record begins at offset {record.offset}; the record before it ends at {self._at + size}"
                )
            facts = record.detail
            if isinstance(facts, SessionFacts) and any(
                getattr(facts, each) for each in _OF_CLIENTS
            ):
                raise ContractError(f"only formats of Tailrace itself use {', '.join(_OF_CLIENTS)}")
            if (
                record.kind == Kind.MALFORMED
                and record.detail != self._waiting[size : size + record.size]
            ):
                raise ContractError("the bytes of a malformed record are not those of the input")
            size += record.size
        waiting = len(self._waiting) - size
        if waiting < 0:
            raise ContractError(f"records have {-waiting} bytes more than the input")
        if waiting > (0 if is_end else self._limit):
            raise ContractError(
                f"{waiting} bytes are in no record, at the end of the input or beyond `limit`"
            )
        return records, size

    def _fail(self, error: BaseException) -> None:
        self.failed, self._decoder, self.error = True, None, text_of(error)
        if not self._reported:
            self._reported, self._unreported = True, self.error


def text_of(error: BaseException) -> str:
    """Return an exception as one line of text, without memory addresses, so that equal failures have equal texts."""
    import traceback  # noqa: PLC0415 - takes 5 ms, and is only needed after a failure

    if isinstance(error, ContractError):
        text, place = str(error), ""
    else:
        text = "".join(traceback.format_exception_only(error)).strip()
        frame = traceback.extract_tb(error.__traceback__)[-1]
        place = f" ({frame.filename.rpartition('/')[2]}, line {frame.lineno})"
    text = _ADDRESS.sub("0x…", text.encode(errors="replace").decode())
    return " ".join(text.split())[:ERROR_MAX] + place


class _Held:
    """Wraps a `Holding` of a plug-in's decoder. If a call raises an exception, the decoder has failed, and the call
    returns a default."""

    def __init__(self, guard: GuardedDecoder, at: int, what: Evicted) -> None:
        self.what = what
        self._guard, self._at = guard, at

    def _ask(self, question: Callable[[Holding], T], otherwise: T) -> T:
        return self._guard.ask(lambda decoder: question(decoder.holdings[self._at]), otherwise)

    @property
    def held(self) -> int:
        return self._ask(lambda holding: max(0, int(holding.held)), 0)

    @property
    def evicted(self) -> int:
        return self._ask(lambda holding: max(0, int(holding.evicted)), 0)

    @evicted.setter
    def evicted(self, number: int) -> None:
        self._ask(lambda holding: setattr(holding, "evicted", number), None)

    def give_way(self, size: int) -> None:
        self._ask(lambda holding: holding.give_way(size), None)


class _Optional(GuardedDecoder):
    """The guard's versions of the optional members of a decoder, used if the plug-in's decoder has these members."""

    def begin(self, path: str, dialect: str) -> None:
        self.ask(lambda decoder: decoder.begin(path, dialect), None)

    def document(self, name: str, data: bytes) -> list[Record]:
        return self.take(lambda decoder: decoder.document(name, data))

    def settle(self) -> list[Record]:
        return self.take(lambda decoder: decoder.settle())

    @property
    def stream(self) -> str:
        return self.ask(lambda decoder: _of(str, decoder.stream), "")

    @property
    def lacking(self) -> str | None:
        nothing: str | None = None
        return self.ask(lambda decoder: _of((str, type(None)), decoder.lacking), nothing)

    @property
    def asked(self) -> Sequence[str]:
        return self.ask(lambda decoder: [_of(str, key) for key in decoder.asked], [])

    @property
    def holdings(self) -> Sequence[Holding]:
        kinds: list[Evicted] = []
        kinds = self.ask(lambda decoder: [Evicted(each.what) for each in decoder.holdings], kinds)
        return [_Held(self, at, what) for at, what in enumerate(kinds)]


def _of(types: type | tuple[type, ...], value: Any) -> Any:  # noqa: ANN401 - of one of the types
    if not isinstance(value, types):
        raise ContractError(f"an attribute is {value!r}")
    return value


def guarded(format_: Format, sample: Decoder | None) -> Format:
    """Return a plug-in's format whose functions and decoders are guarded, so that they never raise. `sample` is a
    decoder of the format. A guard has those members of `_Optional` that the sample has."""
    members = {k: v for k, v in vars(_Optional).items() if k[0] != "_" and hasattr(sample, k)}
    kind = type(f"Guarded_{format_.name}", (GuardedDecoder,), members)
    files, usual = format_.files, Files()
    functions = {
        name: _answering(format_.name, name, getattr(files, name), default)
        for name in Files.__struct_fields__
        if callable(default := getattr(usual, name))
        # Do not wrap default functions, because `Files` compares its functions with the defaults.
        and getattr(files, name) is not default
    }
    return replace(
        format_,
        malformed=format_.malformed | {DECODER_FAILED},
        decoder=lambda limit, state: kind(format_, limit, state),
        state_type=GuardState,
        waiting=lambda state: state,
        files=replace(files, **functions),
    )


def _answering(
    name: str, of: str, function: Callable[..., T], default: Callable[..., T]
) -> Callable[..., T]:
    """Return a function that calls `function`, or `default` if this fails. A failure causes a RuntimeWarning."""

    def answer(*arguments: Any) -> T:  # noqa: ANN401 - a path, and perhaps first bytes
        try:
            return check_answer(of, function(*arguments))
        except (Exception, SystemExit) as error:  # noqa: BLE001 - foreign code may raise anything
            text = f"format {name}: `Files.{of}` failed, so the default is used: {text_of(error)}"
            warnings.warn(text, RuntimeWarning, stacklevel=1)
            return default(*arguments)

    return answer


def check_answer(of: str, answer: T) -> T:
    """Return `answer`, which the function with the name `of` in a plug-in's `Files` has returned. Raise ContractError
    if the answer is not valid."""
    try:
        exact = msgspec.convert(answer, _ANSWERS[of])
        hash(exact)
        for text in exact if isinstance(exact, tuple) else [exact]:
            if isinstance(text, str):
                text.encode(errors="strict" if of == "group" else "surrogateescape")
                if "\0" in text:
                    raise ValueError("a path cannot contain NUL")  # noqa: TRY301
    except (ValueError, TypeError) as error:
        raise ContractError(f"`Files.{of}` returned {answer!r}: {error}") from error
    return cast("T", exact)


_ANSWERS: dict[str, Any] = {
    "stream": bool,
    "documents": tuple[str, ...],
    "described": str,
    "group": str,
    "copy": str,
    "writer": Writer | None,
    "recognises": bool,
}
"""The types that the functions of a plug-in's `Files` must return, by function."""
