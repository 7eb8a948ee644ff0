"""Act as a data loader with worker processes that DFTracer traces: `python loader.py DIRECTORY WORKERS`.

It never ends. Workers read the samples of a data set, and the main process takes what they read. Each process appends a
line to DIRECTORY/journal when it begins (its PID and `-`), and one at the end of each operation, before DFTracer gets the
event (its PID and the number of the operation). A line is one `write` to a file that is open with O_APPEND: so it is
whole, and survives SIGKILL.
"""

from __future__ import annotations

import itertools
import multiprocessing
import os
import random
import sys
import time
from multiprocessing.queues import SimpleQueue
from pathlib import Path

from dftracer.python import dft_fn, dftracer

SAMPLES = 64
SAMPLE_BYTES = 16384
DECODING_SECONDS = 0.002

directory = Path(sys.argv[1])
journal = os.open(directory / "journal", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)


def note(what: str) -> None:
    os.write(journal, f"{os.getpid()} {what}\n".encode())


def work(samples: list[Path], batches: SimpleQueue[int]) -> None:
    note("-")
    rng = random.Random(os.getpid())
    for number in itertools.count():
        with dft_fn(cat="loader", name="load", step=number):
            content = rng.choice(samples).read_bytes()
            time.sleep(DECODING_SECONDS)
            note(f"{number}")
        batches.put(sum(content))


def main() -> None:
    note("-")
    dftracer.initialize_log(logfile=None, data_dir=None, process_id=-1)
    samples = [directory / "data" / f"sample-{number:02}.bin" for number in range(SAMPLES)]
    samples[0].parent.mkdir()
    for path in samples:
        path.write_bytes(random.randbytes(SAMPLE_BYTES))
    fork = multiprocessing.get_context("fork")  # as PyTorch's loader does on Linux
    batches: SimpleQueue[int] = fork.SimpleQueue()
    for _ in range(int(sys.argv[2])):
        fork.Process(target=work, args=(samples, batches)).start()
    for number in itertools.count():
        with dft_fn(cat="loader", name="take", step=number):
            batches.get()
            note(f"{number}")


if __name__ == "__main__":
    main()
