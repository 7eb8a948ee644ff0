"""The site: links of all pages lead to headings that exist, and what `make site` builds needs no network."""

from __future__ import annotations

import re
import subprocess

import pytest

from docs.site.markdown import anchor, anchors, promote, relink, spaced, split, targets
from docs.site.pages import INDEX, LONGEST_WORDS, MARKDOWN, README, Site, chapters, resolve, sources
from tests.docs.pages import ROOT
from tests.view.browser.conftest import browser  # noqa: F401 - a fixture
from tests.view.browser.pages import SECONDS

NAVIGATION = chapters((ROOT / "docs/site/zensical.toml").read_text())
FOLDERS = ("benchmarks", "clients", "collector", "deploy", "docs", "tests")
SAMPLE = "tests/benchmarks/sample/performance.md"
"""A page whose links are right where the published one is."""
PAGES = sorted(
    str(path.relative_to(ROOT))
    for path in (
        *ROOT.glob("*.md"),
        *(page for name in FOLDERS for page in (ROOT / name).rglob("*.md")),
    )
    if str(path.relative_to(ROOT)) != SAMPLE
)
LONG = {"docs/performance/ratios", "config/tailrace.toml"}
"""Tables and files in which readers search."""
BUILDER = ROOT / ".venv/site/bin/python"


@pytest.mark.parametrize("page", PAGES)
def test_every_link_leads_to_a_heading(page):
    for target in targets((ROOT / page).read_text()):
        found, fragment = resolve(page, target), target.partition("#")[2]
        if fragment:
            assert anchors((ROOT / found).read_text()).count(fragment) == 1, target


def test_the_site_has_every_page_but_those_for_developers():
    left_out = {page for page in PAGES if not page.startswith(("tests/", "docs/decisions/"))}
    assert left_out <= set(Site(NAVIGATION).pages)


def test_no_page_overwrites_another():
    """Sections whose titles begin alike could become one file."""
    paths = [path for path, _ in Site(NAVIGATION).files()]
    assert len({path.casefold() for path in paths}) == len(paths) > 200


def test_no_page_is_hidden_behind_the_title_of_a_section():
    """Zensical shows the page of a section's first `index` when a reader selects the section."""
    site = Site(NAVIGATION)
    pages = [site.pages[source] for source in sources(NAVIGATION)]
    assert [page.source for page in pages if page.path.endswith(INDEX) and not page.parts] == [
        README
    ]


def test_no_page_takes_longer_than_ten_minutes():
    site = Site(NAVIGATION)
    lengths = {path: len(text.split()) for path, text in site.files()}
    parts = [part for source in sources(NAVIGATION) for part in site.pages[source].all()]
    long = {page.path for page in parts if lengths[page.path] > LONGEST_WORDS}
    assert {path.removesuffix(MARKDOWN) for path in long} <= LONG
    assert f"collector/REFERENCE/commands/tailrace-verdict{MARKDOWN}" in lengths


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    if not BUILDER.exists():
        pytest.skip("needs the generator of the site: make site")
    directory = tmp_path_factory.mktemp("built") / "site"
    command = [BUILDER, "-m", "docs.site", directory]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "No issues found" in done.stderr
    return directory


def test_no_page_loads_anything_from_elsewhere(site):
    pages = list(site.rglob("*.html"))
    assert len(pages) > 200
    loading = re.compile(
        r"<(?:script|img|iframe|link rel=\"(?:stylesheet|icon|preconnect)\")[^>]*https?://[^>]*>"
    )
    assert [found for page in pages for found in loading.findall(page.read_text())] == []


@pytest.mark.parametrize("size", [(1280, 800), (390, 844)], ids=["large", "small"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_page_that_is_opened_from_the_disk_can_search(site, browser, scheme, size):  # noqa: F811
    context = browser.new_context(
        viewport={"width": size[0], "height": size[1]}, color_scheme=scheme
    )
    page = context.new_page()
    page.set_default_timeout(SECONDS * 1000)
    said, requests = [], []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda request: requests.append(request.url))
    page.goto(f"file://{site}/docs/start.html")
    page.locator("label[for=__search]:visible, .md-search__button:visible").first.click()
    words = page.get_by_role("combobox", name="Search")
    words.press_sequentially("quarantine")
    page.get_by_role("option", name="quarantine").first.wait_for()
    assert words.input_value() == "quarantine"
    assert page.evaluate("document.documentElement.scrollWidth") <= size[0]
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, re.findall(r"\d+", background)[:3])) < 384) == (scheme == "dark")
    assert said == []
    assert [url for url in requests if not url.startswith(("file:", "data:", "about:"))] == []
    context.close()


PAGE = """# Title

Words and
- an item: [a `b` c](one.svg#two), ![drawn](a.svg), [the web](https://example.org/a)

```sh
# no heading [no](link)
```

## `one [OPTIONS] PATH...`

`[no](link)` text
- item
- item

### Inner: *more*

## Two
"""


def test_headings_have_the_anchors_of_github():
    assert anchors(PAGE) == ["title", "one-options-path", "inner-more", "two"]
    assert anchor("A [link](x), and `code_1` -- more") == "a-link-and-code_1----more"


def test_links_are_found_and_replaced_outside_of_code():
    assert targets(PAGE) == ["one.svg#two", "a.svg"]
    changed = relink(PAGE, {"one.svg#two": "1", "a.svg": "2"})
    assert changed == PAGE.replace("one.svg#two", "1").replace("a.svg", "2")


def test_sections_become_pages():
    head, ((first, text), (second, rest)) = split(PAGE, 2)
    assert head + text + rest == PAGE
    assert (first, second, rest) == ("`one [OPTIONS] PATH...`", "Two", "## Two\n")
    assert promote(text).startswith("# `one [OPTIONS]")
    assert "\n## Inner" in promote(text)


def test_a_list_is_one_for_python_too():
    assert spaced(PAGE).splitlines() == [
        "# Title", "", "Words and", "", *PAGE.splitlines()[3:12], "", *PAGE.splitlines()[12:],
    ]  # fmt: skip


def test_a_link_that_leads_nowhere_is_an_error():
    with pytest.raises(FileNotFoundError, match=r"start\.md: a link leads to docs/nothing"):
        resolve("docs/start.md", "nothing")
