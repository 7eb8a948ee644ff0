"""Check that the vectors of `test_conformance.py` reach the branches of `collector/tailrace/decoding`.

    python -m tests.decoding.coverage

Run `test_conformance.py` with coverage, without its tests of damage and cuts, because these reach branches by chance.
Fail if less than `BRANCHES_MIN` of the branches are reached, if an unreached branch has no reason in `EXCEPTIONS`, or
if a branch in `EXCEPTIONS` is reached.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from coverage import Coverage

from tailrace import kernels

HERE = Path(__file__).parent
DECODING = HERE.parents[1] / "collector" / "tailrace" / "decoding"
BRANCHES_MIN = 0.97
"""Minimum share of the branches that vectors must reach, from 0 to 1. The other branches have reasons in `EXCEPTIONS`,
for example branches that only the ingest calls.
"""
BLOCK_DECODER = "BlockDecoder"
"""End of the names of the classes that run only with kernels."""
OTHERS = ["*/encoder.py", "*/foreign.py", "*/guard.py", "*/plugins.py"]
"""Modules that are not measured, because decoders do not use them: modules that write formats, the module that
recognises foreign content, and those for plug-ins. `tests/export`, `test_foreign.py` and `test_plugins.py` test them."""
BY_CHANCE = ("damaged", "truncation", "noise")


class Place(NamedTuple):
    """A place that no vector reaches: a line one of whose branches is not taken, or the first line of a function that
    is never called.
    """

    file: str
    text: str


OF_BLOCKS = Place("formats/dftracer/decoder.py", "if rows >= ROWS_MIN:")
EXCEPTIONS = {
    Place("formats/__init__.py", "def __missing__(self, name: str) -> Format:"): (
        "only for a format of another package that is not installed any more (test_plugins.py)"
    ),
    Place("formats/et3/maps.py", "def __eq__(self, other: object) -> bool:"): (
        "called only where two hashes in a weak set collide"
    ),
    Place("formats/et3/events.py", "if self._stacks.behind:"): (
        "lines that come after a file has rested (test_et3.py)"
    ),
    Place("formats/et3/events.py", "if frame[2] and name is not None:"): (
        "a document comes between two lines; those of vectors come first (test_et3.py)"
    ),
    **{
        Place(f"formats/{file}.py", "if TYPE_CHECKING or kernels.active():"): (
            "decided once in a process"
        )
        for file in (
            "dftracer/decoder",
            "et3/decoder",
            "heph/__init__",
            "heph/decoder",
            "jets/decoder",
            "ovni/decoder",
        )
    },
    OF_BLOCKS: (
        "with vectors a block of one row is enough (blockwise.py); test_dftracer_kernel.py has short ones"
    ),
    **dict.fromkeys(
        (
            Place("contract.py", "def _keeps(decoder: Decoder, protocol: type) -> bool:"),
            Place("contract.py", "def asks(decoder: Decoder) -> TypeGuard[AskingDecoder]:"),
            Place("contract.py", "def asked_names(decoder: Decoder) -> Collection[str]:"),
            Place("contract.py", "def is_quick(decoder: Decoder) -> TypeGuard[QuickDecoder]:"),
            Place(
                "contract.py", "def separates(decoder: Decoder) -> TypeGuard[SeparatingDecoder]:"
            ),
            Place("contract.py", "def holds(decoder: Decoder) -> TypeGuard[HoldingDecoder]:"),
            Place("contract.py", "def packs(decoder: Decoder) -> TypeGuard[BlockDecoder]:"),
            Place("contract.py", "def reads_files(decoder: Decoder) -> TypeGuard[FileDecoder]:"),
            Place("contract.py", "def settles(decoder: Decoder) -> TypeGuard[SettlingDecoder]:"),
            Place("contract.py", "def states_end(decoder: Decoder) -> TypeGuard[EndingDecoder]:"),
            Place("contract.py", "if key not in _KEPT:"),
        ),
        "questions of the ingest about decoders (test_contract.py)",
    ),
    **dict.fromkeys(
        (
            Place("formats/dftracer/decoder.py", "def asked(self) -> Collection[str]:"),
            Place("formats/dftracer/decoder.py", "def take_slow(self) -> int:"),
            Place(
                "formats/dftracer/decoder.py",
                'if all(run.pid == "0" for run in self._processes.runs.values()):',
            ),
            Place("formats/dftracer/run.py", "if not came:"),
            Place("formats/et3/decoder.py", "def asked(self) -> Collection[str]:"),
            Place("formats/et3/decoder.py", "if isinstance(self._state.form, SpecificationForm):"),
            Place("formats/jets/decoder.py", "def take_slow(self) -> int:"),
            Place("formats/jets/decoder.py", 'if not self._in_file or self._stage == "start":'),
            Place("formats/ovni/decoder.py", "def asked(self) -> Collection[str]:"),
        ),
        "answers to the ingest (test_dftracer_pieces.py, test_lost_names.py)",
    ),
    Place("contract.py", "def recognises_datagram(self, datagram: bytes, limit: int) -> bool:"): (
        "sources ask about a peer's first datagram (test_udp.py)"
    ),
    Place("contract.py", "def has_own_names(self) -> bool:"): (
        "imports ask which names a format has (cli/test_verdict.py)"
    ),
    Place("formats/ovni/files.py", "def _described(path: str) -> str:"): (
        "imports ask which stream a document describes (cli/test_verdict.py)"
    ),
    **dict.fromkeys(
        (
            Place("contract.py", "def originals(path: str) -> list[str]:"),
            Place("contract.py", "while match := _DERIVED.fullmatch(name):"),
        ),
        "names of copies, which sources and imports ask about (test_lineage.py, test_choosing.py)",
    ),
    **dict.fromkeys(
        (
            Place(
                "formats/jets/decoder.py",
                "def begin(self, path: str, dialect: str) -> None:  # noqa: ARG002 - any file is read alike",
            ),
            Place(
                "formats/jets/decoder.py",
                "def document(self, name: str, data: bytes) -> list[Record]:  # noqa: ARG002 - there are none",
            ),
        ),
        "files, which vectors of JETS are not (test_jets.py, test_kinds.py)",
    ),
    **dict.fromkeys(
        (
            Place("contract.py", "def recognises_content(self) -> bool:"),
            Place("formats/heph/__init__.py", "def _is_dated(head: bytes) -> bool:"),
            Place(
                "contract.py",
                "def _nothing(path: str, head: bytes) -> bool:  # noqa: ARG001 - a format without a typical beginning",
            ),
        ),
        "sources ask which formats a file's content can show (test_other_formats.py)",
    ),
    **dict.fromkeys(
        (
            Place("formats/jets/decoder.py", "if self._in_file:"),
            Place("formats/jets/decoder.py", 'elif facts and self._stage == "reversed":'),
            Place("formats/jets/decoder.py", "if self._unordered:"),
            Place("formats/jets/decoder.py", "def _no_start(offset: int) -> Record:"),
        ),
        "files without a beginning, which vectors of JETS are not (test_kinds.py, test_split_files.py)",
    ),
    **dict.fromkeys(
        (
            Place("formats/dftracer/run.py", "if not (self.ids.believed or self.ids.returned):"),
            Place("formats/dftracer/run.py", "if state.headless and came and came[0][0] == 1:"),
        ),
        "files that were reversed, shuffled or split (test_kinds.py, test_split_files.py)",
    ),
    Place(
        "formats/et3/form.py",
        "def matched(self, stream: str, number: int) -> int:  # noqa: ARG002 - a jump of the clock shows them",
    ): "the other form alone has exits in doubt",
    Place("formats/dftracer/processes.py", "if number == self._rest:"): (
        "very many processes (test_dftracer.py)"
    ),
    Place("formats/et3/maps.py", "elif id_ not in known:"): "an id that two documents name",
    Place("formats/dftracer/usual.py", "if file is None or known is None:"): (
        "a hash that is neither text nor an integer (test_dftracer_kernel.py)"
    ),
    Place("json_object.py", "def texts_of(text: str | None) -> Texts:"): "for encoders",
    Place("lines.py", "def without_content(name: str, size: int) -> bytes | None:"): "for encoders",
    Place("formats/ovni/table.py", "if match is None:"): "the table in the code has a wrong line",
    **dict.fromkeys(
        (
            Place("formats/dftracer/run.py", "if len(self._firsts) > HOLES_MAX:"),
            Place("formats/dftracer/run.py", "if self.ranges + breaks >= HOLES_MAX:"),
            Place("formats/dftracer/run.py", "if self.ranges > HOLES_MAX:"),
            Place("formats/dftracer/names.py", "if len(self.known) >= NAMES_MAX:"),
            Place("formats/et3/events.py", "if len(frames) >= DEPTH_MAX:"),
            Place("formats/et3/maps.py", "if len(found) >= READ_MAX and id_ not in found:"),
            Place("formats/et3/stack.py", "if len(passed) > PASSED_MAX:"),
            Place("formats/et3/stack.py", "if len(self.frames) >= THREADS_MAX:"),
            Place("formats/heph/body.py", "if len(_layouts) >= _LAYOUTS_MAX:"),
            Place("formats/ovni/names.py", "if len(names) >= entries_max:"),
            Place("formats/ovni/names.py", "if len(tasks) >= TASKS_MAX:"),
            Place("formats/ovni/stack.py", "if len(spans) > OPEN_MAX:"),
            Place("formats/ovni/event.py", "if len(nested) > OPEN_MAX:"),
            Place("memo.py", "if len(self) >= self._entries_max:"),
        ),
        "a bound on memory: its vector would have hundreds or thousands of records, and the tests of"
        " the module reach it",
    ),
}
"""The places that no vector can reach, each with the reason."""


def measured() -> dict[str, Any]:
    """Run the tests with coverage. Return coverage's JSON report. Raise SystemExit if a test fails."""
    coverage = Coverage(
        data_file=None,
        config_file=False,
        branch=True,
        source_pkgs=["tailrace.decoding"],
        omit=OTHERS,
    )
    coverage.set_option("report:exclude_also", ["if TYPE_CHECKING:", r": \.\.\.$", r"^\s*\.\.\.$"])
    coverage.start()
    chosen = " and ".join(f"not {name}" for name in BY_CHANCE)
    code = pytest.main(
        ["-q", "-p", "no:cacheprovider", "-k", chosen, str(HERE / "test_conformance.py")]
    )
    coverage.stop()
    if code:
        raise SystemExit(int(code))
    with tempfile.NamedTemporaryFile("r") as file:
        coverage.json_report(outfile=file.name)
        report: dict[str, Any] = json.load(file)
    return report


def not_reached(report: dict[str, Any]) -> Iterator[Place]:
    for name, about in report["files"].items():
        path = Path(name).absolute()
        lines = path.read_text(encoding="utf-8").splitlines()
        file = path.relative_to(DECODING).as_posix()
        functions, branches = dict(about["functions"]), set(map(tuple, about["missing_branches"]))
        for function in [name for name in functions if _runs_never(name)]:
            branches -= set(map(tuple, functions.pop(function)["missing_branches"]))
        for line, _ in branches:
            yield Place(file, lines[line - 1].strip())
        for function in functions.values():
            if function["missing_lines"] and not function["executed_lines"]:
                yield Place(file, lines[function["start_line"] - 1].strip())


def _runs_never(function: str) -> bool:
    """Return whether a function runs only with kernels, and kernels are off."""
    return function.partition(".")[0].endswith(BLOCK_DECODER) and not kernels.active()


def main() -> int:
    report = measured()
    found = set(not_reached(report))
    totals = report["totals"]
    share = totals["covered_branches"] / totals["num_branches"]
    sys.stdout.write(
        f"{totals['covered_branches']} of {totals['num_branches']} branches are reached: {share:.2%};"
        f" {len(found)} places are not\n"
    )
    expected = EXCEPTIONS.keys() - (set() if kernels.active() else {OF_BLOCKS})
    problems = [f"{file}: no vector reaches: {text}" for file, text in found - expected]
    problems += [f"{file}: is reached: {text}" for file, text in expected - found]
    if share < BRANCHES_MIN:
        problems.append(f"less than {BRANCHES_MIN:.0%}")
    sys.stdout.writelines(f"{problem}\n" for problem in sorted(problems))
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main())
