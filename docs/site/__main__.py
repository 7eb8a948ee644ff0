"""Build the site: `python -m docs.site DIRECTORY` writes it to a directory, in place of what is there.

Pages keep their places in the repository, and so do the files that they link to: a text becomes a page that shows it.
All links lead within the site; a link that leads nowhere is an error.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from docs.site.pages import ROOT, Entry, Site, chapters

HERE = Path(__file__).parent
SCRIPT = "iframe-worker.js"
GENERATOR = Path(sys.executable).with_name("zensical")


def main(target: Path) -> None:
    """Write pages and configuration to a directory, let Zensical make the site, and move it to its place."""
    text = (HERE / "zensical.toml").read_text()
    parts = chapters(text)
    site = Site(parts)
    with tempfile.TemporaryDirectory() as made:
        stage = Path(made)
        head, _, rest = text.partition("nav = [")
        navigation = _toml([site.titled(chapter) for chapter in parts])
        behind = rest.partition("\n]\n")[2]
        _write(stage / "zensical.toml", f"{head}nav = {navigation}\n{behind}".encode())
        for path, page in site.files():
            _write(stage / "docs" / path, page.encode())
        for path in site.pictures:
            _write(stage / "docs" / path, (ROOT / path).read_bytes())
        _write(stage / "docs" / SCRIPT, (HERE / SCRIPT).read_bytes())
        subprocess.run([GENERATOR, "build", "--strict", "--clean"], cwd=stage, check=True)  # noqa: S603 - fixed words
        shutil.rmtree(target, ignore_errors=True)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(stage / "site", target)


def _toml(value: Entry) -> str:
    """Return an entry of the navigation as TOML, whose strings are like those of JSON."""
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, list):
        return f"[{', '.join(_toml(each) for each in value)}]"
    entries = (f"{json.dumps(name)} = {_toml(each)}" for name, each in value.items())
    return f"{{ {', '.join(entries)} }}"


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
