"""`python -m benchmarks.bounds`: whether the intervals of `tailrace stats` hold the truth, and how wide they are.

Random traces of all formats are imported twice: whole, and after a random loss. Both stores get random questions.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections import Counter, defaultdict
from pathlib import Path

from tailrace.analysis.statistics import FIGURES
from tests.analysis.questions import Twins

PER_STORE = 10
"""Number of questions to each pair of stores."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--questions", type=int, default=1000, help="how many to ask")
    parser.add_argument("--seed", type=int, default=1, help="seed of the first pair of stores")
    chosen = parser.parse_args()
    kinds: defaultdict[str, Counter[str]] = defaultdict(Counter)
    widths: defaultdict[str, list[float]] = defaultdict(list)
    asked, wrong = 0, 0
    try:
        for seed in range(chosen.seed, chosen.seed + -(-chosen.questions // PER_STORE)):
            with tempfile.TemporaryDirectory() as root:
                stores = Twins(Path(root), seed)
                for number, answers in enumerate(stores.answers(PER_STORE)):
                    asked += 1
                    bad = [answer for answer in answers if answer.wrong]
                    wrong += bool(bad)
                    for answer in bad:
                        print(
                            f"seed {seed}, question {number}: {answer.wrong} {answer} {stores.losses}",
                            flush=True,
                        )
                    for answer in answers:
                        for figure, its in answer.told:
                            if its.is_point or its.low is None or its.high is None:
                                kinds[figure]["value" if its.is_point else "open"] += 1
                            else:
                                kinds[figure]["range"] += 1
                                widths[figure].append(
                                    (its.high - its.low) / max(answer.truth[figure], 1)
                                )
    except KeyboardInterrupt:
        print("interrupted; so far:")
    print(f"{asked} questions, {asked - wrong} with the truth in all intervals")
    print(f"{'figure':8}{'value':>8}{'two ends':>10}{'open':>8}{'median width of two ends':>26}")
    for figure in FIGURES:
        width = f"{statistics.median(widths[figure]):.1%}" if widths[figure] else "-"
        row = kinds[figure]
        print(f"{figure:8}{row['value']:8}{row['range']:10}{row['open']:8}{width:>26}")
    raise SystemExit(bool(wrong))


if __name__ == "__main__":
    main()
