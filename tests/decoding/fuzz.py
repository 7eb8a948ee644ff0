"""Search for an input for which a kernel and the Python decoder return different records.

    make fuzz FORMAT=heph INPUTS=1000000

libFuzzer, called through atheris, changes inputs, and keeps those that reach new branches: branches of the Python
decoder, and branches of the kernels, which are built with sanitizers. The first inputs are the vectors, and inputs that
`kernel_inputs` makes. Kept inputs are stored in `build/fuzz/FORMAT/`, and the next run starts with them. If an input
fails, it is stored in `build/fuzz/`.
"""

from __future__ import annotations

import argparse
import random
import sys
from importlib import import_module
from pathlib import Path

import atheris

ROOT = Path(__file__).parents[2]
FOUND = ROOT / "build" / "fuzz"
MADE = 300
"""Number of inputs that `kernel_inputs` makes for the start of the search."""

LENGTH_MAX = 1024


def parted(data: bytes) -> tuple[bytes, list[int], int]:
    """Split the fuzzer's data. Return the input, the positions at which it is cut, and the limit of the decoder. The
    first three bytes determine the positions and the limit.
    """
    from tests.decoding.kernel_inputs import LIMITS

    choice, *places = data[:3].ljust(3, b"\0")
    rest = data[3:]
    cuts = sorted(place * len(rest) // 255 for place in places[: choice >> 6])
    return rest, cuts, LIMITS[choice % len(LIMITS)]


def seed(format_: str, directory: Path) -> None:
    """Write the first inputs of the search into a directory."""
    from tests.decoding.kernel_inputs import VECTORS, inputs

    rng = random.Random(1)
    whole = [path.read_bytes() for path in sorted((VECTORS / format_).glob("*.in"))]
    made = [data for data, _, _ in inputs(format_, MADE, seed=1)]
    for number, data in enumerate(whole + made):
        (directory / f"seed-{number}").write_bytes(rng.randbytes(3) + data)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("format")
    parser.add_argument("inputs", type=int)
    parser.add_argument("--library", type=Path, help="where kernels with sanitizers are")
    options = parser.parse_args()
    from tests.decoding import kernel_inputs

    if options.library:
        # The kernels must be imported before the decoders, which import kernels themselves.
        kernel_inputs.load_all(options.library)
    with atheris.instrument_imports(include=[f"tailrace.decoding.formats.{options.format}"]):
        import_module("tailrace.decoding.formats")
    directory = FOUND / options.format
    directory.mkdir(parents=True, exist_ok=True)
    seed(options.format, directory)

    def differs(data: bytes) -> None:
        kernel_inputs.compare_input(options.format, *parted(data))

    atheris.Setup(
        [
            sys.argv[0], f"-runs={options.inputs}", f"-max_len={LENGTH_MAX}", "-timeout=60",
            f"-artifact_prefix={FOUND}/{options.format}-", str(directory),
        ],
        differs,
    )  # fmt: skip
    atheris.Fuzz()


if __name__ == "__main__":
    main()
