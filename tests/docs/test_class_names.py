"""A class name means one thing: no two modules of the collector have a class of the same name."""

from __future__ import annotations

import ast
from collections import Counter

from tests.docs.pages import ROOT


def class_names():
    for path in sorted((ROOT / "collector" / "tailrace").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                yield node.name


def test_a_class_name_is_used_once():
    counts = Counter(class_names())
    assert [name for name, count in counts.items() if count > 1] == []
