"""The interpreter is ours: modules and variables of a user reach the user's program, and nothing else."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import socket
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

import tailrace
from tailrace import cli
from tailrace.cli.commands import ExitCode, load
from tailrace.interpreter import HOME, THREADS, command
from tailrace.store.upkeep import CROWDED
from tests import program
from tests.ingest.log import heph_event
from tests.query.tables import make, row
from tests.system.test_upkeep import MANY_COMMITS, await_upkeep, send_by_commits

FOREIGN = """
import os
with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "IMPORTED"), "a") as log:
    log.write(__name__ + "\\n")
raise ImportError("a module of the user's: " + __name__)
"""
NAMES = (
    "arro3", "attr", "click", "deltalake", "duckdb", "h11", "json", "logging", "msgspec", "numpy", "pandas", "pathlib",
    "prometheus_client", "pyarrow", "queue", "random", "rich", "signal", "socket", "tempfile", "trio", "typing",
)  # fmt: skip
"""Modules of users with the names of what Tailrace imports, from its packages and from the standard library."""

PACKAGES = sysconfig.get_path("purelib")
SELECT = "SELECT count(*) AS n FROM spans"


def foreign(directory, *names):
    """Make a directory of modules with these names, none of which may be imported."""
    directory.mkdir(exist_ok=True)
    for name in names:
        (directory / f"{name}.py").write_text(FOREIGN)
    return directory


def without(*names, **more):
    return {name: value for name, value in os.environ.items() if name not in names} | more


def run(*arguments, python=(sys.executable, "-m", "tailrace"), **options):
    return subprocess.run(
        [*map(str, (*python, *arguments))],
        capture_output=True, text=True, timeout=120, check=False, **options,
    )  # fmt: skip


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    return make(tmp_path_factory.mktemp("table"), [row(name="one")], [row(name="two")])


def test_no_module_of_the_users_search_path_is_imported(tmp_path, table):
    place = foreign(tmp_path / "modules", *NAMES)
    environ = os.environ | {"PYTHONPATH": str(place)}
    for arguments in (
        ("query", "--store", table, SELECT),
        ("query", "--store", table, "--json", SELECT),
        ("streams", "--store", table), ("--help",), ("check", os.devnull),
    ):  # fmt: skip
        done = run(*arguments, env=environ)
        assert (done.returncode, done.stderr) == (0, ""), (arguments, done.stderr)
    says = "import os; print(os.environ['PYTHONPATH'])"
    done = run("run", "--store", tmp_path / "s", "--", sys.executable, "-c", says, env=environ)
    assert (done.returncode, done.stdout) == (0, f"{place}\n"), done.stderr
    assert not (place / "IMPORTED").exists()


def test_no_module_of_the_working_directory_is_imported(tmp_path, table):
    place = foreign(tmp_path / "work", *NAMES)
    done = run("query", "--store", table, SELECT, cwd=place)
    assert (done.returncode, done.stderr) == (0, "")
    assert not (place / "IMPORTED").exists()


def test_nor_by_the_upkeep_of_a_daemon_that_was_started_there(collectors, tmp_path, monkeypatch):
    """Merges and retention ran in `python -m tailrace`, which imports from the working directory first."""
    place = foreign(tmp_path / "work", "tailrace", *NAMES)
    monkeypatch.chdir(place)
    collector = collectors(more=MANY_COMMITS)
    arguments = collector.command()[len(program.COMMAND) :]
    collector.command = lambda: [*command("tailrace"), *arguments]
    collector.start()
    with socket.create_connection(collector.address("tcp")) as sock:
        more = itertools.count(send_by_commits(collector, sock, 0, CROWDED))
        await_upkeep(collector, meanwhile=lambda: sock.sendall(heph_event(1, next(more))))
    assert not (place / "IMPORTED").exists()


def test_nor_by_the_process_of_a_statement_that_a_program_asks(tmp_path, table):
    """The program's own search path may have anything; the statement's process has ours before it."""
    place = foreign(tmp_path / "work", "random", "signal", "duckdb")
    script = place / "asking.py"
    script.write_text(
        "import sys\n"
        "here, sys.path[:] = sys.path[0], sys.path[1:]\n"
        "import tailrace.reading\n"
        "sys.path.insert(0, here)\n"
        f"with tailrace.open({str(table)!r}, limits=tailrace.Limits()) as store:\n"
        f"    print(list(store.sql({SELECT!r})))\n"
    )
    done = run(python=(sys.executable, script))
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    assert not (place / "IMPORTED").exists()


def _bare(directory):
    """Make an environment that has no package but what its `packages.pth` names; return its Python."""
    base = Path(sys.base_prefix, "bin", f"python{sys.version_info[0]}.{sys.version_info[1]}")
    subprocess.run([base, "-m", "venv", "--without-pip", directory], check=True, timeout=120)
    return directory / "bin/python"


@pytest.mark.parametrize("installed", ["by PYTHONPATH", "for the user", "beside another one"])
def test_an_installation_in_a_place_of_the_users_is_found(tmp_path, installed):
    environ = without("PYTHONPATH")
    python = _bare(tmp_path / "environment")
    more = foreign(tmp_path / "more", "queue", "signal")
    search = [str(more), HOME, PACKAGES]
    if installed == "for the user":
        config = tmp_path / "environment/pyvenv.cfg"
        config.write_text(
            config.read_text().replace("site-packages = false", "site-packages = true")
        )
        version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
        home = tmp_path / "home/lib" / version / "site-packages"
        home.mkdir(parents=True)
        (home / "packages.pth").write_text(f"{HOME}\n{PACKAGES}\n")
        environ |= {"PYTHONUSERBASE": str(tmp_path / "home"), "PYTHONPATH": str(more)}
    else:
        if installed == "beside another one":
            other = next((tmp_path / "environment/lib").glob("*/site-packages")) / "tailrace"
            other.mkdir()
            (other / "__init__.py").write_text("raise ImportError('another one')")
        environ["PYTHONPATH"] = os.pathsep.join(search)
    ran = tmp_path / "ran"
    emits = "import tailrace_client as trace\nwith trace.span('x'): pass\ntrace.close()"
    done = run(
        "run", "--store", ran, "--max-loss", 0, "--", sys.executable, "-I", "-c", emits,
        python=(python, "-c", "import sys; sys.path[:1] = []; from tailrace.cli import main; main()"), env=environ,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    asks = f"import tailrace\nprint(*tailrace.open({str(ran)!r}, limits=tailrace.Limits()).sql({SELECT!r}))"
    done = run("-c", asks, python=(python,), env=environ | {"PYTHONPATH": f"{HOME}:{PACKAGES}"})
    assert (done.returncode, done.stdout.count("1")) == (0, 1), done.stderr
    assert not (more / "IMPORTED").exists()


@pytest.mark.parametrize(
    "variables",
    [
        {"PYTHONWARNINGS": "error"}, {"PYTHONOPTIMIZE": "2"}, {"PYTHONINSPECT": "1"}, {"PYTHONDEVMODE": "1"},
        {"PYTHONIOENCODING": "ascii:strict"},
        {"PYTHONPATH": "nowhere"}, {"LANG": "C"}, {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
        {"PYTHON_VERSION": "2.7", "PYTHON": "python2"},
    ],
    ids=str,
)  # fmt: skip
def test_the_program_has_the_environment_as_it_was_given(tmp_path, variables):
    says = "import os; print(ascii(sorted(os.environb.items())))"
    program = (sys.executable, "-I", "-c", says)
    environ = without("LANG", "LC_ALL", **variables)
    plain = subprocess.run(program, env=environ, capture_output=True, text=True, check=True).stdout
    done = run(
        "run", "--store", tmp_path / "s", "--", *program, env=environ, stdin=subprocess.DEVNULL
    )
    assert done.returncode == 0, done.stderr
    ours = (b"TAILRACE_", b"OVNI_", b"DFTRACER_")
    given, found = (
        [item for item in eval(words) if not item[0].startswith(ours)]  # noqa: S307 - our own words
        for words in (plain, done.stdout)
    )
    assert found == given
    assert done.stderr.startswith("run certificate "), done.stderr


COUNT = """
import atexit, os, sys
from tailrace import cli
sys.argv = ["tailrace", "--version"]
@atexit.register
def count():
    import numpy
    print(len(os.listdir("/proc/self/task")))
cli.main()
"""
SAY = f"import os; print(os.environ.get('{THREADS}'))"


def threads(**more):
    """The threads of a command's process that has imported numpy."""
    done = subprocess.run(
        [sys.executable, "-c", COUNT], env=without(THREADS, **more), stdout=subprocess.PIPE, check=True
    )  # fmt: skip
    return int(done.stdout.splitlines()[-1])


def test_a_command_that_imports_numpy_has_one_thread():
    assert threads() == 1


def test_a_start_collects_no_garbage():
    """A start creates almost only objects that stay, so there is no garbage to find."""
    script = (
        "import gc, sys; from tailrace import cli; import atexit; sys.argv = ['tailrace', '--help'];"
        "before = gc.get_stats()[0]['collections'];"
        "atexit.register(lambda: print(gc.get_stats()[0]['collections'] - before)); cli.main()"
    )
    done = subprocess.run([sys.executable, "-c", script], stdout=subprocess.PIPE, check=True)
    assert int(done.stdout.splitlines()[-1]) == 0


def test_who_wants_threads_has_them():
    assert threads(**{THREADS: "2"}) == min(2, len(os.sched_getaffinity(0)))


@pytest.mark.parametrize("given", [None, "1", "7"])
def test_the_program_of_a_user_has_the_variable_as_the_user_gave_it(given, tmp_path):
    environ = without(THREADS) if given is None else without(THREADS, **{THREADS: given})
    done = program.run(
        [*program.COMMAND, "run", "--store", tmp_path / "store", "--", sys.executable, "-c", SAY],
        stdout=subprocess.PIPE, env=environ, text=True,
    )  # fmt: skip
    assert done.stdout.splitlines()[0] == str(given)


@pytest.fixture(scope="module")
def broken(tmp_path_factory):
    """The command in an environment where every package but Tailrace is missing."""
    directory = tmp_path_factory.mktemp("broken")
    python = _bare(directory / "environment")
    packages = next((directory / "environment/lib").glob("*/site-packages"))
    (packages / "packages.pth").write_text(f"{HOME}\n")
    return python, "-m", "tailrace"


@pytest.mark.parametrize(
    ("options", "shell", "status"),
    [
        ((), "echo ran", 0),
        ((), "echo ran; exit 7", 7),
        ((), "echo ran; kill -TERM $$", -15),
        (("--max-loss", "5"), "echo ran", 4),
        (("--max-loss=5", "--store=x"), "echo ran; exit 7", 7),
        (("--max-loss", "5"), "echo ran; kill -TERM $$", 128 + 15),
        (("--source", "et3=x", "--config", "c", "--sign", "k", "--certificate", "c", "--json"), "echo ran", 0),
    ],
)  # fmt: skip
def test_a_program_runs_though_packages_are_missing(broken, tmp_path, options, shell, status):
    for variables in (
        {},
        {"SLURM_PROCID": "0"},
        {"PYTHONPATH": str(foreign(tmp_path / "m", "os", "queue"))},
    ):
        done = run(
            "run", *options, "--", "sh", "-c", shell, python=broken, env=os.environ | variables
        )
        assert (done.returncode, done.stdout) == (status, "ran\n"), done.stderr
        assert done.stderr.count("\n") == 1, done.stderr
        assert done.stderr.startswith("tailrace: the program is not traced: ModuleNotFoundError: ")


def test_a_program_that_is_not_there_has_the_status_of_a_shell(broken, tmp_path):
    assert run("run", "--", "no-such-program", python=broken).returncode == 127
    assert run("run", "--max-loss", "0", "--", "no-such-program", python=broken).returncode == 127
    assert run("run", "--", tmp_path, python=broken).returncode == 126


def test_it_does_not_run_where_a_trace_is_required(broken, table):
    done = run("run", "--require-trace", "--", "echo", "ran", python=broken)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    done = run("query", "--store", table, SELECT, python=broken)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "install Tailrace again" in done.stderr


@pytest.mark.parametrize("package", ["deltalake", "trio", "duckdb"])
def test_it_runs_though_a_single_package_is_broken(tmp_path, package):
    """As after an upgrade that stopped half way."""
    python = _bare(tmp_path / "environment")
    packages = next((tmp_path / "environment/lib").glob("*/site-packages"))
    shutil.copytree(Path(tailrace.__file__).parent, packages / "tailrace")
    foreign(packages / package).joinpath("__init__.py").write_text(FOREIGN)
    (packages / "packages.pth").write_text(f"{PACKAGES}\n")
    for variables in ({}, {"SLURM_PROCID": "0", "SLURM_STEP_ID": "1", "SLURM_JOB_ID": "2"}):
        done = run(
            "run", "--", "sh", "-c", "echo ran; exit 3",
            python=(python, "-m", "tailrace"), cwd=tmp_path, env=os.environ | variables,
        )  # fmt: skip
        assert (done.returncode, done.stdout) == (3, "ran\n"), done.stderr
        assert "the program is not traced" in done.stderr
        assert "a module of the user's" in done.stderr or "collector.log" in done.stderr


def test_the_beginning_knows_the_options_of_run():
    found = {
        name: param.is_flag
        for param in load("run").params
        for name in getattr(param, "opts", ())
        if name[0] == "-"
    }
    assert {name for name, is_flag in found.items() if is_flag} == cli.FLAGS
    assert {name for name, is_flag in found.items() if not is_flag} == cli.VALUED
    assert cli.LOSS == ExitCode.LOSS


def test_what_begins_a_command_imports_what_every_interpreter_has():
    """Anything else could be the user's, as long as it has not been settled from where modules come."""
    says = f"import json, sys; sys.path.insert(0, {HOME!r}); before = set(sys.modules); from tailrace import cli; print(json.dumps(sorted(set(sys.modules) - before)))"
    done = run("-I", "-c", says, python=(sys.executable,))
    loaded = {name for name in json.loads(done.stdout) if not name.startswith("tailrace")}
    assert loaded <= {"__future__", *sys.builtin_module_names}, loaded
