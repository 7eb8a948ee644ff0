"""Which files of tests begin first: those that take longest, so that at the end no process works alone.

`make test` and `make test-all` give files to their processes in the order in which they were collected.
"""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[1]

LONGEST = (
    "tests/system/test_memory.py",
    "tests/run/test_run.py",
    "tests/system/test_bucket.py",
    "tests/run/test_node.py",
    "tests/job/test_killed.py",
    "tests/system/test_damaged_store.py",
    "tests/system/test_import.py",
    "tests/decoding/test_conformance.py",
    "tests/benchmarks/test_suite.py",
    "tests/faults/test_growth.py",
    "tests/store/test_damage.py",
    "tests/export/test_perfetto_ui.py",
    "tests/docs/test_export.py",
    "tests/system/test_upkeep.py",
    "tests/system/test_awaited.py",
    "tests/system/test_clients.py",
    "tests/formats/test_sixth_format.py",
    "tests/view/browser/test_views.py",
    "tests/system/test_acknowledgements.py",
    "tests/simulation/test_play.py",
    "tests/demo/test_tour.py",
    "tests/reading/test_store.py",
    "tests/examples/test_examples.py",
    "tests/deploy/test_slurm.py",
    "tests/packaging/test_collector_wheel.py",
    "tests/packaging/test_client_wheel.py",
    "tests/query/test_limits.py",
    "tests/docs/test_readme.py",
    "tests/c/test_peers.py",
    "tests/deploy/test_systemd.py",
    "tests/view/browser/test_timeline.py",
    "clients/python/tests/test_link.py",
    "tests/system/test_service_manager.py",
    "tests/system/test_reload.py",
    "tests/system/test_restart.py",
    "tests/c/test_bytes.py",
    "tests/c/test_builds.py",
    "clients/python/tests/test_process.py",
    "tests/export/test_drawn.py",
    "tests/c/test_sanitizers.py",
    "tests/reading/test_completeness.py",
    "tests/upgrade/test_upgrade.py",
    "tests/system/test_bad_network.py",
    "tests/cli/test_export.py",
    "tests/run/test_broken_tracing.py",
    "tests/store/test_recovery.py",
    "tests/store/test_upkeep.py",
    "tests/store/test_durable.py",
    "tests/c/test_collector.py",
    "tests/producers/test_dftracer.py",
    "tests/importing/test_choosing.py",
    "tests/faults/test_degraded.py",
    "tests/ingest/test_memory.py",
    "tests/system/test_memory_limit.py",
    "tests/simulation/test_oracle.py",
)
"""The slowest files:

CPU of each and of the processes that it starts, and the time that it waits, as of 2026-11-25, the longest first.
"""

_TURN = {ROOT / file: number for number, file in enumerate(LONGEST)}


def turn(path: Path) -> int:
    """Return a sort key by which the slowest files begin first. Files that are not named keep their order."""
    return _TURN.get(path, len(_TURN))
