"""A person with two wheels and the page *First steps* comes to a first trace, without a compiler."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.packaging import first_trace
from tests.packaging.installing import ROOT, SAME_DATE, build_wheel


@pytest.mark.slow  # downloads what the collector needs
def test_the_page_leads_to_a_first_trace(source, client_wheel, tmp_path):
    dist = tmp_path / "dist"
    dist.mkdir()
    build_wheel(source, dist, **SAME_DATE, TAILRACE_KERNELS="off")
    (dist / client_wheel.name).symlink_to(client_wheel)
    done = subprocess.run(
        [sys.executable, "-m", "tests.packaging.first_trace", dist],
        cwd=ROOT, capture_output=True, text=True, timeout=900, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    *wheels, install, _, run, look, verify, total = done.stdout.splitlines()
    assert len(wheels) == 2
    assert install.endswith(" s  python3 -m venv $HOME/tailrace-env")
    assert [line.split("  ")[-1].split()[:2] for line in (run, look, verify)] == [
        ["tailrace", "run"], ["tailrace", "query"], ["tailrace", "run"],
    ]  # fmt: skip
    assert total.endswith(" s  in all")


def test_without_wheels_the_script_names_the_command_that_makes_them(tmp_path):
    with pytest.raises(SystemExit, match="make dist"):
        first_trace.chosen(tmp_path)
