"""Which files of tests begin first: those that take longest, so that at the end no process works alone.

`make test` and `make test-all` give files to their processes in the order in which they were collected.
"""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[1]

LONGEST = (
    "tests/system/test_import.py",
    "tests/decoding/test_conformance.py",
    "tests/benchmarks/test_suite.py",
    "tests/system/test_memory.py",
    "tests/run/test_interpreter.py",
    "tests/export/test_original.py",
    "tests/c/test_hostile.py",
    "tests/run/test_run.py",
    "tests/system/test_floods.py",
    "tests/cli/test_broken_output.py",
    "tests/deploy/test_slurm.py",
    "tests/run/test_surroundings.py",
    "tests/query/test_views.py",
    "tests/run/test_launcher.py",
    "tests/packaging/test_collector_wheel.py",
    "tests/export/test_perfetto_ui.py",
    "tests/system/test_damaged_store.py",
    "tests/system/test_surroundings.py",
    "tests/benchmarks/test_soak.py",
    "tests/system/test_bucket.py",
    "tests/system/test_clients.py",
    "tests/store/test_damage.py",
    "clients/python/tests/test_process.py",
    "tests/system/test_bad_network.py",
    "tests/system/test_last_records.py",
    "tests/importing/test_kinds.py",
    "tests/faults/test_removed_names.py",
    "tests/packaging/test_client_wheel.py",
    "tests/view/browser/test_views.py",
    "tests/simulation/test_play.py",
    "tests/examples/test_examples.py",
    "tests/simulation/test_oracle.py",
    "tests/c/test_peers.py",
    "tests/demo/test_tour.py",
    "tests/job/test_merge.py",
    "tests/reading/test_store.py",
    "tests/run/test_node.py",
    "tests/importing/test_lost_names.py",
    "tests/faults/test_strange_places.py",
    "tests/system/test_unread_output.py",
    "tests/system/test_followed_anew.py",
    "tests/query/test_engine.py",
    "tests/system/test_awaited.py",
    "tests/view/browser/test_timeline.py",
    "tests/system/test_cut_connections.py",
    "tests/system/test_acknowledgements.py",
    "tests/simulation/test_moves.py",
    "tests/simulation/test_losses.py",
    "tests/export/test_readers.py",
    "tests/system/test_homeless.py",
    "tests/reading/test_processes.py",
    "tests/export/test_drawn.py",
    "tests/query/test_limits.py",
    "tests/ingest/test_memory.py",
    "tests/rollups/test_tending.py",
    "tests/faults/test_growth.py",
    "tests/cli/test_verdict.py",
    "tests/system/test_many_collectors.py",
    "tests/decoding/test_kernels.py",
)
"""The slowest files:

Time of each among six processes on two cores, at least a minute, as of 2026-11-29, the longest first.
"""

_TURN = {ROOT / file: number for number, file in enumerate(LONGEST)}


def turn(path: Path) -> int:
    """Return a sort key by which the slowest files begin first. Files that are not named keep their order."""
    return _TURN.get(path, len(_TURN))
