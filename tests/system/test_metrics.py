"""The metrics of a real daemon that is busy with every format, held to their contract at every scrape."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from tailrace.metrics.contract import METRICS, Restart, Type
from tests.metrics.scrape import Scrape, plain
from tests.system.load import Load

ROUNDS = 12


@pytest.fixture(scope="module")
def load(tmp_path_factory):
    with Load(tmp_path_factory.mktemp("load")) as load:
        yield load
        load.collector.check_balance()


def scrape(load):
    return Scrape(load.collector.metrics())


def test_what_is_exposed_is_what_is_documented_and_its_sums_hold_at_every_scrape(load):
    for _ in range(ROUNDS):
        load.send()
        for _ in range(3):
            now = scrape(load)
            now.check_laws()
    sources = load.collector.status()["sources"]
    now.check_families(sources)
    now.check_bounds(sources, 1000)
    for kind in ("records", "flaws", "malformed_records"):
        told = now.sums(f"tailrace_source_{kind}", ("source",))
        assert {source for (source,), count in told.items() if count} >= set(FORMATS_OF[kind])


FORMATS_OF = {
    "records": ["udp", "udp_jets", "tcp", "jets", "unix", *(f"files_{f}" for f in ("heph", "jets", "ovni", "dftracer", "et3"))],
    "flaws": ["jets", "files_jets"],
    "malformed_records": ["tcp", "jets", "files_heph", "files_jets", "files_dftracer", "files_et3"],
}  # fmt: skip


def test_both_formats_say_the_same(load):
    told = plain(load.collector.metrics("text/plain"))
    for metric in METRICS:
        # In the text format there is no type for what is always 1.
        name = f"{metric.name}_info" if metric.type is Type.INFO else metric.name
        kind = "gauge" if metric.type is Type.INFO else metric.type.exposed
        assert told.pop(name) == (kind, metric.help)
    assert told == {}


@pytest.mark.skipif(
    shutil.which("promtool") is None, reason="no promtool: apt-get install prometheus"
)
def test_promtool_has_nothing_to_say(load):
    checked = subprocess.run(
        ["promtool", "check", "metrics"],
        input=load.collector.metrics("text/plain"), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")


def test_after_a_restart_each_counter_is_as_its_contract_says(load):
    load.disconnect()
    load.collector.settle()
    before = scrape(load)
    load.collector.stop()
    load.collector.start()
    after = scrape(load)
    load.connect()
    for metric in METRICS:
        if metric.type is Type.COUNTER:
            then, now = (sum(s.value for s in x.families[metric.name]) for x in (before, after))
            if metric.restart is Restart.KEPT:
                assert now >= then, metric.name
            else:
                assert now < then or then == 0, metric.name
