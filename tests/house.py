"""Print how the product is divided into files, types and constructors: `python -m tests.house [--list]`.

The issue of deep rooms has a goal for each figure. `test_house.py` holds each one to its bound, which only falls.
"""

from __future__ import annotations

import ast
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]
PARTS = (ROOT / "collector", ROOT / "clients/python/src")
SHORT = 60  # Number of lines below which a file is short
LONG = 600
MANY = 8  # Number of parameters of a constructor that counts as too many

# The types of the forms of rows: a list, or a part of a block. A check that names one of these types asks for the form.
FORMS = {
    "ListRecords",
    "BlockRecords",
    "Matched",
    "Block",
    "BlockRows",
    "Row",
    "Integers",
    "Words",
    "Texts",
}
# In these packages, `list` is one of the two forms, too.
ROW_PACKAGES = {"ingest", "ledger", "model", "store"}


def product() -> dict[str, Path]:
    """Return the product's modules, by dotted name; a package's name stands for its `__init__`."""
    found = {}
    for part in PARTS:
        for path in sorted(part.rglob("*.py")):
            names = path.relative_to(part).with_suffix("").parts
            found[".".join(names[:-1] if names[-1] == "__init__" else names)] = path
    return found


def short_files(modules: dict[str, Path]) -> list[str]:
    return [name for name, lines in sizes(modules).items() if lines < SHORT]


def long_files(modules: dict[str, Path]) -> list[str]:
    return [name for name, lines in sizes(modules).items() if lines > LONG]


def sizes(modules: dict[str, Path]) -> dict[str, int]:
    """Return how many lines each file has, without packages' `__init__`."""
    files = {name: path for name, path in modules.items() if path.name != "__init__.py"}
    return {name: len(path.read_text().splitlines()) for name, path in files.items()}


def imported(tree: ast.Module, modules: dict[str, Path]) -> set[str]:
    """Return the modules that this one imports, anywhere in its text."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            inner = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {name for name in inner if name in modules} or {node.module}
    return found & modules.keys()


def only_at_home(modules: dict[str, Path], trees: dict[str, ast.Module]) -> list[str]:
    """Return the files that exactly one module imports, which lies in the same package."""
    importers: dict[str, set[str]] = {}
    for name, tree in trees.items():
        for other in imported(tree, modules) - {name}:
            importers.setdefault(other, set()).add(name)
    found = []
    for name, by in sorted(importers.items()):
        if modules[name].name != "__init__.py" and len(by) == 1:
            found += [name for one in by if modules[one].parent == modules[name].parent]
    return found


def types(tree: ast.Module) -> list[str]:
    """Return the names of the classes and aliases that a module defines, nested ones included."""
    found = [node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    for node in tree.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            if ast.unparse(node.annotation).endswith("TypeAlias"):
                found.append(node.target.id)
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            name = node.targets[0].id
            camel = name[:1].isupper() and (not name.isupper() or len(name) == 1)
            if camel and isinstance(node.value, ast.Subscript | ast.BinOp):
                found.append(name)
    return found


def repeated_types(trees: dict[str, ast.Module]) -> list[str]:
    """Return the names of types that one of the two products defines more than once."""
    count = Counter(
        (module.partition(".")[0], name) for module, tree in trees.items() for name in types(tree)
    )
    return [f"{root}: {name}, {times} times" for (root, name), times in count.items() if times > 1]


def wide_constructors(trees: dict[str, ast.Module]) -> list[str]:
    """Return the classes whose written `__init__` has many parameters, without `self`."""
    found = []
    for module, tree in trees.items():
        for node in ast.walk(tree):
            if not isinstance(node, ast.ClassDef):
                continue
            for function in node.body:
                if isinstance(function, ast.FunctionDef) and function.name == "__init__":
                    of = function.args
                    if len(of.posonlyargs) + len(of.args) - 1 + len(of.kwonlyargs) >= MANY:
                        found.append(f"{module}.{node.name}")
    return found


def form_checks(trees: dict[str, ast.Module]) -> list[str]:
    """Return the `isinstance` checks outside a package `rows` that ask which form rows have."""
    found = []
    for module, tree in trees.items():
        packages = set(module.split("."))
        if "rows" in packages or not module.startswith("tailrace."):
            continue
        forms = FORMS | {"list"} if packages & ROW_PACKAGES else FORMS
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "isinstance":
                names = {part.id for part in ast.walk(node.args[1]) if isinstance(part, ast.Name)}
                found += [f"{module}:{node.lineno}"] if names & forms else []
    return found


def figures() -> dict[str, list[str]]:
    modules = product()
    trees = {name: ast.parse(path.read_text()) for name, path in modules.items()}
    return {
        f"files under {SHORT} lines": short_files(modules),
        f"files over {LONG} lines": long_files(modules),
        "files with one importer, at home": only_at_home(modules, trees),
        "type names with two definitions": repeated_types(trees),
        f"constructors with {MANY} parameters": wide_constructors(trees),
        "checks of the form of rows": form_checks(trees),
    }


if __name__ == "__main__":
    for title, found in figures().items():
        items = found if "--list" in sys.argv else []
        sys.stdout.write("\n       ".join([f"{len(found):4} {title}", *items]) + "\n")
