"""Answer requests: parse the parameters, lease snapshots, run the endpoint in a thread, encode its answer or error.

Work is interrupted if the client disconnects or after `SECONDS`. The latest answers are cached.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, cached_property
from http import HTTPStatus
from typing import Any, NamedTuple, TypeVar, get_args, get_type_hints

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from tailrace.errors import (
    DELETED,
    BrokenOffError,
    FullError,
    MissingPackageError,
    QueryError,
    StoreError,
    TailraceError,
    UnknownError,
)
from tailrace.query.completeness import Completeness
from tailrace.rollups.sidecar import LatestUsed
from tailrace.view.leases import SLOTS, LeftError, ServedStore, SnapshotLease
from tailrace.view.questions import ApiQuestion
from tailrace.view.wire import ApiProblem, ApiRefusal, DecimalText, Ns, Whole

Q = TypeVar("Q", bound=ApiQuestion)
S = TypeVar("S", bound=msgspec.Struct)
T = TypeVar("T")

JSON = "application/json"
CSV = "text/csv; charset=utf-8"

ANSWER_BYTES = 32 * 2**20
"""Maximum size of a JSON answer. A page could not draw a larger one."""

TEXT_MAX = 10_000
"""Maximum length (characters) of each text that an answer quotes from a trace."""


class TooLargeError(TailraceError):
    """Raised when an answer is larger than `ANSWER_BYTES`."""


class TooLongError(TailraceError):
    """Raised when an endpoint takes longer than the time limit."""


class EncodedAnswer(NamedTuple):
    """The body of an answer: JSON, or a file that a browser saves as `name`."""

    body: bytes
    media_type: str = JSON
    name: str = ""


_STATUS: tuple[tuple[type[TailraceError], HTTPStatus, str], ...] = (
    (UnknownError, HTTPStatus.NOT_FOUND, "ask for something that there is"),
    (QueryError, HTTPStatus.BAD_REQUEST, "change the question"),
    (TooLargeError, HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "ask for less"),
    (TooLongError, HTTPStatus.GATEWAY_TIMEOUT, "ask for less: a shorter range, or fewer sessions"),
    (
        FullError,
        HTTPStatus.INSUFFICIENT_STORAGE,
        "free space on the store's disk, or remove notes; then try again",
    ),
    (StoreError, HTTPStatus.SERVICE_UNAVAILABLE, "check the store, then ask again"),
    (MissingPackageError, HTTPStatus.NOT_IMPLEMENTED, "install the package"),
    (TailraceError, HTTPStatus.INTERNAL_SERVER_ERROR, "see what the server says on its terminal"),
)
"""For each error class, the HTTP status of the response and advice for the user. The first class that matches counts."""

REFUSALS = {status for _, status, _ in _STATUS} | {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}
"""All status codes with which an endpoint may report an error."""


def cut(text: str, most: int = TEXT_MAX) -> str:
    """Return a text. If it has more than `most` characters, cut it off there and append its full length."""
    return text if len(text) <= most else f"{text[:most]}… ({len(text)} characters)"


def encoded(answer: msgspec.Struct | EncodedAnswer) -> EncodedAnswer:
    """Encode an answer as JSON if it is not encoded yet. Raise TooLargeError if it is larger than `ANSWER_BYTES`."""
    if isinstance(answer, EncodedAnswer):
        return answer
    body = msgspec.json.encode(answer)
    if len(body) > ANSWER_BYTES:
        raise TooLargeError(f"the answer has {len(body)} bytes, and may have {ANSWER_BYTES}")
    return EncodedAnswer(body)


def response(answer: EncodedAnswer) -> Response:
    headers = {"cache-control": "no-store"}
    if answer.name:
        headers["content-disposition"] = f'attachment; filename="{answer.name}"'
    return Response(answer.body, media_type=answer.media_type, headers=headers)


def refusal(status: HTTPStatus, what: str, where: str, todo: str) -> Response:
    problem = ApiRefusal(error=ApiProblem(what=cut(what), where=cut(where), todo=todo))
    headers = {"cache-control": "no-store"}
    return Response(msgspec.json.encode(problem), status, headers, media_type=JSON)


def decimal(number: int | None) -> str | None:
    """Return an integer as text, because JavaScript represents integers exactly only up to 2^53; None for None."""
    return None if number is None else str(number)


def members(text: str | None) -> dict[str, Any]:
    """Return the members of a JSON object, with long texts cut. Return an empty dict if `text` is not a JSON object."""
    if text is None:
        return {}
    try:
        found = msgspec.json.decode(text)
    except (ValueError, RecursionError):
        return {}
    if not isinstance(found, dict):
        return {}
    return {cut(key): bounded(value) for key, value in found.items()}


def from_attributes(type_: type[S], given: object, **others: object) -> S:
    """Return an object of the API class `type_`. Each field gets the argument in `others` with its name or, if there is
    none, the attribute of `given` with its name."""
    names = type_.__struct_fields__
    return from_row(type_, [others[n] if n in others else getattr(given, n) for n in names])


def whole(found: Completeness) -> Whole:
    return from_attributes(Whole, found)


def bounded(value: object, depth: int = 0) -> Any:  # noqa: ANN401 - JSON
    """Return a JSON value with long texts cut. Integers beyond 2^53, and values nested more than 20 levels deep, become
    texts."""
    if isinstance(value, str):
        return cut(value)
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > 2**53:
        return str(value)
    if depth >= 20 and isinstance(value, dict | list):
        return cut(msgspec.json.encode(value).decode())
    if isinstance(value, dict):
        return {cut(key): bounded(each, depth + 1) for key, each in value.items()}
    if isinstance(value, list):
        return [bounded(each, depth + 1) for each in value]
    return value


_Convert = Callable[[Any], object]
_CONVERSIONS: dict[object, _Convert] = {
    str: cut,
    str | None: bounded,
    list[str | None]: lambda texts: [bounded(text) for text in texts],
    Ns: str,
    Ns | None: decimal,
    DecimalText: str,
    DecimalText | None: decimal,
    dict[str, Any]: members,
}
"""For each type of a field in an answer, the function that converts a value from DuckDB. Other types need none."""


@cache
def _fields(type_: type[msgspec.Struct]) -> list[tuple[str, _Convert | None]]:
    fields = msgspec.structs.fields(type_)
    return [(field.name, _CONVERSIONS.get(field.type)) for field in fields]


def from_row(type_: type[S], row: Iterable[object]) -> S:
    """Return an object of the API class `type_` from the values of its fields in order, as DuckDB returned them."""
    fields = zip(_fields(type_), row, strict=True)
    return type_(
        **{name: convert(value) if convert else value for (name, convert), value in fields}
    )


SECONDS = 60.0
"""Maximum time (seconds) for answering a request, including the wait for a free thread."""

LONG_SLOTS = 1
"""Maximum number of exports that are written at the same time."""

BODY_BYTES = 2**20
KEPT_BYTES = 16 * 2**20
"""Maximum total size of all cached answers."""

INTERRUPT_SECONDS = 0.2
ATTEMPTS = 3
"""Maximum number of attempts. An attempt fails if files of its snapshot are deleted meanwhile."""


@dataclass(frozen=True)
class Endpoint:
    """An endpoint of the API. The function `answer` runs in a thread; its annotations name the classes of the request's
    parameters and of the answer. If `kept` is true, answers depend only on the parameters and the snapshot, and are
    cached."""

    method: str
    path: str
    about: str
    answer: Callable[[SnapshotLease, Any], msgspec.Struct | EncodedAnswer]
    kept: bool = True

    @cached_property
    def takes(self) -> type[ApiQuestion]:
        _, takes, _ = get_type_hints(self.answer).values()
        return takes  # type: ignore[no-any-return]

    @cached_property
    def gives(self) -> tuple[type, ...]:
        """The class of the JSON answer, followed by EncodedAnswer if the endpoint may return a CSV file instead."""
        gives = get_type_hints(self.answer)["return"]
        return get_args(gives) or (gives,)


class AnswerPool:
    """Answers requests in a small number of threads."""

    def __init__(self, stores: Sequence[ServedStore]) -> None:
        self.stores = stores
        self._threads = ThreadPoolExecutor(SLOTS, thread_name_prefix="ask")
        self._long = ThreadPoolExecutor(LONG_SLOTS, thread_name_prefix="long")
        self._answering = 0
        self.idle = threading.Event()
        """Set while no short request is being answered."""
        self.idle.set()
        self._kept: LatestUsed[object, EncodedAnswer] = LatestUsed(KEPT_BYTES, lambda each: len(each.body))  # fmt: skip

    async def respond(self, endpoint: Endpoint, request: Request) -> Response:
        def work(asked: ApiQuestion) -> Awaitable[EncodedAnswer]:
            return self.run(request, lambda lease: self._answer(endpoint, lease, asked))

        return await self.give(request, endpoint.takes, work, response)

    async def give(
        self,
        request: Request,
        takes: type[Q],
        work: Callable[[Q], Awaitable[T]],
        respond: Callable[[T], Response],
    ) -> Response:
        """Pass the parameters of a request to `work`. Return the response for the result of `work`, or for the error
        that `work` raised."""
        where = f"{request.method} {request.url.path}"
        try:
            asked = await _question(takes, request)
            return respond(await work(asked))
        except (msgspec.ValidationError, msgspec.DecodeError) as error:
            todo = "see openapi.json for the parameters"
            return refusal(HTTPStatus.BAD_REQUEST, str(error), where, todo)
        except (LeftError, ClientDisconnect):
            # The client has disconnected, so any response will do.
            return Response(status_code=HTTPStatus.REQUEST_TIMEOUT)
        except TailraceError as error:
            status, todo = next((s, todo) for kind, s, todo in _STATUS if isinstance(error, kind))
            return refusal(status, str(error), where, todo)

    async def run(
        self, request: Request, work: Callable[[SnapshotLease], T], seconds: float = SECONDS
    ) -> T:
        """Run `work` in a thread, and return its result. Raise the errors of `work`, LeftError if the client disconnects,
        and TooLongError after the time limit. Work with a higher limit than `SECONDS` has separate threads, so that
        short requests do not wait for it."""
        if seconds > SECONDS:
            return await self._run(self._long, request, work, seconds)
        self._answering += 1
        self.idle.clear()
        try:
            return await self._run(self._threads, request, work, seconds)
        finally:
            self._answering -= 1
            if not self._answering:
                self.idle.set()

    async def _run(
        self,
        threads: ThreadPoolExecutor,
        request: Request,
        work: Callable[[SnapshotLease], T],
        seconds: float,
    ) -> T:
        lease = SnapshotLease(self.stores)
        future = threads.submit(_on_one_snapshot, lease, work)
        working: asyncio.Future[Any] = asyncio.wrap_future(future)
        leaving: asyncio.Future[Any] = asyncio.ensure_future(_gone(request))
        try:
            done, _ = await asyncio.wait(
                {working, leaving}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED
            )
            if working in done:
                result: T = working.result()
                return result
            raise (
                LeftError("the client has left")
                if done
                else TooLongError(f"the answer takes longer than {seconds:.0f} s")
            )
        finally:
            leaving.cancel()
            if not future.cancel():
                while not working.done():
                    lease.interrupt()
                    await asyncio.wait({working}, timeout=INTERRUPT_SECONDS)
                # Retrieve the exception of the interrupted work, or asyncio would log that nobody did.
                working.exception()

    def close(self) -> None:
        self._threads.shutdown()
        self._long.shutdown()
        for store in self.stores:
            store.close()

    def _answer(
        self, endpoint: Endpoint, lease: SnapshotLease, asked: ApiQuestion
    ) -> EncodedAnswer:
        key = None
        if endpoint.kept:
            states = tuple(lease.snapshot(store).state for store in asked.stores)
            key = endpoint.path, msgspec.json.encode(asked), states
            if (kept := self._kept.get(key)) is not None:
                return kept
        answer = encoded(endpoint.answer(lease, asked))
        # Do not cache an answer if a snapshot changed while it was computed.
        if key is not None and lease.same():
            self._kept.put(key, answer)
        return answer


def _on_one_snapshot(lease: SnapshotLease, work: Callable[[SnapshotLease], T]) -> T:
    """Return the result of `work` on one snapshot. If files of the snapshot are deleted meanwhile, repeat `work`."""
    for _ in range(ATTEMPTS):
        good = False
        try:
            result = work(lease)
            good = lease.same()
        except BrokenOffError:
            continue
        finally:
            lease.end(good=good)
        if good:
            return result
    raise BrokenOffError(DELETED)


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _question(takes: type[Q], request: Request) -> Q:
    """Return the parameters of a request, as an object of the class `takes`: from the JSON body for POST, otherwise
    from the query string. Raise msgspec's errors."""
    if request.method == "POST":
        body = bytearray()
        async for piece in request.stream():
            body += piece
            if len(body) > BODY_BYTES:
                raise msgspec.ValidationError(f"the body is larger than {BODY_BYTES} bytes")
        return msgspec.json.decode(body, type=takes, strict=False)
    lists = {
        field.encode_name
        for field in msgspec.structs.fields(takes)
        if field.default_factory is not msgspec.NODEFAULT
    }
    given: dict[str, Any] = {}
    for name in request.query_params:
        values = request.query_params.getlist(name)
        given[name] = values if name in lists else values[-1]
    return msgspec.convert(given, takes, strict=False)
