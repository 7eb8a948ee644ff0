"""Define hostile surroundings for starts of the daemon: each is a change to the process that starts it, with the
expected result.

`docs/surroundings.md` describes them for users. A surrounding is a shell command that becomes the daemon (`$@`), so a
person can type what a test does. `{room}` is a directory of the test's own.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

WORKS = ""
"""Expected result without a refusal: the daemon starts, stores what a client sends, and shuts down cleanly."""


class Surrounding(NamedTuple):
    """A named change of the surroundings."""

    name: str
    shell: str = 'exec "$@"'
    environ: Mapping[str, str | None] = MappingProxyType({})
    refusal: str = WORKS
    """A part of the message with which the daemon refuses to start."""
    store: str = "store"
    """The store's path below the room."""
    needs: Callable[[], bool] = lambda: True
    network: bool = False
    """Whether the daemon has a network of its own, which a client must enter."""
    umask: int = 0o022
    """The umask that the program of a run gets."""
    forks: bool = False
    """Whether the daemon is a child of the process that the shell becomes."""


def _root() -> bool:
    return os.geteuid() == 0 and shutil.which("unshare") is not None


def _python(code: str) -> str:
    """Return a command that runs a line of Python which changes its process, and then the daemon in the same process."""
    return f"exec python3 -c 'import os, signal, sys; {code}; os.execvp(sys.argv[1], sys.argv[1:])' \"$@\""


SURROUNDINGS = [
    # Environment variables
    Surrounding("no variables at all", 'exec env -i "$@"'),
    Surrounding("a locale that is not installed", environ={"LC_ALL": "xx_YY.UTF-8", "LANG": "zz"}),
    Surrounding("the C locale without UTF-8 mode", environ={"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}),
    Surrounding("an ASCII terminal that refuses other characters", environ={"PYTHONIOENCODING": "ascii:strict"}),
    Surrounding("a time zone that does not exist", environ={"TZ": "Nowhere/Atlantis"}),
    Surrounding("warnings of Python are errors", environ={"PYTHONWARNINGS": "error"}),
    Surrounding("assertions and docstrings are removed", environ={"PYTHONOPTIMIZE": "2"}),
    Surrounding("Python's development mode", environ={"PYTHONDEVMODE": "1"}),
    Surrounding("variables that are not UTF-8", 'exec env "$(printf "NAME\\377=v\\377")" "$@"'),
    Surrounding("a variable of 100,000 bytes", environ={"BASH_FUNC_module": "x" * 100_000}),
    Surrounding("thread counts that are no numbers", environ=dict.fromkeys(
        ["OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "RAYON_NUM_THREADS", "TOKIO_WORKER_THREADS", "ARROW_IO_THREADS", "MKL_NUM_THREADS"], "auto")),
    Surrounding("thread counts of zero", environ=dict.fromkeys(
        ["OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "RAYON_NUM_THREADS", "TOKIO_WORKER_THREADS", "ARROW_IO_THREADS"], "0")),
    Surrounding("debugging variables of Rust libraries", environ={"RUST_LOG": "trace", "RUST_BACKTRACE": "full"}),
    Surrounding("variables of an object store beside a local store", environ={
        "AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "y", "AWS_ENDPOINT_URL": "http://127.0.0.1:9", "AWS_REGION": "nowhere"}),
    Surrounding("a directory of temporary files that does not exist", environ={"TMPDIR": "/nonexistent"}),
    Surrounding("a directory of temporary files that is a file", environ={"TMPDIR": "/etc/passwd"}),
    Surrounding("a home that is a file", environ={"HOME": "/etc/passwd"}),
    Surrounding("a runtime directory that does not exist", environ={"XDG_RUNTIME_DIR": "/nonexistent", "XDG_DATA_HOME": "relative"}),
    Surrounding("a certificate file that does not exist", environ={"SSL_CERT_FILE": "/nonexistent", "SSL_CERT_DIR": "/nonexistent"}),
    Surrounding("a proxy for every address", environ=dict.fromkeys(
        ["http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"], "http://127.0.0.1:9") | {"no_proxy": None}),
    Surrounding("Kubernetes' variables of a service named tailrace", environ={
        "TAILRACE_SERVICE_HOST": "10.0.0.1", "TAILRACE_SERVICE_PORT": "9464", "TAILRACE_PORT": "tcp://10.0.0.1:9464",
        "TAILRACE_PORT_9464_TCP": "tcp://10.0.0.1:9464", "TAILRACE_METRICS_PORT": "tcp://10.0.0.1:9464"}),
    Surrounding("a service manager that does not exist", environ={"NOTIFY_SOCKET": "/nonexistent/notify"}),
    Surrounding("sockets that a service manager handed to another process", environ={"LISTEN_FDS": "3", "LISTEN_PID": "1"}),
    Surrounding("a watchdog time that is no number", environ={"WATCHDOG_USEC": "soon"}),
    # The process
    Surrounding("a current directory that was deleted", 'mkdir {room}/gone; cd {room}/gone; rmdir {room}/gone; exec "$@"'),
    Surrounding("a current directory with modules of the user's own", (
        "cd {room}; for name in queue random msgspec click tailrace logging; do "
        'echo "open(\\"{room}/RAN\\", \\"w\\"); raise ImportError" > $name.py; done; exec "$@"')),
    Surrounding("a umask of 777", 'umask 0777; exec "$@"', umask=0o777),
    Surrounding("a umask of 0", 'umask 0; exec "$@"', umask=0),
    Surrounding("a umask of 0 beside variables of Python", 'umask 0; exec "$@"', umask=0, environ={
        "PYTHONPATH": "/nonexistent", "TOKIO_WORKER_THREADS": "0"}),
    Surrounding("SIGTERM is blocked", _python("signal.pthread_sigmask(signal.SIG_BLOCK, {{signal.SIGTERM, signal.SIGINT}})")),
    Surrounding("all signals are ignored", _python(
        "[signal.signal(n, signal.SIG_IGN) for n in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD, signal.SIGPIPE)]")),
    Surrounding("1,000 foreign descriptors", _python("[os.dup2(2, n) for n in range(100, 1100)]; [os.set_inheritable(n, True) for n in range(100, 1100)]")),
    Surrounding("every standard descriptor is closed", 'exec "$@" <&- >&- 2>&-'),
    Surrounding("standard output on a full device", 'exec "$@" > /dev/full 2>/dev/full'),
    Surrounding("160 descriptors", 'ulimit -n 160; exec "$@"'),
    Surrounding("no memory may be locked", 'ulimit -l 0; exec "$@"'),
    Surrounding("a stack of 256 KiB", 'ulimit -s 256; exec "$@"'),
    Surrounding("an unlimited stack", 'ulimit -s unlimited; exec "$@"'),
    Surrounding("the lowest priority", 'exec nice -n 19 "$@"'),
    Surrounding("one processor", 'exec taskset -c 0 "$@"', needs=lambda: shutil.which("taskset") is not None),
    Surrounding("no capability", 'exec setpriv --bounding-set -all --inh-caps -all --no-new-privs "$@"', needs=_root),
    Surrounding("a user without a name or a home", (
        'exec unshare --user --map-user=54321 --map-group=54321 env -u HOME "$@"'), needs=_root),
    Surrounding("process 1 of a PID namespace", 'exec unshare -pf --kill-child=SIGTERM --mount-proc "$@"', needs=_root, forks=True),
    Surrounding("no /proc", 'exec unshare -m sh -c "umount -l /proc; exec \\"\\$@\\"" -- "$@"', needs=_root),
    Surrounding("no /sys and no /dev/shm", 'exec unshare -m sh -c "umount -l /sys /dev/shm; exec \\"\\$@\\"" -- "$@"', needs=_root),
    Surrounding("empty files of users, groups, hosts and name servers", (
        'exec unshare -m sh -c "for f in passwd group hosts resolv.conf nsswitch.conf; do mount --bind /dev/null /etc/\\$f; done; exec \\"\\$@\\"" -- "$@"'), needs=_root),
    Surrounding("no host name", 'exec unshare -u sh -c "hostname \\"\\"; exec \\"\\$@\\"" -- "$@"', needs=_root),
    Surrounding("a network of its own, with only the loopback device", (
        'exec unshare -n sh -c "ip link set lo up; exec \\"\\$@\\"" -- "$@"'), needs=_root, network=True),
    Surrounding("a user namespace without mapped users", 'exec unshare -U "$@"', needs=_root),
    # Files
    Surrounding("a store whose name has a space, a hash and an ampersand", store="a b c#d&e"),
    Surrounding("a store whose name has a question mark", store="a?b", refusal="must not contain '?'"),
    Surrounding("a store whose name has a percent sign", store="a%20b", refusal="must not contain '%'"),
    Surrounding("a store whose name has letters of many scripts", store="läuf-水力-π"),
    Surrounding("a store whose name has a quotation mark and a semicolon", store="it's; \"so\""),
    Surrounding("a store behind a symbolic link of its owner", "mkdir {room}/real; ln -s real {room}/store; exec \"$@\""),
    Surrounding("a store in a deeply nested directory", store="/".join(["d" * 60] * 12)),
    Surrounding("a store on tmpfs", 'mkdir {room}/store; mount -t tmpfs -o size=300m tmpfs {room}/store; exec "$@"', needs=_root),
    Surrounding("a store that is a file", "touch {room}/store; exec \"$@\"", refusal="store"),
    Surrounding("a store on a file system that is read only", (
        'mkdir {room}/store; exec unshare -m sh -c "mount --bind {room}/store {room}/store; mount -o remount,ro,bind {room}/store; exec \\"\\$@\\"" -- "$@"'),
        refusal="ead-only", needs=_root),
    Surrounding("a store without room", (
        'mkdir {room}/store; exec unshare -m sh -c "mount -t tmpfs -o size=16k tmpfs {room}/store; exec \\"\\$@\\"" -- "$@"'), refusal="space", needs=_root),
]  # fmt: skip
