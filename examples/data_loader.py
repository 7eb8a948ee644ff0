"""A training loop and the worker processes that load its data: `docs/tutorials/data-science.md` asks for its times.

    tailrace run --store /tmp/loader -- python examples/data_loader.py

Each worker decodes the records of a sample, one span a record. The loop waits for a batch, then trains on it. With
`--buffer BYTES`, the workers' clients keep fewer events than a sample has records, so they discard some.
"""

from __future__ import annotations

import argparse
import itertools
import math
import random
import zlib
from collections.abc import Iterator
from multiprocessing import get_context
from multiprocessing.pool import Pool

import tailrace_client as trace

WORKERS = 2
SAMPLES, RECORDS = 32, 1000
BATCH = 8
EPOCHS = 2
BUFFER_BYTES = 1 << 22
STEP_CALCULATIONS = 200_000


def begin(buffer_bytes: int) -> None:
    """Connect a worker to the collector of `tailrace run`."""
    trace.connect(process="loader", buffer_bytes=buffer_bytes)


def load(sample: int) -> list[int]:
    """Return a number for each record of a sample."""
    rng = random.Random(sample)
    records = [zlib.compress(rng.randbytes(rng.randrange(100, 2000))) for _ in range(RECORDS)]
    found = []
    with trace.span("load", sample=sample):
        for record in records:
            with trace.span("decode"):
                found.append(sum(zlib.decompress(record)))
    return found


def batches(pool: Pool) -> Iterator[list[list[int]]]:
    """Yield the samples in batches, which the workers load ahead."""
    samples = pool.imap(load, range(SAMPLES))
    while batch := list(itertools.islice(samples, BATCH)):
        yield batch


@trace.traced("train")
def train(batch: list[list[int]]) -> float:
    return sum(
        math.sqrt(each[at % RECORDS]) for each in batch for at in range(STEP_CALCULATIONS // BATCH)
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--buffer", type=int, default=BUFFER_BYTES, metavar="BYTES")
    buffer_bytes = parser.parse_args().buffer
    trace.connect(process="trainer")
    loss = 0.0
    with get_context("spawn").Pool(WORKERS, begin, (buffer_bytes,)) as pool:
        for epoch in range(EPOCHS):
            loading = batches(pool)
            with trace.span("epoch", number=epoch):
                while True:
                    with trace.span("wait"):
                        batch = next(loading, None)
                    if batch is None:
                        break
                    loss += train(batch)
        pool.close()
        pool.join()
    print(f"loss {loss:.0f}")


if __name__ == "__main__":
    main()
