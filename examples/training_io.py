"""Trace the input and output of a training run with DFTracer: `make producers`, and

    DFTRACER_INIT=FUNCTION DFTRACER_DATA_DIR=all \\
    tailrace run -- .venv/producers/bin/python examples/training_io.py

The program makes a data set of small files in a temporary directory. Then it reads the files in shuffled
order for some epochs, and writes a checkpoint after each. With `--killed` it kills itself in the middle
of the last epoch. Needs DFTracer.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import tempfile
from pathlib import Path

from dftracer.python import dft_fn, dftracer

SAMPLES = 20
EPOCHS = 3
SAMPLE_BYTES = 8192

tracer = dftracer.initialize_log(logfile=None, data_dir=None, process_id=-1)
functions = dft_fn("training")


def make_samples(directory: Path) -> list[Path]:
    samples = [directory / f"sample-{number:02}.bin" for number in range(SAMPLES)]
    for path in samples:
        path.write_bytes(bytes(SAMPLE_BYTES))
    return samples


@functions.log
def load(path: Path) -> bytes:
    return path.read_bytes()


@functions.log
def step(sample: bytes) -> int:
    return sum(sample)


@functions.log
def save(path: Path, state: int) -> None:
    path.write_text(f"{state}\n")


def main() -> None:
    killed = "--killed" in sys.argv
    rng = random.Random(1)
    state = 0
    with tempfile.TemporaryDirectory() as directory:
        samples = make_samples(Path(directory))
        for epoch in range(EPOCHS):
            for path in rng.sample(samples, SAMPLES):
                state += step(load(path))
            if killed and epoch == EPOCHS - 1:
                os.kill(os.getpid(), signal.SIGKILL)
            save(Path(directory) / f"epoch-{epoch}.checkpoint", state)
    tracer.finalize()


if __name__ == "__main__":
    main()
