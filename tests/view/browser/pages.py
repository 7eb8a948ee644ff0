"""Open a page of the viewer in Chromium, and record everything that must not happen there."""

from __future__ import annotations

import importlib.util
import time
from pathlib import Path
from urllib.parse import urlsplit

SECONDS = 60
SIZE = (1280, 800)
PHONE = (360, 740)

AXE_TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]

PIXELS = """
([selector, wanted]) => {
  const canvas = document.querySelector(selector);
  if (!canvas?.width) return {};
  const pen = canvas.getContext('2d');
  const { data, width } = pen.getImageData(0, 0, canvas.width, canvas.height);
  const columns = {};
  for (let at = 0; at < data.length; at += 4) {
    if (Math.abs(data[at] - wanted[0]) < 4 && Math.abs(data[at + 1] - wanted[1]) < 4 && Math.abs(data[at + 2] - wanted[2]) < 4) {
      const column = (at / 4) % width;
      columns[column] = (columns[column] ?? 0) + 1;
    }
  }
  return columns;
}
"""
LOSS_STRIPE = {"light": (214, 51, 108), "dark": (240, 101, 149)}
"""The colour of the hatching over losses: `--loss-stripe` of theme.css."""


class Watched:
    def __init__(self, browser, viewer, hash_="", *, size=SIZE, scheme="light", token=True):
        self.scheme = scheme
        self._home = f"http://{viewer.host}:{viewer.port}/"
        self._context = browser.new_context(
            viewport={"width": size[0], "height": size[1]}, color_scheme=scheme, reduced_motion="reduce"
        )  # fmt: skip
        self.page = self._context.new_page()
        self.page.set_default_timeout(SECONDS * 1000)
        self.said = []
        self.requests = []
        self.expected = ["willReadFrequently"]
        """Parts of messages that a test expects or causes: those of Chromium about answers that are errors, and about
        tests that read pixels.
        """
        self.page.on("console", lambda message: self.said.append(f"{message.type}: {message.text}"))
        self.page.on("pageerror", lambda error: self.said.append(f"error: {error}"))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self._context.set_default_timeout(SECONDS * 1000)
        self.page.goto((viewer.url if token else self._home) + hash_)

    def become(self, scheme, size):
        """Change the preferred colours and the size of the window, as a person may do at any time."""
        self.scheme = scheme
        self.page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
        self.page.set_viewport_size({"width": size[0], "height": size[1]})
        self.page.wait_for_timeout(300)

    def check(self):
        odd = [each for each in self.said if not any(part in each for part in self.expected)]
        assert odd == [], odd
        elsewhere = [each for each in self.requests if not each.startswith((self._home, "data:", "blob:"))]  # fmt: skip
        assert elsewhere == [], elsewhere

    def close(self):
        self._context.close()

    @property
    def hash(self):
        return urlsplit(self.page.url).fragment

    def go(self, hash_):
        self.page.evaluate("hash => { location.hash = hash; }", hash_)

    def text(self, selector):
        return self.page.locator(selector).first.inner_text()

    def until(self, look, what):
        """Ask again until an answer is true, and return it.

        The page's policy does not allow waiting within the page.
        """
        end = time.monotonic() + SECONDS
        while not (found := look()):
            assert time.monotonic() < end, f"waited for {what}; console: {self.said}"
            self.page.wait_for_timeout(50)
        return found

    def until_text(self, selector, part):
        self.until(
            lambda: self.page.locator(selector).count() and part in self.text(selector),
            f"{part!r} in {selector}",
        )

    def lossy_columns(self, selector="canvas.lanes"):
        """Return which columns of pixels of a canvas have the colour of losses."""
        return sorted(self.lossy_pixels(selector))

    def lossy_pixels(self, selector="canvas.lanes"):
        """Return how many pixels of each column have the colour of losses, by column."""
        found = self.page.evaluate(PIXELS, [selector, LOSS_STRIPE[self.scheme]])
        return {int(column): pixels for column, pixels in found.items()}

    def shoot(self, path):
        path.parent.mkdir(exist_ok=True)
        self.page.screenshot(path=path)

    def violations(self):
        """Return what axe finds, as short texts."""
        wheel = importlib.util.find_spec("axe_playwright_python")
        source = (Path(wheel.origin).parent / "axe.min.js").read_text(encoding="utf-8")
        self.page.evaluate(source)
        found = self.page.evaluate(
            "tags => axe.run(document, { runOnly: tags }).then(found => found.violations)", AXE_TAGS
        )
        return [
            f"{each['id']}: {node['html'][:120]} {node['failureSummary']}"
            for each in found
            for node in each["nodes"]
        ]
