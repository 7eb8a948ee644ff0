"""Provide a real daemon, a real viewer and a real browser. Every page that a test opens is watched to its end."""

from __future__ import annotations

import importlib.util
import shutil

import pytest

from tailrace.config.schema import OWN_SOURCE
from tests.system.collector import Collector, until
from tests.view.browser.pages import Watched
from tests.view.browser.programs import simulate
from tests.view.viewer import Viewer

LOST = 5


@pytest.fixture(scope="module")
def browser():
    """Return Chromium. Playwright keeps an event loop running, which would disturb tests in other files."""
    if importlib.util.find_spec("playwright") is None:
        pytest.skip("needs playwright: make dev")
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("needs Chromium: apt install chromium")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=chromium)
        yield browser
        browser.close()


@pytest.fixture
def live_viewer(collector):
    """Return a viewer of a running collector.

    Request it before `open_page`, so that pages are closed before it ends.
    """
    viewer = Viewer("--store", collector.store)
    yield viewer
    assert viewer.end() == (0, "")


@pytest.fixture
def open_page(browser, tmp_path):
    """Return a function that opens a page of a viewer.

    At the end, no page may have printed or requested anything unexpected. The directory `tmp_path`, in which the store
    of a page may be, is removed after the pages are closed: a page that still asks would get an error.
    """
    opened = []

    def open_(viewer, hash_="", **options):
        opened.append(Watched(browser, viewer, hash_, **options))
        return opened[-1]

    yield open_
    for each in opened:
        each.close()
    for each in opened:
        each.check()


@pytest.fixture(scope="package")
def run_of(tmp_path_factory):
    """Return a store with two runs of a simulation, the daemon that still runs on it, and the time at which the first
    run began.

    The second run lost five events, and its solves take about two and a half times as long, still within their steps.
    """
    collector = Collector(tmp_path_factory.mktemp("runs")).start()
    address = "tcp://{}:{}".format(*collector.address("tcp"))
    first = simulate(address)
    second = simulate(address, solve=4_900_000, lost_at=(30,), lost=LOST)
    yield Run(collector, first, second)
    collector.check_balance()
    collector.stop()


class Run:
    def __init__(self, collector, first, second):
        self.collector = collector
        self.first = first
        self.second = second


def runs(viewer):
    """Return the sessions of both runs, the first one first.

    After a minute, the collector's heartbeats are a third session.
    """
    found = [each for each in viewer.get("sessions")["sessions"] if each["source"] != OWN_SOURCE]
    return sorted(found, key=lambda each: int(each["begins"]))


@pytest.fixture(scope="package")
def runs_viewer(run_of):
    viewer = Viewer("--store", run_of.collector.store)
    until(
        lambda: len(runs(viewer)) == 2 and viewer.get("gaps")["total"] == 1,
        "both runs in the table",
    )
    yield viewer
    assert viewer.end() == (0, "")
