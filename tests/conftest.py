"""Options and fixtures of all tests."""

from __future__ import annotations

import gc
import inspect
import os
import signal
import sys
import tempfile

import pytest
from hypothesis import HealthCheck, settings

from tests.costs import Costs
from tests.forms import TURN, this_turn
from tests.order import turn
from tests.program import TRUE
from tests.system.collector import Collector

# Tests start hundreds of processes, and many images and shells forbid Python to keep the bytecode that these compile.
# This takes a third of their time.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# A configuration of the person who runs the tests is no part of them. Programs such as Chromium and fish write into
# this directory. All processes of a run have the same, and the first one removes it.
if "PYTEST_XDIST_WORKER" not in os.environ:
    settings_of_programs = tempfile.TemporaryDirectory(prefix="tailrace-tests-")
    os.environ["XDG_CONFIG_HOME"] = settings_of_programs.name

# Some shells let background processes ignore Ctrl-C, and then the programs that tests interrupt would ignore it, too.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Collecting 14,000 tests makes many objects but no garbage. Searching them for garbage takes half of the time. See
# `pytest_runtestloop`.
gc.disable()

# Set no deadline: a busy machine is no failure, nor is the first run in a new clone, which makes tables of characters.
settings.register_profile("drawn", deadline=None, suppress_health_check=[HealthCheck.too_slow])
# Properties get the same examples in every run, so that no change fails by chance. See README.md for other examples.
settings.register_profile("same", settings.get_profile("drawn"), derandomize=True, database=None)
if settings.get_current_profile_name() == "default":
    settings.load_profile("same")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slow", action="store_true", help="run the long forms too")
    parser.addoption("--costs", action="store_true", help="say at the end where the time went")
    parser.addoption(
        "--update-vectors",
        action="store_true",
        help="write what the decoders say now into tests/vectors/*/*.expect.jsonl; read the diff",
    )


def pytest_report_header() -> str:
    return f"turn: {TURN}={this_turn()}"


def pytest_configure(config: pytest.Config) -> None:
    this_turn()  # for all processes of this run
    if config.getoption("--slow"):
        os.environ[TRUE] = "1"
    if config.getoption("--costs"):
        config.pluginmanager.register(Costs())


@pytest.hookimpl(tryfirst=True)
def pytest_pycollect_makeitem(collector: pytest.Collector, obj: object) -> list[pytest.Item] | None:
    """Make no items of a long form without --slow: there are thousands, and each process of a run would make all."""
    if collector.config.getoption("--slow") or not inspect.isfunction(obj):
        return None
    marks = getattr(obj, "pytestmark", ())
    return [] if any(mark.name == "slow" for mark in marks) else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Remove the cases that only the long form runs (`tests.forms.in_turn`) without --slow.

    If there are several processes, the files that take longest come first.
    """
    if os.environ.get("PYTEST_XDIST_WORKER"):
        items.sort(key=lambda item: turn(item.path))
    if config.getoption("--slow"):
        return
    slow = [item for item in items if item.get_closest_marker("slow")]
    if slow:
        config.hook.pytest_deselected(items=slow)
        items[:] = [item for item in items if not item.get_closest_marker("slow")]


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop() -> None:
    """Collect garbage from here on, but do not search the tests themselves."""
    gc.freeze()
    gc.enable()


def pytest_unconfigure() -> None:
    """Let libraries tidy up at exit, when garbage is collected. Some would otherwise report a leak."""
    gc.unfreeze()


@pytest.fixture
def collectors(tmp_path_factory):
    """Return a function that makes collectors.

    At the end of the test, the ledgers of those that still run must balance, and so must the ledgers that were printed
    at a stop. Then all are ended.
    """
    made = []

    def make(**options):
        collector = Collector(tmp_path_factory.mktemp("collector"), **options)
        made.append(collector)
        return collector

    yield make
    try:
        for collector in made:
            collector.check_balance()
            collector.check_final_ledgers()
    finally:
        for collector in made:
            collector.end()


@pytest.fixture
def collector_of(collectors):
    """Return a function that makes and starts a collector. It is stopped in order at the end of the test."""
    made = []

    def make(**options):
        made.append(collectors(**options).start())
        return made[-1]

    yield make
    for collector in made:
        collector.check_balance()
        collector.stop()


@pytest.fixture
def collector(collector_of):
    """Return a started collector with one source of each kind."""
    return collector_of()


@pytest.fixture(scope="module")
def store(request, tmp_path_factory):
    """Return the store of a module whose tests only read it.

    It has a version of the table for each list of rows of `commits()`.
    """
    from tests.query.tables import make

    return make(tmp_path_factory.mktemp("store"), *request.module.commits())
