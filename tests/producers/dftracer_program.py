"""Act as a program that DFTracer traces: work until a file appears, then end in order."""

from __future__ import annotations

import pathlib
import sys
import time

from dftracer.python import dft_fn, dftracer

directory = pathlib.Path(sys.argv[1])
log = dftracer.initialize_log(logfile=None, data_dir=None, process_id=-1)
functions = dft_fn("demo")


@functions.log
def work(round_):
    (directory / "data").write_text("x" * round_)


round_ = 0
while not (directory / "enough").exists():
    work(round_ % 1000)
    round_ += 1
    time.sleep(0.002)
log.finalize()
sys.stdout.write(f"{round_}\n")
