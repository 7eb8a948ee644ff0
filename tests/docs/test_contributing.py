"""The pages for contributors: their commands, targets, modules, paths and tools exist."""

from __future__ import annotations

import re
import subprocess
import tomllib
from itertools import pairwise

import pytest
import yaml

import tailrace
from tailrace.cli.commands import COMMANDS
from tests.docs.pages import ROOT

PAGES = [
    ROOT / page
    for page in (
        "CONTRIBUTING.md", "tests/README.md", "docs/ADD_A_FORMAT.md", "docs/stability.md", "docs/release.md",
        "CODE_OF_CONDUCT.md", "SECURITY.md", ".github/PULL_REQUEST_TEMPLATE.md",
    )
]  # fmt: skip
FORMS = sorted((ROOT / ".github/ISSUE_TEMPLATE").iterdir())
MAX_QUESTIONS = 5
MAKEFILE = (ROOT / "Makefile").read_text()
TARGETS = set(re.findall(r"^([a-z-]+):", MAKEFILE, re.MULTILINE))

each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)


def made(*arguments):
    done = subprocess.run(
        ["make", "--no-print-directory", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def test_help_lists_every_target():
    listed = dict(line.split(maxsplit=1) for line in made("help").splitlines())
    assert listed.keys() == TARGETS
    assert all(listed.values())
    assert set(re.search(r"^\.PHONY: (.*)$", MAKEFILE, re.MULTILINE)[1].split()) == TARGETS


def test_make_alone_sets_up():
    """So it does in a clone, whatever targets are added."""
    assert re.search(r"^([a-z-]+):", MAKEFILE, re.MULTILINE)[1] == "setup"


@each_page
def test_every_target_and_module_that_is_named_exists(page):
    text = page.read_text()
    assert set(re.findall(r"(?:`|^)make ([a-z-]+)", text, re.MULTILINE)) <= TARGETS
    for module in re.findall(r"python -m (tests[.\w]*)", text):
        path = ROOT / module.replace(".", "/")
        assert path.with_suffix(".py").is_file() or (path / "__main__.py").is_file(), module


@each_page
def test_every_path_that_is_named_exists(page):
    paths = re.findall(
        r"`((?:\.ci|tests|collector|clients|config|deploy|docs)/[\w./-]+)`", page.read_text()
    )
    ours = {"collector/tailrace/decoding/formats/toy.py"}
    for path in set(paths) - ours:
        found = path.removesuffix("/NAME")
        assert "FORMAT" in path or (ROOT / found).exists(), path


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.stem)
def test_an_issue_form_is_short_and_names_commands_that_exist(form):
    text = form.read_text()
    body = yaml.safe_load(text)["body"]
    questions = [part for part in body if part["type"] != "markdown"]
    assert 1 <= len(questions) <= MAX_QUESTIONS
    assert len({part["id"] for part in questions}) == len(questions)
    assert all(part["attributes"]["label"] for part in questions)
    assert set(re.findall(r"`tailrace ([a-z]+)", text)) <= COMMANDS.keys()


def test_a_report_of_a_defect_asks_for_a_bundle():
    assert "Archive of `tailrace bundle`" in (ROOT / ".github/ISSUE_TEMPLATE/bug.yml").read_text()


def test_a_citation_names_this_version_and_its_licence():
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert cited["version"] == tailrace.__version__
    assert cited["license"] == project["license"]
    assert cited["abstract"].rstrip(".") == project["description"]


def test_each_interface_has_a_label_that_is_explained():
    text = (ROOT / "docs/stability.md").read_text()
    rows = re.findall(r"^\| [^|]+ \| (\w+) \|", text, re.MULTILINE)[1:]
    assert set(rows) == set(re.findall(r"^- \*\*(\w+)\*\*: ", text, re.MULTILINE))


@pytest.mark.parametrize("page", PAGES[:2], ids=lambda page: page.stem)
def test_every_test_that_is_to_be_run_is_found(page):
    """Each command's files hold tests whose names have the word that it selects by."""
    commands = re.findall(r"python -m pytest ([^\n`]*)", page.read_text())
    assert commands
    for command in sorted(set(commands)):
        paths, word = _selection(command.split())
        for path in paths:
            place = ROOT / path
            files = place.rglob("test_*.py") if place.is_dir() else [place]
            texts = [file.read_text() for file in files]
            assert any(re.search(rf"def test_\w*{word}", text) for text in texts), (path, word)


def _selection(words):
    """Return the files or folders of a command, and what it selects by."""
    values = {name: value for name, value in pairwise(words) if name == "-k"}
    paths = [word for word in words if word.startswith(("tests", "clients"))]
    known = {*paths, *values, *values.values(), "-q", "-x", "--update-vectors"}
    assert set(words) <= known, words
    return paths, values.get("-k", "")


def test_every_folder_of_tests_has_a_row():
    shown = re.findall(r"^\| (`.*?`) \|", (ROOT / "tests/README.md").read_text(), re.MULTILINE)
    rows = {name for row in shown for name in re.findall(r"`(\w+)`", row)}
    there = {path.name for path in (ROOT / "tests").iterdir() if path.is_dir()} - {"__pycache__"}
    assert there <= rows


def test_pre_commit_runs_the_tools_of_lint():
    """The formatter may write before a commit; the others are called as `make lint` calls them."""
    (repository,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    assert repository["repo"] == "local"
    hooks = {hook["entry"].replace(" --force-exclude", "") for hook in repository["hooks"]}
    lint = made("--dry-run", "--assume-old=.venv/ready-dev", "lint")
    tools = {line.replace(" --check .", "").removesuffix(" .") for line in lint.splitlines()}
    assert tools == hooks
    assert all(hook["language"] == "system" for hook in repository["hooks"])


def test_all_newcomers_are_led_to_these_pages():
    readme, contributing = ((ROOT / name).read_text() for name in ("README.md", "CONTRIBUTING.md"))
    assert "(CONTRIBUTING.md)" in readme
    assert "(docs/ADD_A_FORMAT.md)" in contributing
    assert "(tests/README.md)" in contributing
