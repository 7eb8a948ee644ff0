"""Write what real programs of all formats write, and import it into one store."""

from __future__ import annotations

import json
from itertools import zip_longest

from tailrace.demo.binary import ovni_trace, ovni_writes
from tailrace.demo.lines import dftracer_trace, hashed
from tailrace_client import Emitter
from tests.export.traces import EPOCH
from tests.program import COMMAND, run

RANKS = 4


def of_all_formats(root):
    """Return a store with two equal runs of an announced program, ovni processes of two nodes, one DFTracer file of a
    process and one merged file of several, a JETS and an ET3 trace."""
    store = root / "store"
    for number, revision in enumerate(("4f2a", "77c1")):
        path = root / f"run{number}.heph"
        emitter = Emitter(f"file://{path}", process="solver", labels={"revision": revision})
        emitter.use_stream(7)
        with emitter.span("step"):
            pass
        assert emitter.close(30)
        imported(store, "heph", path)
    ovni(root / "ovni")
    imported(store, "ovni", root / "ovni")
    dftracer(root / "dftracer")
    imported(store, "dftracer", root / "dftracer")
    jets = root / "soc.jets"
    jets.write_text(
        "".join(f"{json.dumps(line)}\n" for line in [
            {"type": "header", "version": "2.0", "metadata": {"hardware_model": "SoC X1", "clock_frequency_mhz": 1000}},
            {"type": "record", "clk": 1, "name": "core", "record_type": "Core", "id": 1, "parent_id": None, "description": ""},
            {"type": "record_end", "clk": 9, "record_id": 1},
            {"type": "footer", "clk": 9, "totals": {"records": 1, "annotations": 0, "events": 0}},
        ])
    )  # fmt: skip
    imported(store, "jets", jets)
    return store


def imported(store, format_, path):
    run([*COMMAND, "import", "--store", str(store), "--format", format_, str(path)], check=True)


def ovni(root):
    for number, thread in enumerate(ovni_trace(1, iterations=2)):
        thread.metadata["ovni"] |= {"rank": number // 3, "nranks": 2}
        for write in ovni_writes(thread, 4096):
            path = root / write.path
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("wb" if write.anew else "ab") as file:
                file.write(write.data)


def dftracer(root):
    """Write the file of one process, and a file in which the lines of two ranks are mixed. Both have named a thread."""
    root.mkdir()
    alone, *others = dftracer_trace(1, EPOCH // 1000, processes=3, steps=2)
    (root / alone.name).write_bytes(b"".join(line.data for line in alone.lines))
    merged = []
    for rank, file in enumerate(others[:2]):
        ids = {"pid": file.pid, "tid": file.pid, "ph": 4, "type": 1, "cat": "dftracer"}
        about = {"hhash": hashed("demo"), "name": f"Rank {rank}", "value": "process_name"}
        reader = {"hhash": hashed("demo"), "name": "reader", "value": "thread_name"}
        lines = [line.data for line in file.lines]
        lines[3:3] = [
            json.dumps({"name": "process_name", **ids, "args": about}).encode() + b"\n",
            json.dumps({"name": "thread_name", **ids, "tid": file.pid + 1000, "args": reader}).encode() + b"\n",
        ]  # fmt: skip
        merged.append(lines)
    mixed = (line for pair in zip_longest(*merged, fillvalue=b"") for line in pair)
    (root / "merged.pfw").write_bytes(b"".join(mixed))
