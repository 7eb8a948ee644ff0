"""Test the endpoint of an object store for `tailrace doctor --store URL`, and report the guarantees that it
violates.

Each version of a Delta table is one object with the version's name. If the server reports a success to two writers of
the same version, the rows of one writer are lost, and no gap reports them. The checks write small keys in a folder
below the store's prefix, and delete them afterwards. Except in the test of rights, the client that reads a key is not
the one that wrote it, so that different answers of the server's nodes are detected.
"""

from __future__ import annotations

import secrets
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from math import inf
from threading import Barrier, BrokenBarrierError
from typing import NamedTuple

from obstore.exceptions import BaseError

from tailrace.clock import Clock
from tailrace.doctor.endpoint import (
    CHECK,
    TIMEOUT,
    Client,
    EndpointAnswer,
    StorePlace,
    place_of,
    untested,
)
from tailrace.doctor.finding import HostFinding, advice, good, plural, problem

WRITERS = 8
KEYS = 50

SECONDS = 60
"""Time (seconds) after which a test that repeats requests begins no further repetition."""

PROXIES = frozenset({"http_proxy", "https_proxy", "all_proxy"})
"""Names of environment variables, in lower case, that make clients send requests through a proxy."""


class EndpointProbe:
    """The state of one examination of an endpoint. `written` holds all keys that may be left in the store."""

    def __init__(self, place: StorePlace, clock: Clock) -> None:
        self.place = place
        self.clock = clock
        self.folder = f"doctor-{secrets.token_hex(8)}"
        self.clients = [Client(place) for _ in range(WRITERS)]
        self.written: set[str] = set()

    def client(self, number: int) -> Client:
        return self.clients[number % WRITERS]

    def key(self, name: str) -> str:
        """Return the full name of a key that a test will write, and record it for the deletion."""
        key = f"{self.folder}/{name}"
        self.written.add(key)
        return key


def examine(
    url: str, options: Mapping[str, str], environ: Mapping[str, str], clock: Clock
) -> Iterator[HostFinding]:
    """Yield the findings about the endpoint of a store. The table itself is neither read nor written."""
    place = place_of(url, options, environ)
    if isinstance(place, HostFinding):
        yield place
        return
    try:
        probe = EndpointProbe(place, clock)
    except (BaseError, ValueError) as error:
        line = str(error).partition("\n")[0]
        yield untested(f"The library cannot use {place.url} at {place.endpoint}: {line}.")
        return
    first = probe.client(0).list(probe.folder)
    if not first.status:
        # Name only the variable that sets a proxy, because its URL may contain a password.
        proxies = [name for name in sorted(environ) if name.lower() in PROXIES and environ[name]]
        yield problem(
            CHECK,
            f"{place.endpoint} does not answer: {first.code}.",
            "The collector cannot store anything there; its spool fills.",
            f"curl -sS -o /dev/null {place.endpoint}",
            *(
                f"# requests go to the proxy in {n}, unless NO_PROXY names the host"
                for n in proxies
            ),
        )
        return
    yield good(CHECK, f"{place.endpoint} answers.")
    try:
        yield from _examine_rights(probe)
    finally:
        cleaned = _clean(probe)
    yield cleaned


def _examine_rights(probe: EndpointProbe) -> Iterator[HostFinding]:
    """Yield the findings about the access rights and the server's clock and, if the rights suffice, those of all
    further tests."""
    client, key = probe.client(0), probe.key("rights")
    sent = probe.clock.wall_ns()
    answers = {PUT: client.put(key, b"rights")}
    received = probe.clock.wall_ns()
    found = answers[GET] = client.get(key)
    if found.written:
        # Add half a second, because the server rounds its time down to whole seconds.
        yield _judge_clock(found.written.timestamp() + 0.5 - (sent + received) / 2e9)
    answers[LIST] = client.list(probe.folder)
    answers[DELETE] = client.delete(key)
    # Do not count a missing key as a refusal to read: the preceding put may have failed. After a successful put, a
    # later test detects a server that shows a new key late.
    refused = {
        right: answer
        for right, answer in answers.items()
        if not answer.done and not (right == GET and answer.is_missing)
    }
    yield from _judge_rights(probe.place, refused)
    if not NEEDED & refused.keys():
        raced = race(probe)
        yield judged(raced)
        freshness = Freshness(probe, deletes=DELETE not in refused)
        freshness.measure({each.key for each in raced if each.winners})
        yield from freshness.findings()


class Right(NamedTuple):
    name: str
    action: str
    """The name that this access right has in S3."""
    without: str
    """A phrase for the finding's message: the work that a collector cannot do without this access right."""


PUT = Right("put", "s3:PutObject", "store events")
GET = Right("get", "s3:GetObject", "read the table")
LIST = Right("list", "s3:ListBucket", "find the newest version")
DELETE = Right("delete", "s3:DeleteObject", "remove what was merged or is too old")

NEEDED = frozenset({PUT, GET, LIST})
"""The access rights without which no further test can run."""

RIGHTS_CHECK = "endpoint rights"

_TO_DO: Mapping[str, str] = {
    "NoSuchBucket": "# make the bucket, or name another one: the collector makes none",
    "InvalidAccessKeyId": "# AWS_ACCESS_KEY_ID is not known to this server",
    "SignatureDoesNotMatch": "# AWS_SECRET_ACCESS_KEY does not belong to AWS_ACCESS_KEY_ID, or a proxy changes requests",
    "RequestTimeTooSkewed": "timedatectl status  # the clocks differ too much",
    "AuthorizationHeaderMalformed": "# set AWS_REGION to the bucket's region",
    "PermanentRedirect": "# set AWS_ENDPOINT_URL and AWS_REGION to the bucket's",
}


def _judge_rights(
    place: StorePlace, answers: Mapping[Right, EndpointAnswer]
) -> Iterator[HostFinding]:
    if not answers:
        yield good(RIGHTS_CHECK, f"These keys may put, get, list and delete below {place.url}.")
    by_answer: dict[EndpointAnswer, list[Right]] = {}
    for right, answer in answers.items():
        by_answer.setdefault(answer, []).append(right)
    for answer, rights in by_answer.items():
        allow = f"# allow {', '.join(r.action for r in rights)} below {place.url} for this key"
        untested = " Conditional puts, reads and listings were not tested."
        yield problem(
            RIGHTS_CHECK,
            f"{_joined([right.name for right in rights], 'and')} below {place.url}: {answer}.",
            f"A collector cannot {_joined([right.without for right in rights], 'or')}."
            + (untested if NEEDED.intersection(rights) else ""),
            _TO_DO.get(answer.code, allow),
            status=answer.status,
        )


def _joined(words: list[str], last: str) -> str:
    head = ", ".join(words[:-1])
    return f"{head} {last} {words[-1]}" if head else words[-1]


CLOCK = "endpoint clock"

DIFFERENCE = 5.0
"""Maximum difference (seconds) between the server's clock and this host's clock for which the finding is good."""

REFUSED = 15 * 60
"""Minimum difference (seconds) between the time of a request and the server's clock at which S3 refuses the request."""


def _judge_clock(ahead: float) -> HostFinding:
    figures = {"ahead_s": round(ahead, 1)}
    if abs(ahead) <= DIFFERENCE:
        return good(CLOCK, "The server's clock agrees with ours to the second.", **figures)
    side = "ahead of" if ahead > 0 else "behind"
    return (problem if abs(ahead) >= REFUSED else advice)(
        CLOCK,
        f"The server's clock is {abs(ahead):,.0f} s {side} ours.",
        "Requests are signed with the time: S3 refuses them from 15 minutes on. Upkeep deletes abandoned"
        " files by their age.",
        "timedatectl status  # here, and on the server",
        "date -u",
        **figures,
    )


CREATE_CHECK = "conditional puts"

UNKNOWN = frozenset({400, 405, 501})
"""HTTP status codes with which servers refuse conditional puts that they do not support."""


class Raced(NamedTuple):
    """The result of a race in which several writers created the same key. `answers` are the server's answers to these
    writers. `later` is its answer to one more writer, after the race."""

    key: str
    answers: list[EndpointAnswer]
    later: EndpointAnswer
    stored: EndpointAnswer
    """The answer to a client that reads the raced key after all writers have tried to create it."""

    @property
    def winners(self) -> list[int]:
        """Return the indices of the writers that created the key according to the server. The last index stands for the
        writer of `later`."""
        return [who for who, answer in enumerate([*self.answers, self.later]) if answer.done]

    @property
    def is_right(self) -> bool:
        """Return whether exactly one writer created the key, its bytes are stored, and no answer was a failure."""
        return len(self.winners) == 1 and self.holds(self.winners[0]) and not self.failures

    @property
    def failures(self) -> list[EndpointAnswer]:
        """Return the answers that are neither a success nor the answer that the key exists already."""
        return [
            answer for answer in [*self.answers, self.later]
            if not answer.done and not answer.exists_already
        ]  # fmt: skip

    def holds(self, writer: int) -> bool:
        return self.stored.body == _body(writer)


def race(probe: EndpointProbe) -> list[Raced]:
    """Let `WRITERS` writers, each with its own client, race to create `KEYS` keys. Return a result for each key."""
    keys = [probe.key(f"race-{number:02}") for number in range(KEYS)]
    begun = probe.clock.monotonic()

    def check_time() -> None:
        """Stop all writers that compete for keys once `SECONDS` have passed."""
        if probe.clock.monotonic() >= begun + SECONDS:
            raise BrokenBarrierError

    # The barrier lets all writers try to create the next key at the same moment. The slowest writer reaches it after at
    # most one request, which takes up to `TIMEOUT` seconds.
    barrier = Barrier(WRITERS, check_time, timeout=2 * TIMEOUT)

    def write(writer: int) -> list[EndpointAnswer]:
        answers = []
        with suppress(BrokenBarrierError):
            for key in keys:
                barrier.wait()
                answers.append(probe.client(writer).put(key, _body(writer), create=True))
        return answers

    with ThreadPoolExecutor(WRITERS) as pool:
        answers = list(pool.map(write, range(WRITERS)))
    found: list[Raced] = []
    end = probe.clock.monotonic() + SECONDS
    for number, of_key in enumerate(zip(*answers, strict=False)):
        if probe.clock.monotonic() > end:
            break
        key = keys[number]
        later = probe.client(number).put(key, _body(WRITERS), create=True)
        found.append(Raced(key, list(of_key), later, probe.client(number + 1).get(key)))
    return found


def _body(writer: int) -> bytes:
    return f"written by {writer}".encode()


def judged(raced: Sequence[Raced]) -> HostFinding:
    several = [each for each in raced if len(each.winners) > 1]
    failures = [answer for each in raced for answer in each.failures]
    replaced = [
        each for each in raced
        if len(each.winners) == 1 and each.stored.done and not each.holds(each.winners[0])
    ]  # fmt: skip
    right = sum(each.is_right for each in raced)
    figures = {
        "keys": len(raced),
        "writers": WRITERS,
        "keys_with_one_winner": right,
        "keys_with_several_winners": len(several),
        "unanswered": len(failures),
    }
    keys = plural(len(raced), "key")
    if several:
        most = max(len(each.winners) for each in several)
        what = (
            f"{len(several)} of {keys} had several winners: up to {most} of {WRITERS + 1} writers were told"
            " that they had created the same key."
        )
    elif replaced:
        what = f"{len(replaced)} of {keys} have other bytes than those of the writer who was told that it had created it."
    elif failures:
        [(text, count)] = Counter(map(str, failures)).most_common(1)
        if any(each.winners for each in raced) or any(a.status not in UNKNOWN for a in failures):
            return problem(
                CREATE_CHECK,
                f"{len(failures):,} of {len(raced) * (WRITERS + 1):,} puts for {keys} got no answer that says"
                f" who won, {count:,} of them: {text}.",
                "After such an answer, a collector checks the table and tries again, so commits are late. It is"
                " not known whether the server lets exactly one writer win.",
                "# read the server's log, and run this again when it is idle",
                **figures,
            )
        what = f"The server refuses conditional puts: {text}."
    elif right < len(raced) or not raced:
        what = f"{len(raced) - right} of {keys} had no winner whose bytes can be read, though nobody had written them before."
    elif len(raced) < KEYS:
        return advice(
            CREATE_CHECK,
            f"Only {keys} of {KEYS} were raced for within {SECONDS} s; exactly one writer won each.",
            "Commits are equally slow there, and with fewer races the test is less certain.",
            "# run this again when the endpoint is idle",
            **figures,
        )
    else:
        text = f"{WRITERS} writers raced for {keys}: exactly one won each."
        return good(CREATE_CHECK, text, **figures)
    return problem(
        CREATE_CHECK,
        what,
        "Two collectors, or a collector and its upkeep, would both believe that they had written the next"
        " version: the rows of one would be lost, and no gap would name them.",
        "# keep no table on this endpoint: no setting makes it safe",
        "# ask its maker for a version in which If-None-Match on PUT is atomic, then run this again",
        **figures,
    )


READ = "read after write"
LISTING = "listing after write"

ROUNDS = 20

PATIENCE = 3.0
"""Maximum time (seconds) for which a test repeats a request after an outdated answer, to measure the delay."""

WAITS = 2
"""Maximum number of measurements for each guarantee (`Promise`). A measurement determines the delay until a write is
visible."""

PAUSE = 0.05


class Promise(NamedTuple):
    """A guarantee of S3, with a description of its violation for the report."""

    check: str
    broken: str


NEW_READ = Promise(READ, "a new key was not found")
REPLACED_READ = Promise(READ, "a key still had the bytes that were replaced")
DELETED_READ = Promise(READ, "a deleted key could still be read")
NEW_LISTED = Promise(LISTING, "a new key was not listed")
DELETED_LISTED = Promise(LISTING, "a deleted key was still listed")
WHOLE = Promise(LISTING, "keys were missing")

Look = Callable[[], tuple[EndpointAnswer, bool]]
"""A function that sends a request. It returns the answer, and whether this shows the last write."""


class Freshness:
    """Tests whether a server's answers are up to date, and counts the answers that violate a `Promise`."""

    def __init__(self, probe: EndpointProbe, *, deletes: bool) -> None:
        """Prepare the tests. Deletions are tested only with `deletes`, because the credentials may not allow them."""
        self._probe = probe
        self._deletes = deletes
        self._looks: Counter[str] = Counter()
        self._stale: Counter[Promise] = Counter()
        self._seconds: dict[Promise, float] = {}
        self._failed: Counter[str] = Counter()

    def measure(self, kept: Collection[str]) -> None:
        """Write, read, list and delete new keys. Then check that a list of the folder has all older keys (`kept`)."""
        probe, folder = self._probe, self._probe.folder
        end = probe.clock.monotonic() + SECONDS
        for number in range(ROUNDS):
            if probe.clock.monotonic() > end:
                break
            key = probe.key(f"fresh-{number:02}")
            writer, reader = probe.client(number), probe.client(number + 1)
            if self._obeyed(writer.put(key, b"first")):
                self._look(NEW_READ, partial(_reads, reader, key, b"first"))
                self._look(NEW_LISTED, partial(_lists, reader, folder, key, there=True))
            if self._obeyed(writer.put(key, b"second")):
                self._look(REPLACED_READ, partial(_reads, reader, key, b"second"))
            if self._deletes and self._obeyed(writer.delete(key)):
                self._look(DELETED_READ, partial(_reads, reader, key, None))
                self._look(DELETED_LISTED, partial(_lists, reader, folder, key, there=False))
        self._look(WHOLE, partial(_has_all, probe.client(0), folder, kept))

    def findings(self) -> Iterator[HostFinding]:
        yield self._finding(
            READ, "Keys are read as they were written, replaced or deleted just before"
        )
        yield self._finding(
            LISTING,
            "Keys are listed as they were written or deleted just before, from a key on, too",
        )

    def _obeyed(self, answer: EndpointAnswer) -> bool:
        if not answer.done:
            self._failed[str(answer)] += 1
        return answer.done

    def _look(self, promise: Promise, look: Look) -> None:
        self._looks[promise.check] += 1
        answer, kept = look()
        if not answer.done and not answer.is_missing:
            self._failed[str(answer)] += 1
        elif not kept:
            self._stale[promise] += 1
            if self._stale[promise] <= WAITS:
                after = self._until_kept(look)
                self._seconds[promise] = max(after, self._seconds.get(promise, 0.0))

    def _until_kept(self, look: Look) -> float:
        """Repeat a request until its answer shows the latest write. Return the time (seconds) that this took, or
        infinity if it took more than `PATIENCE` seconds."""
        clock = self._probe.clock
        begun = clock.monotonic()
        while (passed := clock.monotonic() - begun) < PATIENCE:
            if look()[1]:
                return passed
            time.sleep(PAUSE)
        return inf

    def _finding(self, check: str, kept: str) -> HostFinding:
        stale = {promise: n for promise, n in self._stale.items() if promise.check == check}
        figures = {
            "looks": self._looks[check],
            "stale": sum(stale.values()),
            "failed": self._failed.total(),
        }
        if stale:
            worst = max(stale, key=lambda promise: self._seconds[promise])
            times = "Once" if stale[worst] == 1 else f"{stale[worst]:,} times"
            when = f"for up to {self._seconds[worst]:.1f} s"
            if self._seconds[worst] == inf:
                when = f"after {PATIENCE:.0f} s, too"
            return problem(
                check,
                f"{times} {worst.broken}, {when}.",
                "If a commit gets no answer, the collector checks whether it is in the table. If it then reads an old"
                " version, it stores the rows again; and readers miss rows without notice.",
                "# keep no table on this endpoint while it answers from copies that are behind",
                "# switch off caches before it, or ask for the setting that makes reads and listings strongly consistent",
                **figures,
            )
        if self._failed:
            [(text, failed)] = self._failed.most_common(1)
            return problem(
                check,
                f"{plural(failed, 'request')} failed with {text}, so whether it holds is not known.",
                "Commits and questions are late while requests fail.",
                "# read the server's log, and run this again when it is idle",
                **figures,
            )
        return good(check, f"{kept}: {plural(self._looks[check], 'look')}.", **figures)


def _reads(reader: Client, key: str, body: bytes | None) -> tuple[EndpointAnswer, bool]:
    """Read a key. Return the answer, and whether the key is as expected: it holds the bytes `body` or, if `body` is
    None, does not exist."""
    answer = reader.get(key)
    kept = answer.is_missing if body is None else answer.done and answer.body == body
    return answer, kept


def _lists(reader: Client, folder: str, key: str, *, there: bool) -> tuple[EndpointAnswer, bool]:
    answer = reader.list(folder)
    return answer, (key in answer.keys) == there


def _has_all(reader: Client, folder: str, kept: Collection[str]) -> tuple[EndpointAnswer, bool]:
    """List the whole folder, then only the keys after the first key in `kept`, as readers of a table do. Return whether
    each list has all keys of `kept` that it should have. Also return the answer to one of the two requests: to a failed
    one, if any failed."""
    after = min(kept, default=folder)
    whole, later = reader.list(folder), reader.list(folder, after)
    has_all = whole.keys >= {*kept} and later.keys >= {key for key in kept if key > after}
    return (whole if not whole.done else later), has_all


KEYS_CHECK = "endpoint clean-up"


def _clean(probe: EndpointProbe) -> HostFinding:
    """Delete all keys of this examination. Return a finding that names one of the keys that remain or may remain."""
    client = probe.client(0)
    keys = sorted(probe.written)
    deleted = client.delete(*keys)
    listed = client.list(probe.folder)
    if listed.done:
        keys = sorted(listed.keys)
    elif deleted.done or deleted.status == 404:
        keys = []
    if not keys:
        count = len(probe.written)
        text = f"The {plural(count, 'key')} of this examination are deleted."
        return good(KEYS_CHECK, text, keys=count)
    why = "it is still listed" if deleted.done else str(deleted)
    return problem(
        KEYS_CHECK,
        f"{plural(len(keys), 'key')} of this examination may remain: {keys[0]}: {why}.",
        "They are no part of the table, and nothing else removes them.",
        f"aws s3 rm --recursive {probe.place.url}/{probe.folder}/",
        remaining=len(keys),
    )
