"""Run the Slurm example as slurmd runs it, as root, for a job of an unprivileged user; then attack it as this user."""

from __future__ import annotations

import json
import os
import pwd
import shlex
import shutil
import signal
import stat
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

import pytest

import tailrace_client
from tailrace.config.load import load
from tailrace.configuration import transports
from tailrace.query.engine import Engine

SLURM = Path(__file__).parents[2] / "deploy/slurm"
USER = "nobody"

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="slurmd runs prologs as root: needs root")

PLANT = """
import os, shutil, sys
names, victim = {"log", "pid", "process", "tailrace.toml", "tokens"}, sys.argv[1]
planted = 0
for top in sys.argv[2:]:
    for directory, below, files in os.walk(top):
        if "store" in below:
            below.remove("store")  # which the collector needs in order to end soon
        for name in names | {"sockets"} & set(below) | set(files):
            path = os.path.join(directory, name)
            try:
                if name == "sockets":
                    shutil.rmtree(path)
                elif os.path.lexists(path):
                    os.unlink(path)
                os.symlink(victim, path)
                planted += 1
            except OSError:
                pass
print(planted)
"""
"""Put a link to a file of root's wherever this user can put a link."""


def as_user(*command):
    """Run a command as the job's user, with nothing of root's."""
    entry = pwd.getpwnam(USER)
    return subprocess.run(
        [str(argument) for argument in command], user=entry.pw_uid, group=entry.pw_gid, extra_groups=[],
        cwd="/", env={"PATH": "/usr/bin:/bin"}, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


def python_of_everybody():
    """Return an interpreter of this version that the job's user may run, or None."""
    system = f"/usr/bin/python{sys.version_info.major}.{sys.version_info.minor}"
    for python in (sys.executable, system):
        with_ours = ["/usr/bin/env", f"PYTHONPATH={search_path()}", python]
        if as_user(*with_ours, "-c", "import tailrace.daemon.service").returncode == 0:
            return python
    return None


def search_path():
    root = Path(__file__).parents[2]
    places = [
        root / "collector",
        Path(tailrace_client.__file__).parents[1],
        sysconfig.get_path("purelib"),
    ]
    return ":".join(map(str, places))


def cgroups():
    """Return where cgroup v2 is mounted, or None if it is not, or cannot be changed."""
    mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    found = next((Path(mount[1]) for mount in mounts if mount[2] == "cgroup2"), None)
    return found if found and os.access(found, os.W_OK) else None


def alive(pid):
    """Return whether a process runs; what is left of an ended one does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "Z"
    except OSError:
        return False


class Node:
    """A node's directories, and the scripts installed with settings of their own."""

    def __init__(self, directory: Path, python: str):
        self.directory = directory
        self.run = directory / "run/4711"
        self.kept = directory / "kept/4711"
        self.copies = directory / "home/4711/node1"
        self.scripts = directory / "slurm"
        shutil.copytree(SLURM, self.scripts)
        self.command = ["/usr/bin/env", f"PYTHONPATH={search_path()}", python]
        program = directory / "tailrace"
        program.write_text(f'#!/bin/sh\nexec {shlex.join(self.command)} -m tailrace "$@"\n')
        program.chmod(0o755)
        home = directory / "home"
        home.mkdir()
        shutil.chown(home, USER)
        self.settings(
            program=program, run_root=directory / "run", kept_root=directory / "kept", copy_to=home,
            cgroup_name=directory.name,
        )  # fmt: skip
        self.victim = directory / "victim"
        self.victim.write_text("root's\n")
        self.victim.chmod(0o600)

    def settings(self, **changed):
        with (self.scripts / "settings.sh").open("a") as file:
            file.writelines(f"{key}={shlex.quote(str(value))}\n" for key, value in changed.items())

    def script(self, name, seconds=180):
        """Run a script as slurmd does; return what it printed, and what it told the node's log."""
        job = {
            "SLURM_JOB_ID": "4711",
            "SLURM_JOB_USER": USER,
            "SLURMD_NODENAME": "node1",
            "HOME": "/",
        }
        done = subprocess.run(
            [self.scripts / name], env=job, capture_output=True, text=True, timeout=seconds,
            check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    def emit(self, name):
        """Emit an event as a task of the job."""
        address = self.script("task_prolog.sh").split()[1].removeprefix("TAILRACE_ADDRESS=")
        task = (
            "import sys, tailrace_client as t;"
            f"t.connect(sys.argv[1]); t.event({name!r}); assert t.close(20)"
        )
        done = as_user(*self.command, "-c", task, address)
        assert done.returncode == 0, done.stderr

    def collector(self):
        """Return the pid of the job's collector."""
        return int((self.run / "process").read_text().split()[0])

    def names(self, store):
        statement = "SELECT name FROM events WHERE kind = 'span' ORDER BY name"
        query = [sys.executable, "-m", "tailrace", "query", "--store", store, "--json", statement]
        done = subprocess.run(query, capture_output=True, text=True, check=True)
        return [json.loads(line)["name"] for line in done.stdout.splitlines()]

    def plant(self):
        """Plant links to root's file as the user; return how many could be planted."""
        tops = [self.directory / "run", self.directory / "kept"]
        done = as_user(*self.command, "-c", PLANT, self.victim, *tops)
        assert done.returncode == 0, done.stderr
        return int(done.stdout)


@pytest.fixture(scope="module")
def python():
    found = python_of_everybody()
    if found is None:
        pytest.skip(f"no interpreter that {USER} may run: install one outside root's home")
    return found


@pytest.fixture
def node(python):
    # Not tmp_path, which only root may enter.
    directory = Path(tempfile.mkdtemp(prefix="tailrace-slurm-"))
    directory.chmod(0o755)
    node = Node(directory, python)
    try:
        yield node
    finally:
        node.script("epilog.sh")
        shutil.rmtree(directory)
        if (groups := cgroups()) is not None and (groups / directory.name).exists():
            (groups / directory.name).rmdir()  # no job's is left


def test_what_a_job_emits_is_copied_to_its_user_and_deleted_on_the_node(node):
    node.script("prolog.sh")
    given = node.script("task_prolog.sh")
    assert given.splitlines() == [
        f"export TAILRACE_ADDRESS=unix://{node.run}/sockets/heph.sock",
        f"export OVNI_TRACEDIR={node.kept}/traces/ovni",
        f"export DFTRACER_LOG_FILE={node.kept}/traces/dftracer/trace",
        "export DFTRACER_TRACE_COMPRESSION=0",
    ]
    assert stat.S_IMODE((node.run / "sockets/heph.sock").stat().st_mode) == 0o600
    node.emit("ran")
    node.script("epilog.sh")
    assert not node.run.exists()
    assert not node.kept.exists()
    assert [path.owner() for path in node.directory.glob("home/4711/*")] == [USER]
    assert stat.S_IMODE(node.copies.stat().st_mode) == 0o700
    assert not (node.copies / "tokens").exists()
    assert node.names(node.copies / "store") == ["ran"]


def test_files_of_tracers_are_read_to_their_end_and_know_their_job_and_node(node):
    """Also files that are written while the collector ends, which only the epilog can read."""
    node.script("prolog.sh")
    event = '{{"id":{0},"name":"read","cat":"POSIX","pid":5,"tid":1,"ts":{0},"dur":1,"ph":"X","args":{{}}}}\n'
    lines = "[\n" + "".join(event.format(number) for number in range(500)) + "]\n"
    os.kill(node.collector(), signal.SIGSTOP)
    path = node.kept / "traces/dftracer/trace-5-app.pfw"
    done = as_user("/bin/sh", "-c", 'printf %s "$1" >"$2"', "sh", lines, path)
    assert done.returncode == 0, done.stderr
    os.kill(node.collector(), signal.SIGTERM)
    os.kill(node.collector(), signal.SIGCONT)
    node.script("epilog.sh")
    store = node.copies / "store"
    assert node.names(store) == ["read"] * 500
    assert list(Engine(str(store)).rows("SELECT rank, node, job, state FROM sessions")) == [
        (None, "node1", "4711", "ended")
    ]


def test_root_owns_what_root_reads_and_only_sockets_are_in_what_the_user_owns(node):
    node.script("prolog.sh")
    assert {path.name: path.owner() for path in node.run.iterdir()} == {
        "process": "root", "tailrace.toml": "root", "sockets": USER,
    }  # fmt: skip
    for path in (node.run, node.run / "process", node.run / "tailrace.toml"):
        assert stat.S_IMODE(path.stat().st_mode) & 0o022 == 0
    assert all(path.is_socket() for path in (node.run / "sockets").iterdir())
    config = load(node.run / "tailrace.toml", environ={}, flags={}, formats=transports).config
    assert config.store.retention_size is not None
    assert stat.S_IMODE((node.run / "sockets").stat().st_mode) == 0o700
    assert stat.S_IMODE(node.kept.stat().st_mode) == 0o700


def test_a_job_that_is_queued_anew_adds_a_copy(node):
    for name in ("first", "second"):
        node.script("prolog.sh")
        node.emit(name)
        node.script("epilog.sh")
    assert node.names(node.copies / "store") == ["first"]
    assert node.names(node.copies.with_name("node1.2") / "store") == ["second"]


def test_what_cannot_be_copied_stays_on_the_node(node):
    node.settings(copy_to=node.directory / "of-root")
    (node.directory / "of-root").mkdir(mode=0o755)
    node.script("prolog.sh")
    node.emit("ran")
    node.script("epilog.sh")
    assert not node.run.exists()
    assert node.names(node.kept / "store") == ["ran"]
    assert list((node.directory / "of-root").iterdir()) == []


def test_what_was_not_copied_is_deleted_when_it_is_old_and_its_job_is_over(node):
    (node.directory / "kept/1").mkdir(parents=True)
    (node.directory / "kept/2").mkdir()
    (node.directory / "run/2").mkdir(parents=True)
    node.settings(copy_to="", keep_days=-1)
    node.script("prolog.sh")
    node.script("epilog.sh")
    assert [path.name for path in (node.directory / "kept").iterdir()] == ["2"]


def test_a_job_starts_without_a_collector_when_there_can_be_none(node):
    node.settings(program="/no/such/program")
    node.script("prolog.sh")
    assert node.script("task_prolog.sh") == ""
    node.script("epilog.sh")
    assert not node.run.exists()


def test_settings_of_an_earlier_version_are_enough(node):
    """A site edits the settings, and keeps them when it takes newer scripts."""
    settings = node.scripts / "settings.sh"
    lines = [
        each for each in settings.read_text().splitlines() if not each.startswith("cgroup_name")
    ]
    settings.write_text("\n".join(lines) + "\n")
    node.script("prolog.sh")
    assert "TAILRACE_ADDRESS" in node.script("task_prolog.sh")
    node.script("epilog.sh")
    assert not node.run.exists()


def test_an_epilog_without_a_prolog_does_nothing(node):
    node.script("epilog.sh")
    assert not (node.directory / "home/4711").exists()


def test_links_that_the_user_plants_lead_root_nowhere(node):
    """The number of a job comes again when it is queued anew, maybe without an epilog between."""
    node.settings(copy_to="")  # so that the next prolog finds the links
    node.script("prolog.sh")
    collector = node.collector()
    assert node.plant() > 0
    assert node.collector() == collector
    node.script("prolog.sh")
    node.plant()
    node.script("epilog.sh")
    assert node.victim.read_text() == "root's\n"
    assert node.victim.owner() == "root"
    assert stat.S_IMODE(node.victim.stat().st_mode) == 0o600
    assert not alive(collector)


def test_a_table_that_is_a_link_to_roots_is_not_copied_for_the_user(node):
    node.script("prolog.sh")
    node.plant()
    node.script("epilog.sh")
    copied = [path for path in node.directory.glob("home/4711/**/*") if path.is_file()]
    assert all(
        "root's" not in path.read_text(errors="replace") for path in copied if not path.is_symlink()
    )


def test_a_directory_that_others_can_change_has_no_collector(node):
    (node.directory / "run").mkdir()
    (node.directory / "run").chmod(0o777)
    node.script("prolog.sh")
    assert not node.run.exists()
    assert node.script("task_prolog.sh") == ""


PROLOG_SECONDS = 15
"""The most that a prolog takes, whatever the user has planted."""

PIPES = """
import os, sys
for name in ("log", "tokens", "traces", "traces/ovni", "traces/dftracer", "store", "store/presence", "store/spool"):
    path = os.path.join(sys.argv[1], name)
    if sys.argv[2] in name:
        if os.path.lexists(path):
            os.rename(path, path + ".old")
        os.mkfifo(path)
        print(name)
"""


@pytest.mark.parametrize("what", ["log", "tokens", "ovni", "store"])
def test_a_pipe_that_the_user_plants_keeps_no_prolog(node, what):
    node.settings(copy_to="", read_seconds=5)  # so that the next prolog finds the pipe
    node.script("prolog.sh")
    node.script("epilog.sh")
    planted = as_user(*node.command, "-c", PIPES, node.kept, what)
    assert planted.stdout, planted.stderr
    node.script("prolog.sh", seconds=PROLOG_SECONDS)
    started = (node.run / "process").exists()
    node.script("epilog.sh")
    assert not node.run.exists()
    assert started or what == "ovni"


def test_what_an_earlier_run_of_the_job_left_keeps_no_prolog(node):
    """Neither a collector that does not end, nor a copy that takes long."""
    node.settings(copy_to="")
    node.script("prolog.sh")
    collector = node.collector()
    os.kill(collector, signal.SIGSTOP)
    node.script("prolog.sh", seconds=PROLOG_SECONDS)
    assert node.collector() == collector
    os.kill(collector, signal.SIGCONT)
    node.script("epilog.sh")
    assert not alive(collector)
    assert not node.run.exists()


@pytest.mark.skipif(cgroups() is None, reason="needs cgroup v2")
def test_what_the_user_starts_from_the_collector_dies_with_the_job(node):
    """Python reads files of the user's before the collector begins, which may start anything in any session."""
    pids, program = node.kept / "started", node.directory / "tailrace"
    starts = f"setsid sh -c 'echo $$ >>{pids}; exec sleep 600' </dev/null >/dev/null 2>&1 &"
    program.write_text(program.read_text().replace("\n", f"\n{starts}\n", 1))
    node.settings(copy_to="")
    node.script("prolog.sh")
    node.emit("ran")
    (first,) = map(int, pids.read_text().split())
    assert alive(first)
    node.script("epilog.sh")
    first, *more = map(int, pids.read_text().split())
    assert more  # of the collector that reads files to their end
    assert [pid for pid in (first, *more) if alive(pid)] == []


@pytest.mark.parametrize("differs", ["start time", "control group"])
@pytest.mark.parametrize("owner", ["root", USER])
def test_a_process_that_has_the_collectors_pid_now_is_not_ended(node, differs, owner):
    node.script("prolog.sh")
    identity = (node.run / "process").read_text().splitlines()[1]
    os.kill(node.collector(), signal.SIGKILL)
    uid = pwd.getpwnam(owner).pw_uid
    other = subprocess.Popen(["/bin/sleep", "600"], user=uid)
    try:
        groups = identity.split(maxsplit=1)[1]
        start = Path(f"/proc/{other.pid}/stat").read_text().rpartition(")")[2].split()[19]
        claimed = f"{int(start) + 1} {groups}" if differs == "start time" else f"{start} {groups}/x"
        (node.run / "process").write_text(f"{other.pid}\n{claimed}\n")
        node.script("epilog.sh")
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()


def test_no_process_but_the_users_is_ended_whatever_the_identity(node):
    """Between looking and signalling a pid may become another process's: the signal is the user's, not root's."""
    node.script("prolog.sh")
    os.kill(node.collector(), signal.SIGKILL)
    with subprocess.Popen(["/bin/sleep", "600"]) as other:
        start = Path(f"/proc/{other.pid}/stat").read_text().rpartition(")")[2].split()[19]
        groups = " ".join(Path(f"/proc/{other.pid}/cgroup").read_text().splitlines())
        (node.run / "process").write_text(f"{other.pid}\n{start} {groups}\n")
        hidden = (
            (node.scripts / "epilog.sh")
            .read_text()
            .replace("TERM 900", "TERM 1")
            .replace("KILL 100", "KILL 1")
        )
        (node.scripts / "epilog.sh").write_text(hidden)
        node.script("epilog.sh")
        assert other.poll() is None
        other.kill()


@pytest.mark.parametrize("name", ["a) b", "x) S 1 (", "new\nline) R"])
def test_a_name_with_brackets_forges_no_start_time(node, name):
    code = f"import ctypes, time; ctypes.CDLL(None).prctl(15, {name.encode()!r}, 0, 0, 0); print(flush=True); time.sleep(600)"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as other:
        other.stdout.readline()
        start = Path(f"/proc/{other.pid}/stat").read_text().rpartition(")")[2].split()[19]
        job = f'here={shlex.quote(str(node.scripts))}; . "$here/job.sh"; identity {other.pid}'
        environment = {"SLURM_JOB_ID": "4711", "SLURM_JOB_USER": USER}
        done = subprocess.run(
            ["/bin/sh", "-c", job], env=environment, capture_output=True, text=True, check=True
        )
        assert done.stdout.split()[0] == start
        other.kill()
