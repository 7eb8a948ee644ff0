"""Define `tailrace run`, which runs a program beside a collector of its own."""

from __future__ import annotations

import gc
import os
import sys
import traceback
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import click

from tailrace import heaps, log
from tailrace.cli import options
from tailrace.cli.commands import ExitCode, examples
from tailrace.clock import SystemClock
from tailrace.config.load import Loaded, store_path
from tailrace.configuration import choose
from tailrace.errors import TailraceError
from tailrace.filesystem import spelled
from tailrace.run import launcher, surroundings
from tailrace.standard import STDERR, never_wait
from tailrace.terminal import in_colour

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tailrace.run.certificate import Certificate
    from tailrace.run.launcher import LaunchedRank
    from tailrace.run.meeting import NodeSpec
    from tailrace.run.program import RunDone


T = TypeVar("T")


class GivenOptions(NamedTuple):
    """The values of those options of `tailrace run` that concern the collector and the certificate."""

    config: Path | None
    store: str | None
    max_loss: int | None
    files: tuple[str, ...]
    path: Path | None
    key: Path | None


@click.command(
    context_settings={"ignore_unknown_options": True},
    epilog=examples(
        "tailrace run -- python train.py",
        "tailrace run --store ./run --max-loss 0 -- python train.py",
    ),
)
@options.config_option
@click.option(
    "--store",
    metavar="DIR",
    shell_complete=options.complete_directories,
    help="Directory or URL of the table; by default a new directory, tailrace-run-TIME-HOST-PROCESS. Under a launcher, each node has a table below it, named by the node; by default in tailrace-job-JOB.",
)
@click.option(
    "--max-loss",
    metavar="N",
    type=click.IntRange(min=0),
    help="Exit with 4 if more events than this are missing, if their number is unknown, or if a program that succeeds was not traced.",
)
@click.option(
    "--source",
    "files",
    metavar="FORMAT=PATH",
    multiple=True,
    help="Also follow this file or directory, such as et3=./trace.",
)
@click.option(
    "--certificate",
    "path",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Write the certificate to FILE; by default to certificate.json beside the table. If the file exists, the name gets a number.",
)
@options.sign_option
@click.option(
    "--require-trace",
    "require",
    is_flag=True,
    help="Do not run the program if it cannot be traced; exit with 1 if tracing fails later.",
)
@options.json_option("Print one JSON object on standard error in place of the text.")
@click.argument(
    "arguments", metavar="-- PROGRAM [ARGS]...", nargs=-1, required=True, type=click.UNPROCESSED,
    shell_complete=options.complete_files,
)  # fmt: skip
@options.received_as("given", GivenOptions, GivenOptions._fields)
def run_command(
    arguments: tuple[str, ...], *, given: GivenOptions, require: bool, as_json: bool
) -> None:
    """Run a program beside a collector that receives its events, then report and certify what was traced.

    Environment variables tell the program where the collector is: TAILRACE_ADDRESS (for the clients),
    TAILRACE_HEPH_UDP, TAILRACE_HEPH_TCP and TAILRACE_JETS_TCP (host:port). DFTRACER_* and OVNI_TRACEDIR configure its
    tracers. Variables that are set already stay unchanged, with one exception: TAILRACE_STORE_PATH names the table of
    this run, unless TAILRACE_ADDRESS or TAILRACE_STORE_PATH_FILE is set. If tracing fails, the program still runs,
    unless --require-trace is given. The exit status is the program's own. With --max-loss, it is 4 if more events are
    missing than --max-loss allows, or if nothing was traced. It is 127 if the program does not exist.

    Under a launcher of parallel jobs (srun, mpirun, mpiexec, flux run), the ranks of a node share one collector and one
    table. The rank that ends last reports and certifies what the node stored, and --max-loss applies to the whole node;
    the other ranks return the exit status of their programs. `tailrace merge` makes one table and one certificate of
    all nodes. If the launcher does not name the node or the job, set TAILRACE_JOB_NODE and TAILRACE_JOB_ID. In a batch
    script, a program without a launcher gets a table and a certificate of its own. So does a program that starts while
    another program of the same rank runs.

    Other users of the host can reach the collector's addresses, too. Their events are refused and counted, and the
    certificate includes none of them. Together with TAILRACE_ADDRESS, the program gets TAILRACE_TOKEN and
    TAILRACE_TOKEN_ADDRESS. The C client sends events to TAILRACE_TOKEN_ADDRESS at once. To any other address with a
    token, it sends them after 100 ms without a refusal of the token. If a token is set already, the program gets
    neither variable.

    A tracer that is killed may leave a trace file without content. The certificate names these files, and it calls the
    loss unknown.

    The certificate also states which part of the program's CPU time it took to record and send events. The compiled
    Python client estimates this: it times some of its events, and states the estimate at the end of its session. The
    estimate leaves out the calls from Python into the client, which may take longer than the recording. The part is
    unknown for other clients, for a process that emitted fewer than 64 events, and for a process that was killed.

    The certificate includes only events that reached the collector of this run. It does not cover events that the
    program sends to another address, or writes to a file that no --source follows.

    With --json: `arguments` and `exit_status` of the program; whether it was `traced`; `failures` of tracing;
    connections and datagrams of other users that were `refused`, by cause; connections for which the collector had
    `no_room`, and trace files that are `empty` (either way, an unknown number of events may be missing); and the path of
    the `certificate`. The members `sha256`, `store`, `totals`, `tracing` (CPU times in ns) and `streams` (those
    that lack events) are from the certificate; they are null without one."""
    never_wait(STDERR)
    surroundings.followed(given.files)
    report = Report(as_json=as_json, require=require)
    rank = launcher.launched(os.environ, os.uname().nodename)
    if rank is None:
        done = run_alone(given, arguments, report)
    else:
        done = run_rank(rank, given, arguments, report)
    report.print_summary(done, arguments)
    failed = require and bool(report.failures)
    raise SystemExit(exit_status(done, given.max_loss, failed=failed))


def run_alone(given: GivenOptions, arguments: tuple[str, ...], report: Report) -> RunDone:
    """Run a program that no launcher of parallel jobs started, with a collector of its own."""
    from tailrace.run import program

    program.find(arguments)
    service = report.attempt(program.NOT_TRACED, _collector)
    prepared = report.attempt(program.NOT_TRACED, lambda: prepare(given)) if service else None
    if service is None or prepared is None:
        return program.untraced(arguments)
    loaded, directory = prepared
    private = given.key and report.attempt(
        "the certificate is not signed", lambda: options.signatures().load(given.key)
    )
    wanted = service.RunRequest(
        arguments=arguments, files=given.files, max_loss=given.max_loss or 0, require=report.require,
        traces=(directory / "traces").absolute(),
    )  # fmt: skip
    done: RunDone = service.run(loaded, wanted, report.warn)
    if done.certificate:
        report.publish(done.certificate, given.path or directory / "certificate.json", private)
    return done


def _collector() -> ModuleType:
    heaps.load_arrow()
    service = import_module("tailrace.run.service")
    # Exempt the loaded modules from garbage collection, as `serve` does.
    gc.freeze()
    return service


def run_rank(
    rank: LaunchedRank, given: GivenOptions, arguments: tuple[str, ...], report: Report
) -> RunDone:
    """Run the program of one rank that a launcher of parallel jobs started. All ranks of the node share one
    collector."""
    from tailrace.run import program

    member = report.attempt(program.NOT_TRACED, lambda: import_module("tailrace.run.member"))
    if member is None:
        return program.untraced(arguments)
    wanted = member.RankWanted(
        rank=rank, arguments=arguments, files=given.files, store=given.store,
        prepare=lambda of: prepare_node(of, given), require=report.require,
    )  # fmt: skip
    done: RunDone
    done, report.path = member.run(wanted, report.warn)
    return done


def prepare_node(rank: LaunchedRank, given: GivenOptions) -> NodeSpec:
    """Choose the store and make its directory. All ranks of a node share the store, except a rank with a collector of
    its own. Raise TailraceError or OSError if the directory cannot be made."""
    from tailrace.run.meeting import NodeSpec

    now = SystemClock().wall_ns() // 10**9
    name = launcher.node_store_name(now, os.getpid(), rank)
    loaded = choose(given.config, given.store or name)
    store = f"{store_path(loaded.config).rstrip('/')}/{launcher.file_name(rank.node)}"
    if given.store is None:
        directory = launcher.unused(Path(name))
        store = str(directory)
    elif "://" in store:
        directory = launcher.unused(Path(name))
        if rank.alone:
            store = f"{store.rpartition('/')[0]}/{directory.name}"
    elif rank.alone:
        directory = launcher.unused(Path(store))
        store = str(directory)
    else:
        directory = Path(store)
        directory.mkdir(parents=True, exist_ok=True)
    path = given.path or directory / "certificate.json"
    return NodeSpec(
        config=str(given.config) if given.config else None, store=store, directory=str(directory),
        node=rank.node, job=rank.job, size=rank.size, local_size=1 if rank.alone else rank.local_size,
        max_loss=given.max_loss or 0, certificate=str(path), sign=str(given.key) if given.key else None,
    )  # fmt: skip


class Report:
    """Prints the messages of a run on standard error. With `require`, an error that prevents tracing is raised instead
    of printed, if the program has not started yet."""

    def __init__(self, *, as_json: bool, require: bool) -> None:
        self.failures: list[str] = []
        self._as_json = as_json
        self.require = require
        self.path: Path | None = None

    def attempt(self, without: str, call: Callable[[], T]) -> T | None:
        """Call a function and return its result. If the function fails, print a warning that begins with `without`, and
        return None. If tracing is required, raise the function's error instead."""
        try:
            return call()
        except Exception as error:
            if self.require:
                raise
            self.warn(without, error)
            return None

    def warn(self, what: str, error: Exception) -> None:
        expected = isinstance(error, TailraceError | OSError | ImportError)
        self.failures.append(f"{what}: {error}" if expected else f"{what}: {error!r}")
        if not self._as_json:
            text = f"tailrace: {self.failures[-1]}"
            click.echo(click.style(text, bold=True) if in_colour(sys.stderr) else text, err=True)
        if not expected:
            # Print the traceback, because an unexpected error is a bug in Tailrace.
            traceback.print_exception(error)

    def publish(self, certificate: Certificate, wished: Path, private: object) -> None:
        """Sign the certificate if there is a private key, and write it to the path `wished`. If this file exists
        already, write the certificate under another name."""
        from tailrace.run import certificate as certificates

        if private:
            options.signatures().sign(certificate, private)
        try:
            self.path = certificates.write(certificate, wished)
        except TailraceError as error:
            self.warn("the certificate could not be written", error)
            return
        if self.path != wished and not self._as_json:
            click.echo(f"tailrace: {wished} is an earlier certificate and is kept", err=True)

    def print_summary(self, done: RunDone, arguments: Sequence[str]) -> None:
        from tailrace.run import summary

        if self._as_json:
            given = [*map(spelled, arguments)]
            words = summary.document(done, given, self.path, self.failures)
            sys.stderr.buffer.write(words)
            sys.stderr.flush()
        elif done.certificate:
            for line in summary.lines(done.certificate, self.path, done.refused):
                sys.stderr.write(f"{line}\n")


def prepare(given: GivenOptions) -> tuple[Loaded, Path]:
    """Load the configuration of a run. Return the configuration, and the directory for the certificate and the traces.
    If the user named no store, make a directory for the store, with the time in its name. Raise TailraceError or
    OSError if this fails."""
    now = SystemClock().wall_ns() // 10**9
    name = launcher.store_name(now, os.uname().nodename, os.getpid())
    loaded = choose(given.config, given.store or name)
    directory = Path(store_path(loaded.config))
    if given.store is None or "://" in store_path(loaded.config):
        directory = launcher.unused(Path(name))
    if given.store is None:
        loaded = choose(given.config, str(directory))
    log.configure(loaded.config.log, quiet=True)
    return loaded, directory


def exit_status(done: RunDone, max_loss: int | None, *, failed: bool) -> int:
    """Return the exit status of `tailrace run`: the status of the user's program, LOSS, or FAILED. With `max_loss`, it
    is LOSS if too many events are missing or nothing was traced. `failed` states whether tracing was required and
    failed.
    """
    if done.certificate:
        lost = done.certificate.untraced or not done.certificate.within_budget
    else:
        lost = not (done.status or done.others)
    if lost and max_loss is not None:
        return ExitCode.LOSS
    return done.status or (ExitCode.FAILED if failed else ExitCode.GOOD)
