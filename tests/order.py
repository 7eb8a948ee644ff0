"""Which files of tests begin first: those that take longest, so that at the end no process works alone.

`make test` gives files to its processes in the order in which they were collected.
"""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[1]

LONGEST = (
    "tests/decoding/test_conformance.py",
    "tests/system/test_damaged_store.py",
    "tests/packaging/test_collector_wheel.py",
    "tests/system/test_import.py",
    "tests/ingest/test_memory.py",
    "tests/run/test_run.py",
    "tests/faults/test_growth.py",
    "tests/simulation/test_oracle.py",
    "tests/simulation/test_play.py",
    "tests/reading/test_completeness.py",
    "tests/system/test_memory.py",
    "tests/query/test_limits.py",
    "tests/cli/test_completeness.py",
    "tests/system/test_bad_network.py",
    "tests/reading/test_store.py",
    "tests/packaging/test_client_wheel.py",
    "tests/upgrade/test_upgrade.py",
    "tests/system/test_clients.py",
    "tests/cli/test_terminal.py",
    "tests/system/test_service_manager.py",
    "tests/reading/test_results.py",
    "tests/ingest/test_wild.py",
    "tests/cli/test_query.py",
    "tests/reading/test_filters.py",
    "tests/query/test_engine.py",
    "tests/system/test_upkeep.py",
    "tests/query/test_views.py",
    "tests/system/test_awaited.py",
    "tests/c/test_bytes.py",
    "tests/store/test_damage.py",
    "tests/system/test_acknowledgements.py",
    "clients/python/tests/test_link.py",
    "tests/benchmarks/test_suite.py",
    "tests/examples/test_examples.py",
    "tests/demo/test_tour.py",
    "tests/system/test_session_ids.py",
    "tests/system/test_memory_limit.py",
    "tests/c/test_builds.py",
    "tests/c/test_peers.py",
    "tests/faults/test_degraded.py",
    "tests/system/test_attacks.py",
    "tests/ingest/test_announced.py",
    "tests/ingest/test_network.py",
    "tests/store/test_recovery.py",
    "tests/deploy/test_slurm.py",
    "tests/system/test_reload.py",
    "tests/query/test_paths.py",
    "tests/docs/test_prose.py",
)
"""CPU of each and of the processes that it starts, and time that it waits: 2026-11-23, longest first."""

_TURN = {ROOT / file: number for number, file in enumerate(LONGEST)}


def turn(path: Path) -> int:
    """Return a key that sorts files by who begins first; those that are not named keep their order."""
    return _TURN.get(path, len(_TURN))
