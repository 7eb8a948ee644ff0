"""Daemons and servers whose words nobody reads, and signals that come before they can handle them."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from contextlib import closing, suppress
from pathlib import Path

import pytest

from tests import program
from tests.forms import in_turn
from tests.ingest.log import heph_event
from tests.program import COMMAND
from tests.system.collector import Collector, until
from tests.system.producers import free_ports
from tests.view.viewer import UnixConnection

SMALL_ROOM = (
    "from tailrace import standard\nstandard.ROOM = 2000\nfrom tailrace.cli import main\nmain()"
)


class FullPipe:
    """A pipe that nobody reads, and that is full."""

    def __init__(self):
        self.reading, self.writing = os.pipe()
        os.set_blocking(self.writing, False)
        try:
            while True:
                os.write(self.writing, b"x" * 4096)
        except BlockingIOError:
            os.set_blocking(self.writing, True)

    def read(self):
        """Read it to its end."""
        os.close(self.writing)
        with os.fdopen(self.reading, "rb") as file:
            return file.read().lstrip(b"x").decode()

    def close(self):
        os.close(self.writing)
        os.close(self.reading)


class Unread(Collector):
    """A daemon with these streams, through which it has room for few lines."""

    streams = {}  # noqa: RUF012 - set once
    shell = ""

    def command(self):
        command = [sys.executable, "-c", SMALL_ROOM, *super().command()[len(COMMAND) :]]
        return ["sh", "-c", f'exec "$@" {self.shell}', "sh", *command] if self.shell else command

    def start(self, **options):
        self.own.mkdir(exist_ok=True)
        self.process = subprocess.Popen(self.command(), **self.streams)
        self.wait_ready()
        return self


def send(collector, *numbers):
    with socket.create_connection(collector.address("tcp"), timeout=30) as sock:
        sock.sendall(b"".join(heph_event(1, number) for number in numbers))


def works(collector):
    """Whether it takes in and answers."""
    before = collector.status()["sources"]["tcp"]["seen_events"]
    send(collector, 0, 1)
    until(lambda: collector.status()["sources"]["tcp"]["seen_events"] == before + 2, "both events")
    assert collector.get("/healthz")[0] == 200


def test_a_daemon_whose_log_nobody_reads_works_and_ends(tmp_path):
    pipe = FullPipe()
    collector = Unread(tmp_path)
    collector.streams = {"stdout": pipe.writing, "stderr": pipe.writing}
    try:
        collector.start()
        for number in range(1, 31):  # a reload is logged
            collector.process.send_signal(signal.SIGHUP)
            until(
                lambda: collector.status()["config"]["reloads"]["done"] >= number,  # noqa: B023 - used at once
                "the reload",
            )
        works(collector)
        dropped = collector.status()["log_lines_dropped"]
        assert dropped > 0
        assert f"tailrace_log_lines_dropped_total {dropped}" in collector.metrics()
        collector.process.send_signal(signal.SIGTERM)
        assert collector.process.wait(timeout=180) == 0
    finally:
        collector.end()
        pipe.close()
    assert len(collector.rows(kind="span")) == 2


def test_lines_that_were_dropped_are_counted_in_the_log(tmp_path):
    pipe = FullPipe()
    collector = Unread(tmp_path, more='[log]\nformat = "json"\n')
    collector.streams = {"stdout": subprocess.DEVNULL, "stderr": pipe.writing}
    try:
        collector.start()
        for number in range(1, 31):
            collector.process.send_signal(signal.SIGHUP)
            until(
                lambda: collector.status()["config"]["reloads"]["done"] >= number,  # noqa: B023 - used at once
                "the reload",
            )
        dropped = collector.status()["log_lines_dropped"]
        assert dropped > 0
        os.set_blocking(pipe.reading, False)
        read = b""

        def noted():
            nonlocal read
            with suppress(BlockingIOError):
                read += os.read(pipe.reading, 2**20)
            return b'"dropped"' in read

        until(noted, "the line that says how many were dropped")
        assert f'"dropped": {dropped}' in read.decode()
    finally:
        collector.stop()
        pipe.close()


@pytest.mark.parametrize(
    "shell", ["<&-", ">&- 2>&-", "<&- >&- 2>&-", ">/dev/full 2>/dev/full", ">/dev/full"]
)
def test_a_daemon_works_with_broken_streams_and_none_is_its_file(shell, tmp_path):
    collector = Unread(tmp_path)
    collector.shell = shell
    collector.streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    try:
        collector.start()
        works(collector)
        held = {n: os.readlink(f"/proc/{collector.process.pid}/fd/{n}") for n in range(3)}  # noqa: PTH115 - a number
        assert all(name.startswith(("/dev/", "pipe:")) for name in held.values()), held
        assert ("<&-" in shell) == (held[0] == "/dev/null") or held[0] == "/dev/null"
        collector.process.send_signal(signal.SIGTERM)
        said, errors = collector.process.communicate(timeout=180)
    finally:
        collector.end()
    assert collector.process.returncode == 0
    assert "Traceback" not in said + errors
    if shell == ">/dev/full":
        assert errors.count("tailrace: standard output: No space left on device") == 1


@pytest.mark.parametrize("reader", ["slow", "gone"])
def test_servers_answer_though_nobody_reads_their_words(reader, tmp_path):
    trace = tmp_path / "a.jets"
    trace.write_text('{"type":"header","version":"2.0","metadata":{"clock_frequency_mhz":1000}}\n')
    store = tmp_path / "store"
    program.run([*COMMAND, "import", "--store", store, trace], capture_output=True)
    (port,) = free_ports(socket.SOCK_STREAM, 1)
    pipe = FullPipe()
    if reader == "gone":
        os.close(pipe.reading)
    place = tmp_path / "view.sock"

    def metrics():
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
            return answer.status == 200

    def page():
        with closing(UnixConnection(str(place))) as connection:
            connection.request("GET", "/")
            return connection.getresponse().status == 200

    commands = {
        ("collectors", "--listen", f"127.0.0.1:{port}"): metrics,
        ("view", "--unix", str(place)): page,
    }
    for command, answers in commands.items():
        process = program.start(
            [*COMMAND, command[0], "--store", store, *command[1:]],
            stdout=pipe.writing,
            stderr=pipe.writing,
        )
        until(lambda: _answers(answers), f"an answer of {command[0]}")  # noqa: B023 - used at once
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=180) == 0
    os.close(pipe.writing)
    if reader == "slow":
        os.close(pipe.reading)


def _answers(look):
    try:
        return look()
    except OSError:
        return False


def test_an_import_goes_on_though_nobody_reads_its_log(tmp_path):
    """A damaged file is logged while it is read."""
    trace = tmp_path / "a.jets"
    trace.write_text(
        '{"type":"header","version":"2.0","metadata":{"clock_frequency_mhz":1000}}\nx\n'
    )
    pipe = FullPipe()
    done = program.run(
        [*COMMAND, "import", "--store", tmp_path / "store", trace],
        stdout=subprocess.PIPE, stderr=pipe.writing, timeout=60,
    )  # fmt: skip
    pipe.close()
    assert b"1 malformed" in done.stdout or done.stdout


# Signals that come early.


def masks(process):
    """The signals that a process blocks, ignores and handles, as sets of bits."""
    lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    return {
        line[:6]: int(line[8:], 16) for line in lines if line[:6] in {"SigBlk", "SigIgn", "SigCgt"}
    }


def has(mask, number):
    return bool(mask >> (number - 1) & 1)


def expects_signals(process):
    """Whether the interpreter's own handlers are gone. Before that, nobody can help.

    An interpreter that starts looks so, too, between two of its steps, in which it waits for nothing: it must still look
    so after some work, or wait. A daemon that catches SIGTERM has come further."""
    if has(masks(process)["SigCgt"], signal.SIGTERM):
        return True
    if not _has_no_handlers(process):
        return False
    before = _state(process)[1]

    def waits_or_has_worked():
        state, ticks = _state(process)
        return state == "S" or ticks > before

    until(waits_or_has_worked, "some work")
    return _has_no_handlers(process)


def _has_no_handlers(process):
    now = masks(process)
    return has(now["SigIgn"], signal.SIGPIPE) and not has(now["SigCgt"], signal.SIGINT)


def _state(process):
    """The state of a process, and the time that it has worked (clock ticks)."""
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return fields[0], int(fields[11]) + int(fields[12])


def test_nothing_is_imported_before_signals_are_expected():
    code = "import sys; import tailrace.cli; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    modules = done.stdout.split()
    assert not {"click", "typing", "trio", "logging"} & {*modules}


def test_signals_that_come_early_do_not_end_a_daemon_and_a_reload_happens(tmp_path):
    collector = Collector(tmp_path, executable=True).start(wait=False)
    try:
        until(lambda: has(masks(collector.process)["SigBlk"], signal.SIGHUP), "its first steps")
        for number in (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGPIPE):
            collector.process.send_signal(number)
        collector.wait_ready()
        until(lambda: collector.status()["config"]["reloads"]["done"] == 1, "the reload")
        for number in (signal.SIGUSR1, signal.SIGUSR2):
            collector.process.send_signal(number)
        works(collector)
        for _ in range(5):  # also while it ends
            collector.process.send_signal(signal.SIGTERM if _ == 2 else signal.SIGHUP)
        assert collector.process.wait(timeout=180) == 0
    finally:
        collector.end()


@pytest.mark.parametrize(
    ("command", "number"), in_turn(["serve", "query"], [signal.SIGINT, signal.SIGTERM])
)
def test_an_early_end_has_no_traceback(command, number, tmp_path):
    """Whenever it comes: the process ends by the signal, or as it does later."""
    trace = tmp_path / "a.jets"
    trace.write_text('{"type":"header","version":"2.0","metadata":{"clock_frequency_mhz":1000}}\n')
    store = tmp_path / "store"
    program.run([*COMMAND, "import", "--store", store, trace], capture_output=True)
    config = tmp_path / "tailrace.toml"
    config.write_text('[admin]\nlisten = "127.0.0.1:0"\n')
    # DuckDB counts the rows of a bare range at once.
    long = "SELECT count(*) FROM range(100_000_000_000) t(n) WHERE hash(n) = 0"
    more = {"serve": ["--config", config], "query": [long]}
    for step in range(8):
        process = program.start(
            [*COMMAND, command, "--store", store, *more[command]],
            executable=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        try:
            until(lambda: expects_signals(process), "the first steps")  # noqa: B023 - used at once
            time.sleep(step * 0.05)
            process.send_signal(number)
            _, errors = process.communicate(timeout=180)
        finally:
            process.kill()
        expected = {-number, 0} if command == "serve" else {-number}
        assert process.returncode in expected | ({130} if number == signal.SIGINT else set()), (
            errors
        )
        assert b"Traceback" not in errors


def test_the_program_of_a_run_gets_what_came_before_it_was_started(tmp_path):
    """And none of them waits in its own mask."""
    waits = (
        "import signal, time; print(signal.pthread_sigmask(signal.SIG_BLOCK, ())); time.sleep(60)"
    )
    with program.start(
        [*COMMAND, "run", "--store", tmp_path / "store", "--", sys.executable, "-c", waits],
        executable=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        until(lambda: has(masks(process)["SigBlk"], signal.SIGUSR1), "its first steps")
        process.send_signal(signal.SIGUSR1)
        said, errors = process.communicate(timeout=180)
    assert process.returncode == 128 + signal.SIGUSR1, errors
    assert said in {b"", b"set()\n"}
    assert b"the program" in errors or b"certificate" in errors


def test_a_program_under_nohup_keeps_ignoring_what_it_should(tmp_path):
    shows = "import signal; print(signal.getsignal(signal.SIGHUP) is signal.SIG_IGN, signal.pthread_sigmask(signal.SIG_BLOCK, ()))"
    command = [*COMMAND, "run", "--store", tmp_path / "store", "--", sys.executable, "-c", shows]
    done = subprocess.run(
        ["sh", "-c", 'trap "" HUP; exec "$@"', "sh", *command], capture_output=True, text=True, check=False
    )  # fmt: skip
    assert done.stdout == "True set()\n", done.stderr
