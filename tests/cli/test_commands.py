"""The command line's frame: names, options and exit codes that all subcommands share."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

import tailrace
from tailrace import configuration, kernels
from tailrace.cli.commands import COMMANDS, GROUPS, Commands, load, tailrace as group
from tailrace.cli.options import config_option, load_config, store_option
from tailrace.config.schema import StoreConfig
from tailrace.daemon.loops import upkeep
from tailrace.demo import tour
from tailrace.errors import ConfigError, StoreError, SyncError
from tests import toml
from tests.cli.command import run
from tests.query.tables import make, row

COLLECTOR = Path(tailrace.__path__[0])
VECTORS = Path(__file__).parent.parent / "vectors"
REFERENCE = COLLECTOR.parents[1] / "config/tailrace.toml"


class One(Commands):
    """A group of which every command is the one given."""

    def __init__(self, callback):
        super().__init__("tailrace")
        self._command = click.Command("x", callback=callback)

    def get_command(self, ctx, cmd_name):
        return self._command


def run_raising(error):
    def callback():
        raise error

    return CliRunner().invoke(One(callback), ["x"])


HEAVY = frozenset({
    "_duckdb", "arro3", "asyncio", "cryptography", "deltalake", "duckdb", "email", "h11", "http", "numpy", "obstore", "pandas",
    "prometheus_client", "pyarrow", "rich", "starlette", "tailrace.decoding.formats", "trio", "uvicorn",
})  # fmt: skip
"""Packages that take tens of milliseconds to import."""

LATER = frozenset({"difflib", "ipaddress", "logging", "msgspec", "pathlib", "subprocess", "urllib"})
"""Modules that take milliseconds, which a command that only prints its own words does without."""


def imported(*arguments):
    """Run a command in a new process; return its output, and the modules that it has imported, also in a process that it
    forked.

    Once modules are loaded, the command collects no garbage.
    """
    script = (
        "import atexit, gc, os, sys; from tailrace.cli import main\n"
        "errors = os.dup(2)\n"
        "loaded = []\n"
        "gc.callbacks.append(lambda phase, _: loaded.append(len(sys.modules)))\n"
        "@atexit.register\n"
        "def told():\n"
        "    assert max(loaded, default=0) < 100, loaded\n"
        "    os.write(errors, (' '.join(sys.modules) + '\\n').encode())\n"
        f"sys.argv = ['tailrace', *{arguments!r}]\n"
        "main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=os.environ | {"PYTHONPATH": str(COLLECTOR.parent)},
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        check=True,
        timeout=120,
    )
    modules = {*done.stderr.split()}
    assert "click" in modules
    return done.stdout, modules


def heavy(modules):
    """Return which of `modules` are in HEAVY or LATER, or belong to a package that is."""
    return (modules | {module.partition(".")[0] for module in modules}) & (HEAVY | LATER)


def test_the_version_is_printed_with_what_finds_the_kernels():
    modules = imported("--version")[1]
    assert heavy(modules) <= {"ipaddress", "pathlib", "urllib"}


def test_help_lists_every_command_in_its_group_and_imports_nothing_heavy():
    output, modules = imported("--help")
    titles = re.findall(r"^(\S.*):$", output, re.MULTILINE)
    assert titles == ["Options", *GROUPS]
    for title, commands in GROUPS.items():
        lines = output.partition(f"\n{title}:\n")[2].partition("\n\n")[0].splitlines()
        shown = [tuple(line.strip().split(maxsplit=1)) for line in lines]
        assert shown == list(commands.items())
    assert heavy(modules) == set()


def test_a_command_is_in_one_group():
    assert len(COMMANDS) == sum(map(len, GROUPS.values()))


def test_the_options_of_a_command_import_nothing_heavy():
    """`--help` shows them, and a shell asks for them at each TAB."""
    script = (
        "import sys; from tailrace.cli.commands import COMMANDS, load\n"
        "for name in COMMANDS:\n"
        "    load(name); print(name, *{module.partition('.')[0] for module in sys.modules})"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=os.environ | {"PYTHONPATH": str(COLLECTOR.parent)},
        capture_output=True, text=True, check=True, timeout=120,
    )  # fmt: skip
    found = [line.split() for line in done.stdout.splitlines()]
    assert [name for name, *_ in found] == [*COMMANDS]
    assert {name: HEAVY & {*modules} for name, *modules in found if HEAVY & {*modules}} == {}


DECODES = {"tailrace.decoding.formats"}
READS = {"_duckdb", "arro3", "deltalake", "duckdb", "email"}
IMPORTS = DECODES | READS | {"pyarrow", "trio"}
COSTS = {
    ("check", "tailrace.toml"): (DECODES, 340),
    ("query", "--store", "store", "SELECT count(*) FROM spans"): (READS, 350),
    ("streams", "--store", "store"): (READS, 335),
    ("follow", "--store", "store", "--from-start", "--lines", "1"): (READS | {"pyarrow"}, 360),
    ("import", "--store", "new", "busy.in"): (IMPORTS, 640),
    ("verdict", "busy.in"): (IMPORTS, 650),
    ("run", "--store", "new", "--", "true"): (IMPORTS, 660),
}
"""For each command, the heavy packages that it loads, and the maximum number of all modules. Each module costs every run
of the command up to a millisecond."""


@pytest.mark.skipif(not kernels.active(), reason="kernels are off, or not built: make clean dev")
@pytest.mark.parametrize("command", COSTS, ids=" ".join)
def test_a_command_loads_only_what_it_needs(command, tmp_path, monkeypatch):
    make(tmp_path / "store", [row()])
    shutil.copy(VECTORS / "heph" / "busy.in", tmp_path)
    shutil.copy(REFERENCE, tmp_path)
    monkeypatch.chdir(tmp_path)
    modules = imported(*command)[1]
    found, most = COSTS[command]
    assert heavy(modules) - LATER == found
    assert len(modules) <= most


READING = {
    "collectors",
    "export",
    "follow",
    "gaps",
    "query",
    "ranks",
    "stats",
    "streams",
    "top",
    "view",
}


@pytest.mark.parametrize("name", sorted(READING))
def test_a_command_that_reads_takes_the_store_as_an_argument_too(name, tmp_path):
    """Both at once are wrong usage."""
    needed = {"export": ["--to", "csv", "-o", str(tmp_path / "a")], "query": ["SELECT 1"]}
    words = [name, *needed.get(name, []), "--store", "a", "b"]
    twice = CliRunner().invoke(group, words)
    assert twice.exit_code == 2
    assert "give the store either as STORE or with --store" in twice.output


@pytest.mark.parametrize("words", [("query", "SELECT count(*) FROM spans"), ("stats",)])
def test_the_store_given_as_an_argument_is_read(tmp_path, words):
    make(tmp_path / "store", [row()])
    of_argument = run(*words, tmp_path / "store")
    assert of_argument == run(*words, "--store", tmp_path / "store")


@pytest.mark.parametrize("name", COMMANDS)
def test_every_name_is_a_command(name):
    done = CliRunner().invoke(group, [name, "--help"])
    assert done.exit_code == 0, done.output
    assert done.output.startswith(f"Usage: tailrace {name} ")


@pytest.mark.parametrize("name", sorted({*COMMANDS} - {"completion", "import", "view"}))
def test_every_command_speaks_json(name):
    """`view` answers over HTTP, in JSON. `completion` prints a program."""
    options = {option for param in load(name).params for option in param.opts}
    assert "--json" in options


def test_every_command_is_listed():
    modules = {path.stem for path in (COLLECTOR / "cli").glob("*.py")} - {"__init__"}
    found = {
        name.removesuffix("_command")
        for module in modules
        for name in vars(import_module(f"tailrace.cli.{module}"))
        if name.endswith("_command")
    }
    assert found == {*COMMANDS}


def test_the_version_is_the_packages():
    assert (
        CliRunner().invoke(group, ["--version"]).output
        == f"tailrace {tailrace.__version__}, kernels: {kernels.word()}\n"
    )


def test_a_misspelled_command_is_wrong_usage_with_the_nearest_one():
    done = CliRunner().invoke(group, ["chekc"])
    assert done.exit_code == 2
    assert "there is no command 'chekc'; did you mean 'check'?" in done.output


def test_an_unknown_command_is_wrong_usage():
    done = CliRunner().invoke(group, ["zzz"])
    assert done.exit_code == 2
    assert "No such command 'zzz'" in done.output


def test_an_error_is_its_text_and_exit_code_one():
    done = run_raising(StoreError("the table is not ours"))
    assert (done.exit_code, done.stderr, done.stdout) == (
        1,
        "tailrace: the table is not ours\n",
        "",
    )


def test_wrong_configuration_is_a_line_a_problem_and_exit_code_two():
    done = run_raising(ConfigError(["a.toml:1: one", "a.toml:2: two"]))
    assert (done.exit_code, done.stderr) == (2, "a.toml:1: one\na.toml:2: two\n")


def test_errors_in_groups_are_said_each_by_itself():
    group_ = ExceptionGroup("trio's", [StoreError("one"), ExceptionGroup("", [SyncError("two")])])
    done = run_raising(group_)
    assert (done.exit_code, done.stderr) == (1, "tailrace: one\ntailrace: two\n")


def test_an_interrupt_in_a_group_is_an_interrupt():
    done = run_raising(BaseExceptionGroup("trio's", [KeyboardInterrupt(), StoreError("one")]))
    assert done.exit_code == 130


def test_what_is_still_buffered_for_a_reader_that_went_away_ends_it_quietly():
    script = (
        "import click, sys\n"
        "from tailrace import standard; standard.begin()\n"
        "from tailrace.cli.commands import Commands\n"
        "class One(Commands):\n"
        "    def get_command(self, ctx, cmd_name):\n"
        "        return click.Command('x', callback=lambda: sys.stdout.write('buffered'))\n"
        "One('tailrace')(['x'])"
    )
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    unread, full = os.pipe()
    os.close(unread)
    try:
        done = subprocess.run(
            [sys.executable, "-c", script],
            env=environ | {"PYTHONPATH": str(COLLECTOR.parent)},
            stdout=full,
            stderr=subprocess.PIPE,
            check=False,
            timeout=120,
        )
    finally:
        os.close(full)
    assert (done.returncode, done.stderr) == (141, b"")


@pytest.mark.parametrize(
    "error", [ZeroDivisionError("ours"), ExceptionGroup("", [StoreError(""), ZeroDivisionError()])]
)
def test_a_mistake_of_ours_is_not_hidden(error):
    assert run_raising(error).exception is error


@pytest.fixture
def show(monkeypatch):
    """Run a command with the common options; it prints the store's path."""
    for name in [name for name in os.environ if name.startswith("TAILRACE_")]:
        monkeypatch.delenv(name)

    @click.command()
    @config_option
    @store_option
    def command(config, store):
        click.echo(load_config(config, store).config.store.path)

    return lambda *arguments: CliRunner().invoke(command, [str(a) for a in arguments])


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "file.toml"
    path.write_text(toml.section("store", path="of the file"))
    return path


def test_the_store_is_that_of_the_option_or_else_of_the_file(show, file):
    assert show("--config", file).stdout == "of the file\n"
    assert show("--config", file, "--store", "of the option").stdout == "of the option\n"
    assert show().stdout == "\n"


def test_the_file_is_that_of_the_option_or_else_of_the_environment(show, file, monkeypatch):
    monkeypatch.setenv("TAILRACE_CONFIG", str(file))
    assert show().stdout == "of the file\n"
    assert show("--config", os.devnull).stdout == "\n"
    monkeypatch.setenv("TAILRACE_CONFIG", "")
    assert show().stdout == "\n"


@pytest.fixture
def places(tmp_path, monkeypatch):
    """Return a function that writes a file in the user's place, or in that of the host."""
    user, system = tmp_path / "user/tailrace", tmp_path / "system"
    monkeypatch.setenv("XDG_CONFIG_HOME", str(user.parent))
    monkeypatch.setattr(configuration, "SYSTEM_DIRECTORY", system)

    def write(directory, path):
        directory.mkdir(parents=True)
        (directory / "tailrace.toml").write_text(toml.section("store", path=path))

    return lambda: write(user, "of the user"), lambda: write(system, "of the host")


def test_or_else_it_is_the_users_or_else_the_hosts(show, places, file, monkeypatch):
    of_user, of_host = places
    assert show().stdout == "\n"
    of_host()
    assert show().stdout == "of the host\n"
    of_user()
    assert show().stdout == "of the user\n"
    monkeypatch.setenv("TAILRACE_CONFIG", str(file))
    assert show().stdout == "of the file\n"
    assert show("--config", os.devnull).stdout == "\n"


@pytest.mark.parametrize(
    "environ",
    [lambda: upkeep.environment(StoreConfig(), {}), tour.environment],
    ids=["upkeep", "demo"],
)
def test_a_command_that_tailrace_starts_with_settings_of_its_own_reads_none(
    show, places, environ, monkeypatch
):
    """The upkeep has the daemon's settings, and the demonstration its own."""
    of_user, _ = places
    of_user()
    monkeypatch.setenv("TAILRACE_CONFIG", environ()["TAILRACE_CONFIG"])
    assert show().stdout == "\n"


def test_a_relative_directory_for_configuration_is_ignored(show, places, tmp_path, monkeypatch):
    of_user, _ = places
    of_user()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", "user")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert show().stdout == "\n"


def test_a_file_of_the_host_that_this_user_may_not_read_is_passed_over(show, places, monkeypatch):
    _, of_host = places
    of_host()
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may read each file
    assert show().stdout == "\n"


def test_a_wrong_configuration_ends_a_command_with_its_problems(show, file):
    file.write_text("[stor]\n[spol]\n")
    done = show("--config", file)
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr == (
        f"{file}:1: stor: unknown section; did you mean store?\n"
        f"{file}:2: spol: unknown section; did you mean spool?\n"
    )
