"""A viewer of a table at a URL: figures, frames and notes are those of the same rows in a directory."""

from __future__ import annotations

import pytest

from tests import toml
from tests.query.tables import make
from tests.store.s3_server import RunningS3
from tests.view.conftest import EPOCH, few
from tests.view.viewer import Viewer

URL = "s3://bucket/look"


@pytest.fixture(scope="module")
def viewers(tmp_path_factory, few_store):
    """A viewer of a table in a bucket, and one of the same rows in a directory."""
    directory = tmp_path_factory.mktemp("bucket")
    with RunningS3() as server:
        make(URL, few(), options=server.options)
        config = directory / "tailrace.toml"
        options = "\n".join(f'"{key}" = "{value}"' for key, value in server.options.items())
        config.write_text(toml.section("store", path=URL) + toml.section("store.options") + options)
        both = Viewer("--config", config), Viewer(few_store)
        yield both
        assert [each.end() for each in both] == [(0, "")] * 2


def without(answer):
    """An answer without versions, and without what nobody can know of a table in a bucket: whether a collector runs."""
    if isinstance(answer, dict):
        left = {"version", "state", "open_sessions", "alive"}
        return {key: without(value) for key, value in answer.items() if key not in left}
    return [without(each) for each in answer] if isinstance(answer, list) else answer


@pytest.mark.parametrize(
    ("path", "asked"),
    [
        ("overview", {}),
        ("streams", {}),
        ("sessions", {}),
        ("gaps", {}),
        ("lanes", {}),
        ("frame", {"from": EPOCH, "to": EPOCH + 100_000, "pixels": 20}),
        ("frame", {"from": EPOCH, "to": EPOCH + 100_000, "pixels": 5000}),
        ("search", {"name": "step"}),
        ("statistics", {}),
    ],
)
def test_an_answer_is_that_of_the_same_rows_in_a_directory(viewers, path, asked):
    remote, local = (without(viewer.get(path, **asked)) for viewer in viewers)
    assert remote == local


def test_a_note_is_kept_in_the_bucket_and_exported_with_the_rows(viewers):
    remote, _ = viewers
    assert remote.ask("notes", {"from": str(EPOCH), "to": str(EPOCH + 9), "text": "here"}).status == 200  # fmt: skip
    (note,) = remote.get("notes")["notes"]
    assert note["text"] == "here"
    assert b"here" in remote.ask("export", format="chrome").body
